"""Spark's columns of a rule's expression, made node by node from the tree that `rule_language` has checked.

Functions are looked up by the names of a fixed list; texts, numbers, and criteria become literals and columns. No text
of a declaration is parsed here.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from operator import add, and_, eq, ge, gt, le, lt, mod, mul, ne, or_, sub, truediv
from typing import Any

from pyspark.sql import Column, types
from pyspark.sql import functions as sql
from sqlglot import exp

from workers.pipeline.events.layout import get_criterion_column
from workers.pipeline.rules.reference import parse_subnet
from workers.pipeline.rules.rule_functions import SUBNET, get_literal_number
from workers.pipeline.rules.rule_language import TYPES, WrittenRule, list_chain

DOT = r"\."  # Java splits by this one without compiling a regular expression
_TYPES: dict[str, types.DataType] = {
    "string": types.StringType(),
    "boolean": types.BooleanType(),
    "smallint": types.ShortType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
}
_OPERATORS: dict[type, Callable[[Any, Any], Column]] = {
    exp.EQ: eq,
    exp.NEQ: ne,
    exp.LT: lt,
    exp.LTE: le,
    exp.GT: gt,
    exp.GTE: ge,
    exp.Add: add,
    exp.Sub: sub,
    exp.Mul: mul,
    exp.Div: truediv,
    exp.Mod: mod,
    exp.NullSafeEQ: lambda left, right: left.eqNullSafe(right),
    exp.IntDiv: lambda left, right: sql.call_function("div", left, right),
    exp.DPipe: lambda left, right: sql.call_function("concat", left, right),
}


def convert_expression(expression: WrittenRule) -> Column:
    """Return the Spark column of an expression."""
    return _convert_node(expression.tree)


def _convert_node(node: exp.Expression) -> Column:
    if type(node) in _OPERATORS:
        return _OPERATORS[type(node)](_convert_node(node.this), _convert_node(node.expression))
    match node:
        case exp.And() | exp.Or():
            return _join_balanced(
                [_convert_node(operand) for operand in list_chain(node)], and_ if node.key == "and" else or_
            )
        case exp.Column():
            return sql.col(f"`{node.name}`")
        case exp.Placeholder():
            return sql.col(f"`{get_criterion_column(node.name)}`")
        case exp.Literal() | exp.Boolean() | exp.Null():
            return _convert_literal(node)
        case exp.Paren():
            return _convert_node(node.this)
        case exp.Not():
            return ~_convert_node(node.this)
        case exp.Neg():
            return -_convert_node(node.this)
        case exp.Cast():
            return _cast(node)
        case exp.Case():
            return _convert_case(node)
        case exp.Bracket():
            return _convert_node(node.this).getItem(get_literal_number(node.expressions[0]))
        case exp.Anonymous():
            return _function(node)
    return _convert_predicate(node)


def _convert_predicate(node: exp.Expression) -> Column:
    tested = _convert_node(node.this)
    match node:
        case exp.In():
            return tested.isin(*[_convert_node(expression) for expression in node.expressions])
        case exp.Between():
            return tested.between(_convert_node(node.args["low"]), _convert_node(node.args["high"]))
        case exp.Like():
            result = tested.like(node.expression.this)
            return ~result if node.args.get("negate") else result
        case exp.Is(expression=exp.Null()):
            return tested.isNull()
        case exp.Is():
            return tested.eqNullSafe(_convert_literal(node.expression))
    raise TypeError(f"{type(node).__name__} was not checked")


def _join_balanced(parts: list[Column], join: Callable[[Any, Any], Any]) -> Column:
    """Join the parts pair by pair, so that a long chain makes no deep tree."""
    while len(parts) > 1:
        parts = [reduce(join, parts[place : place + 2]) for place in range(0, len(parts), 2)]
    return parts[0]


def _convert_literal(node: exp.Expression) -> Column:
    if isinstance(node, exp.Null):
        return sql.lit(None)
    if isinstance(node, exp.Boolean) or node.is_string:
        return sql.lit(node.this)
    text = node.this
    if "e" in text.lower():
        return sql.lit(float(text))
    return sql.lit(Decimal(text) if "." in text else int(text))


def _cast(node: exp.Expression) -> Column:
    kind = _TYPES[TYPES[node.args["to"].this]]
    inner = _convert_node(node.this)
    return inner.try_cast(kind) if node.args.get("safe") else inner.cast(kind)


def _convert_case(node: exp.Case) -> Column:
    subject = None if node.this is None else _convert_node(node.this)
    result: Any = sql
    for branch in node.args["ifs"]:
        condition = _convert_node(branch.this)
        result = result.when(condition if subject is None else subject == condition, _convert_node(branch.args["true"]))
    default = node.args.get("default")
    whole: Column = result if default is None else result.otherwise(_convert_node(default))
    return whole


def _function(node: exp.Anonymous) -> Column:
    name = node.this.lower()
    if name == SUBNET:
        return _match_subnet(_convert_node(node.expressions[0]), node.expressions[1].this)
    return sql.call_function(name, *[_convert_node(expression) for expression in node.expressions])


def _match_subnet(address: Column, subnet: str) -> Column:
    low, prefix_length = parse_subnet(subnet, SUBNET)
    free_bits = 32 - prefix_length
    # Most addresses differ in the text already, and need not be parsed.
    begins = ".".join(str(low >> shift & 255) for shift in (24, 16, 8, 0)[: prefix_length // 8])
    inside = sql.shiftright(convert_address_to_number(address), free_bits) == cast_to_long(low >> free_bits)
    return sql.startswith(address, sql.lit(begins)) & inside


def convert_address_to_number(address: Column) -> Column:
    """Return an IPv4 address (text) as a number; outside 0 … 2³² - 1, or null, if it is not an address.

    The address is referenced once, since Spark expands a column wherever it is referenced. The leading 1 distinguishes
    four parts from three or five.
    """
    parts = sql.transform(sql.split(address, DOT), lambda part: part.cast(types.LongType()))
    return sql.aggregate(parts, cast_to_long(1), lambda number, part: number * cast_to_long(256) + part) - cast_to_long(
        256**4
    )


def cast_to_long(value: int) -> Column:
    """Return a 64-bit whole number."""
    return sql.lit(value).cast(types.LongType())
