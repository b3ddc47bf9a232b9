"""Expressions of rules evaluated on Arrow arrays, with the results of Spark.

`compile_expression` returns a function of `EventColumns` for a parsed expression, or raises `NotInArrowError` if only
Spark evaluates it exactly. If texts repeat, the parts that read one text column are evaluated once for each distinct
text.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from workers.pipeline.events.layout import get_criterion_column
from workers.pipeline.rules.arrow_casts import cast, try_cast
from workers.pipeline.rules.arrow_functions import FUNCTIONS, is_null, match_subnet, take_item
from workers.pipeline.rules.arrow_operators import (
    add,
    choose,
    compare,
    compute_remainder,
    divide,
    divide_whole,
    is_in,
    join_conditions,
    multiply,
    negate,
    negate_condition,
    subtract,
)
from workers.pipeline.rules.arrow_values import (
    ARROW_TYPES,
    MAX_PRECISION,
    Compiled,
    NotInArrowError,
    build,
    make_column,
    make_constant,
    parse_decimal,
)
from workers.pipeline.rules.rule_functions import SUBNET, get_literal_number
from workers.pipeline.rules.rule_language import TYPES, list_chain, list_operands

_COMPARISONS: dict[type, str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[type, Callable[[Compiled, Compiled], Compiled]] = {
    exp.Add: add,
    exp.Sub: subtract,
    exp.Mul: multiply,
    exp.Div: divide,
    exp.Mod: compute_remainder,
    exp.IntDiv: divide_whole,
    exp.DPipe: FUNCTIONS["concat"],
}


def compile_expression(tree: exp.Expression, kinds: Mapping[str, str]) -> Compiled:
    """Compile a checked expression. kinds: the kind of each column.

    Raises `NotInArrowError` if only Spark evaluates the expression exactly.
    """
    if isinstance(tree, exp.Anonymous) and tree.this.lower() != SUBNET and tree.this.lower() not in FUNCTIONS:
        raise NotInArrowError(f"{tree.this.lower()}()")
    if isinstance(tree, exp.And | exp.Or):
        return join_conditions(tree.key, [compile_expression(part, kinds) for part in list_chain(tree)])
    if isinstance(tree, exp.Case):
        return _compile_case(tree, kinds)
    operands = [compile_expression(part, kinds) for part in list_operands(tree)]
    if type(tree) in _COMPARISONS:
        return compare(_COMPARISONS[type(tree)], *operands)
    if type(tree) in _ARITHMETIC:
        return _ARITHMETIC[type(tree)](*operands)
    match tree:
        case exp.Column():
            return _compile_column(tree.name, kinds)
        case exp.Placeholder():
            return _compile_column(get_criterion_column(tree.name), kinds)
        case exp.Literal() | exp.Boolean() | exp.Null():
            return _compile_literal(tree)
        case exp.Paren():
            return operands[0]
        case exp.Not():
            return negate_condition(operands[0])
        case exp.Neg():
            return negate(operands[0])
        case exp.Cast():
            kind = TYPES[tree.args["to"].this]
            if kind not in ARROW_TYPES:
                raise NotInArrowError(f"the type {kind}")
            return try_cast(operands[0], kind) if tree.args.get("safe") else cast(operands[0], kind)
        case exp.Bracket():
            return _take_item(operands[0], get_literal_number(tree.expressions[0]))
        case exp.Anonymous() if tree.this.lower() == SUBNET:
            return match_subnet(operands[0], tree.expressions[1].this)
        case exp.Anonymous():
            return FUNCTIONS[tree.this.lower()](*operands)
        case exp.In():
            return is_in(operands[0], operands[1:])
        case exp.Between():
            tested, low, high = operands
            return join_conditions("and", [compare(">=", tested, low), compare("<=", tested, high)])
        case exp.Like():
            found = _match_pattern(operands[0], tree.expression.this)
            return negate_condition(found) if tree.args.get("negate") else found
        case exp.Is(expression=exp.Null()):
            return is_null(operands[0])
        case exp.Is():
            return compare("<=>", *operands)
    raise TypeError(f"{type(tree).__name__} was not checked")


def _compile_column(name: str, kinds: Mapping[str, str]) -> Compiled:
    kind = kinds[name]
    if kind not in ARROW_TYPES and not parse_decimal(kind):
        raise NotInArrowError(f"{name} of type {kind}")
    return make_column(kind, name)


def _compile_literal(node: exp.Expression) -> Compiled:
    if isinstance(node, exp.Null):
        return make_constant("void", None)
    if isinstance(node, exp.Boolean):
        return make_constant("boolean", bool(node.this))
    text = str(node.this)
    if node.is_string:
        return make_constant("string", text)
    if "e" in text.lower():
        return make_constant("double", float(text))
    if "." not in text:
        number = int(text)
        return make_constant("int" if number < 2**31 else "bigint", number)
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > MAX_PRECISION:
        raise NotInArrowError(f"decimals of more than {MAX_PRECISION} digits")
    return make_constant(f"decimal({precision},{scale})", value)


def _compile_case(node: exp.Case, kinds: Mapping[str, str]) -> Compiled:
    subject = None if node.this is None else compile_expression(node.this, kinds)
    branches = []
    for branch in node.args["ifs"]:
        condition = compile_expression(branch.this, kinds)
        if subject is not None:
            condition = compare("=", subject, condition)
        branches.append((condition, compile_expression(branch.args["true"], kinds)))
    default = node.args.get("default")
    return choose(branches, make_constant("void", None) if default is None else compile_expression(default, kinds))


def _take_item(texts: Compiled, place: int | None) -> Compiled:
    assert place is not None  # the language allows a literal only
    if place < 0:
        return make_constant("string", None)
    return take_item(texts, place)


def _match_pattern(tested: Compiled, pattern: str) -> Compiled:
    """Match LIKE: % is any text, and _ is any character."""
    form = "".join({"%": ".*", "_": "."}.get(character) or re.escape(character) for character in pattern)
    wanted = f"(?s)\\A{form}\\z"

    def match(texts: pa.Array) -> pa.Array:
        return pc.match_substring_regex(texts, pattern=wanted)

    return build("boolean", match, cast(tested, "string"))
