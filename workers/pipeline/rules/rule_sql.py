"""Declared rules executed by Spark: columns built from checked trees, never from a declaration's SQL."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from common.errors import BadInput
from workers.pipeline.events.layout import Layout
from workers.pipeline.rules.reference import Reference, Row
from workers.pipeline.rules.rule_columns import DOT, cast_to_long, convert_expression
from workers.pipeline.rules.rule_language import parse_expression
from workers.pipeline.rules.rules import REMOVING, Cleanse, Enrich, Filter, Project, Rule, Sample

_NEEDED = ("id", "time", "type", "source", "value")
_BUCKETS = 1_000_000
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
        """Return the events that passed each counted rule when `ran` was last executed.

        `ran` was made of these events.
        """
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
            bucket = sql.pmod(sql.xxhash64("id"), sql.lit(_BUCKETS))
            return events.where(bucket < round(rule.share * _BUCKETS))
        case Cleanse():
            clean = _build_columns(rule.columns, rule.name, criteria)
            return events.withColumns(clean).dropna(subset=list(rule.columns))
        case Enrich(table=table) if table.current.networks:
            return _join_by_subnet(events, rule.using, table.current)
        case Enrich(table=table):
            return _enrich_events(events, sql.col(rule.using), table.current.equal, "_row", table.columns)
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
    """Search each prefix length, the longest first.

    The first length that finds a row counts.
    """
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
    """Add `_address`, an address as a number.

    Each part is a column of its own, so that it is computed once.
    """
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


def _enrich_events(
    events: DataFrame, key: Column, rows: Mapping[Any, Row], name: str, columns: tuple[str, ...]
) -> DataFrame:
    joined = _join_table(events, key, rows, name, columns)
    return joined.withColumns({column: sql.col(name).getField(column) for column in columns}).drop(name)


def _join_table(
    events: DataFrame, key: Column, rows: Mapping[Any, Row], name: str, columns: tuple[str, ...]
) -> DataFrame:
    """Join the row of a small table whose key is `key`, as struct `name` (null if there is none)."""
    table = _build_table(events, [(each, *row) for each, row in rows.items()], ("_key", *columns))
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


_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("id", "type", "source"), ("string",)),
    "time": ("timestamp",),
    "value": ("double", "float", "bigint", "int", "smallint", "tinyint", "decimal"),
}


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
            raise BadInput(
                f"{where}.enrich.using", f"{rule.using!r} is not a column; the columns are {_join_column_names(events)}"
            )
        try:
            events = apply_rule(events, rule, criteria)
        except BadInput as error:
            raise type(error)(where, f"({rule.name}) {error.message}") from None
        except AnalysisException as error:
            raise BadInput(where, f"({rule.name}) is not valid for the events: {_first_line(error)}") from None
    for name in sorted({*_NEEDED, *needed}):
        if name not in events.columns:
            raise BadInput(
                "patterns", f"need column {name!r}; after the rules, the columns are {_join_column_names(events)}"
            )
    kinds = dict(events.dtypes)
    for name, wanted in _KINDS.items():
        if name in kinds and not kinds[name].startswith(wanted):
            takes = wanted[0] if len(wanted) == 1 else "number"
            raise BadInput("rules", f"must make column {name} a {takes}, not a {kinds[name]}.")
    return kinds


def _join_column_names(events: DataFrame) -> str:
    return ", ".join(events.columns)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given").strip()
