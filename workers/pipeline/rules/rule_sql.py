"""Declared rules executed by Spark: columns built from checked trees, never from a declaration's SQL.

Columns are made node by node from the tree that `rule_language` has checked. Functions are looked up by the names of a
fixed list; texts, numbers, and criteria become literals and columns. No text of a declaration is parsed here.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import add, and_, eq, ge, gt, le, lt, mod, mul, ne, or_, sub, truediv
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as sql
from sqlglot import exp

from common.errors import BadInput
from workers.pipeline.events.layout import Layout, get_criterion_column
from workers.pipeline.rules.reference import Reference, Row, parse_subnet
from workers.pipeline.rules.rule_functions import SUBNET, get_literal_number
from workers.pipeline.rules.rule_language import TYPES, WrittenRule, list_chain, parse_expression
from workers.pipeline.rules.rules import (
    BUCKETS,
    REMOVING,
    Cleanse,
    Enrich,
    Filter,
    Project,
    Rule,
    Sample,
    check_columns,
    describe_missing_column,
)

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
            kind, inner = _TYPES[TYPES[node.args["to"].this]], _convert_node(node.this)
            return inner.try_cast(kind) if node.args.get("safe") else inner.cast(kind)
        case exp.Case():
            return _convert_case(node)
        case exp.Bracket():
            return _convert_node(node.this).getItem(get_literal_number(node.expressions[0]))
        case exp.Anonymous():
            if node.this.lower() == SUBNET:
                return _match_subnet(_convert_node(node.expressions[0]), node.expressions[1].this)
            return sql.call_function(node.this.lower(), *map(_convert_node, node.expressions))
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


def _convert_case(node: exp.Case) -> Column:
    subject = None if node.this is None else _convert_node(node.this)
    result: Any = sql
    for branch in node.args["ifs"]:
        condition = _convert_node(branch.this)
        result = result.when(condition if subject is None else subject == condition, _convert_node(branch.args["true"]))
    default = node.args.get("default")
    whole: Column = result if default is None else result.otherwise(_convert_node(default))
    return whole


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


_PARTS = [f"_part{place}" for place in range(4)]


@dataclass
class RuleOutput:
    """Events after the rules.

    counted: the rules after which events are counted: each one that removes some, except the last (its events are
    counted where they arrive).
    """

    events: DataFrame
    counted: tuple[str, ...]

    def count_passed(self, ran: DataFrame) -> dict[str, int]:
        """Return the events that passed each counted rule when `ran`, which was made of them, was last executed."""
        if not self.counted:
            return {}
        # PySpark's own Observation can be read for one run only, but a plan runs for every batch.
        observed = ran._jdf.queryExecution().observedMetrics()
        return {name: observed.apply(name).getLong(0) for name in self.counted}


def apply_rules(
    events: DataFrame, rules: tuple[Rule, ...], criteria: Collection[str], observe: bool = True
) -> RuleOutput:
    """Apply the rules in order, lazily. observe: count what passes each filter, for `rule_counts`."""
    filters = [rule for rule in rules if isinstance(rule, REMOVING)]
    counted: list[str] = []
    for rule in rules:
        events = apply_rule(events, rule, criteria)
        if observe and isinstance(rule, REMOVING) and rule is not filters[-1]:
            counted.append(rule.name)
            events = events.observe(rule.name, sql.count(sql.lit(1)).alias("out"))
    return RuleOutput(events, tuple(counted))


def build_rule_counts(
    rules: tuple[Rule, ...], passed: Mapping[str, int], arrived: int, kept: int
) -> list[dict[str, Any]]:
    """Return the events in and out of each rule. passed: events that passed the counted rules."""
    result, before = [], arrived
    filters = [rule.name for rule in rules if isinstance(rule, REMOVING)]
    for rule in rules:
        after = before
        if rule.name in passed:
            after = passed[rule.name]
        elif filters and rule.name == filters[-1]:
            after = kept
        result.append({"name": rule.name, "in": before, "out": after})
        before = after
    return result


def apply_rule(events: DataFrame, rule: Rule, criteria: Collection[str]) -> DataFrame:
    """Apply one rule.

    Raises Spark's `AnalysisException` if types do not fit, and `BadInput` if an expression is not in the language or
    names an undeclared criterion.
    """
    match rule:
        case Filter():
            held = _build_column(rule.condition, rule.name, criteria)
            return events.where(~sql.coalesce(held, sql.lit(False)) if rule.discard else held)
        case Project():
            return events.withColumns(_build_columns(rule.compute, rule.name, criteria)).drop(*rule.drop)
        case Sample():
            bucket = sql.pmod(sql.xxhash64("id"), sql.lit(BUCKETS))
            return events.where(bucket < round(rule.share * BUCKETS))
        case Cleanse():
            clean = _build_columns(rule.columns, rule.name, criteria)
            return events.withColumns(clean).dropna(subset=list(rule.columns))
        case Enrich(table=table) if table.current.networks:
            return _join_by_subnet(events, rule.using, table.current)
        case Enrich(table=table):
            key = sql.col(rule.using)
            joined = _join_table(events, key, table.current.equal, "_row", table.columns)
            return joined.withColumns({column: sql.col("_row").getField(column) for column in table.columns}).drop(
                "_row"
            )
    raise TypeError(f"{rule!r} is not a rule")


def _build_columns(texts: Mapping[str, str], name: str, criteria: Collection[str]) -> dict[str, Column]:
    return {column: _build_column(text, name, criteria) for column, text in texts.items()}


def _build_column(text: str, name: str, criteria: Collection[str]) -> Column:
    expression = parse_expression(text, name)
    for criterion in sorted(expression.criteria - set(criteria)):
        known = ", ".join(sorted(criteria)) or "none"
        raise BadInput(name, f":{criterion} is not a declared criterion; the criteria are {known}")
    return convert_expression(expression)


def _join_by_subnet(events: DataFrame, using: str, reference: Reference) -> DataFrame:
    """Search each prefix length, the longest first. The first length that finds a row counts."""
    with_addresses = add_address_columns(events, using)
    names, candidates = [], []
    for length, rows in reference.networks.items():
        if length == 0:
            candidates.append(_match_any_address(rows[0], reference.columns))
            continue
        names.append(f"_row{length}")
        candidates.append(sql.col(names[-1]))
        bits = sql.shiftright("_address", 32 - length)
        with_addresses = _join_table(with_addresses, bits, rows, names[-1], reference.columns)
    row = sql.coalesce(*candidates)
    columns = {name: row.getField(name) for name in reference.columns}
    return with_addresses.withColumns(columns).drop("_address", *names)


def add_address_columns(events: DataFrame, using: str) -> DataFrame:
    """Add `_address`, an address as a number. Each part is a column of its own, so that it is computed once."""
    parts = events.withColumn("_parts", sql.split(sql.col(f"`{using}`"), DOT))
    read = {part: sql.col("_parts").getItem(place).cast("bigint") for place, part in enumerate(_PARTS)}
    numbers = parts.withColumns({**read, "_four": sql.size("_parts") == 4})
    return numbers.withColumn("_address", _build_address_number()).drop("_parts", "_four", *_PARTS)


def _build_address_number() -> Column:
    """Return the number of an address in parts; null if it is not an address."""
    parts = [sql.col(part) for part in _PARTS]
    # A number from 0 to 255 has no other bits; null if a part is none.
    bits = reduce(Column.bitwiseOR, parts)
    powers = [part * cast_to_long(256**power) for part, power in zip(parts, (3, 2, 1, 0), strict=True)]
    return sql.when(sql.col("_four") & bits.between(0, 255), reduce(add, powers))


def _match_any_address(row: Row, columns: tuple[str, ...]) -> Column:
    """Return the row of 0.0.0.0/0, as a join would: for any valid address."""
    values = [sql.lit(value).alias(name) for value, name in zip(row, columns, strict=True)]
    return sql.when(sql.col("_address").isNotNull(), sql.struct(*values))


def _join_table(
    events: DataFrame, key: Column, rows: Mapping[Any, Row], name: str, columns: tuple[str, ...]
) -> DataFrame:
    """Join the row of a small table whose key is `key`, as struct `name` (null if there is none)."""
    table = _build_table(events, [(key, *row) for key, row in rows.items()], ("_key", *columns))
    packed = table.select("_key", sql.struct(*columns).alias(name))
    return events.join(sql.broadcast(packed), key == packed["_key"], "left").drop("_key")


def _build_table(events: DataFrame, rows: list[tuple[Any, ...]], columns: tuple[str, ...]) -> DataFrame:
    """Return a small constant table: it is part of the plan, so that a batch needs no job to make it."""
    places = f"({', '.join('?' * len(columns))})"
    names = [f"c{place}" for place in range(len(columns))]
    values = [value for row in rows for value in row]
    # No name or value of a declaration or a table is part of this text.
    table = events.sparkSession.sql(
        f"SELECT * FROM VALUES {', '.join([places] * len(rows))} AS reference({', '.join(names)})", args=values
    )
    return table.select(*[sql.col(name).alias(own) for name, own in zip(names, columns, strict=True)])


def create_empty_events(spark: SparkSession, layout: Layout) -> DataFrame:
    """Return an empty event table with a layout, sufficient for Spark to analyze rules."""
    return spark.createDataFrame([], layout.sql)


def check_rules(
    events: DataFrame, rules: tuple[Rule, ...], needed: frozenset[str], criteria: Collection[str]
) -> dict[str, str]:
    """Let Spark analyze every rule (nothing is read), and return the SQL type of each resulting column.

    Raises `BadInput` that names the rule, or the column that a pattern needs and that is missing or has another type
    than events have.
    """
    for place, rule in enumerate(rules):
        where = f"rules[{place}]"
        if isinstance(rule, Enrich) and rule.using not in events.columns:
            raise BadInput(f"{where}.enrich.using", describe_missing_column(rule.using, events.columns))
        try:
            events = apply_rule(events, rule, criteria)
        except BadInput as error:
            raise type(error)(where, f"({rule.name}) {error.message}") from None
        except AnalysisException as error:
            why = next((line for line in str(error).splitlines() if line.strip()), "no reason given").strip()
            raise BadInput(where, f"({rule.name}) is not valid for the events: {why}") from None
    kinds = dict(events.dtypes)
    check_columns(kinds, needed)
    return kinds
