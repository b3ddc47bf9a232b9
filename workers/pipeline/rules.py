"""The intra-event stage: declared rules as Spark SQL. A rule looks at one event at a time (Xu et al., section
2).

Kinds: *discard* and *keep* (a condition), *project* (compute columns, drop columns), *enrich* (a broadcast
join with a reference table). Expressions are Spark SQL over the columns of `workers.pipeline.source.COLUMNS`
and what rules before have added. `in_subnet(address, '92.126.10.0/24')` may be used in them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sql

from queues.errors import BadInput
from workers.pipeline.reference import Reference, subnet_of

_SUBNET = re.compile(r"\bin_subnet\(\s*(?P<address>[A-Za-z_]\w*)\s*,\s*'(?P<subnet>[^']*)'\s*\)")
_NEEDED = ("id", "time", "type", "source", "value")


@dataclass(frozen=True)
class Filter:
    """Keeps the events whose `condition` is true; `discard` keeps all others (also where it is unknown)."""

    name: str
    condition: str
    discard: bool = False


@dataclass(frozen=True)
class Project:
    """Computes columns and drops columns."""

    name: str
    compute: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Enrich:
    """Adds the reference's columns of the row found by `using` (a column of the event); null where none is
    found.
    """

    name: str
    using: str
    reference: Reference


Rule = Filter | Project | Enrich


@dataclass
class Ruled:
    """Events after the rules, and the counts behind each filter but the last (it is counted where the events
    arrive).
    """

    events: DataFrame
    counts: dict[str, Observation]


def apply_rules(events: DataFrame, rules: tuple[Rule, ...], observe: bool = True) -> Ruled:
    """The rules in order, lazily. `observe`: count what passes each filter, for `rule_counts`."""
    filters = [rule for rule in rules if isinstance(rule, Filter)]
    counts: dict[str, Observation] = {}
    for rule in rules:
        events = apply_rule(events, rule)
        if observe and isinstance(rule, Filter) and rule is not filters[-1]:
            counts[rule.name] = Observation()
            events = events.observe(counts[rule.name], sql.count(sql.lit(1)).alias("out"))
    return Ruled(events, counts)


def rule_counts(rules: tuple[Rule, ...], ruled: Ruled, arrived: int, kept: int) -> list[dict]:
    """Per rule how many events went in and came out, after the batch has run."""
    result, before = [], arrived
    filters = [rule.name for rule in rules if isinstance(rule, Filter)]
    for rule in rules:
        after = before
        if rule.name in ruled.counts:
            after = ruled.counts[rule.name].get["out"]
        elif filters and rule.name == filters[-1]:
            after = kept
        result.append({"name": rule.name, "in": before, "out": after})
        before = after
    return result


def apply_rule(events: DataFrame, rule: Rule) -> DataFrame:
    """One rule. Raises Spark's AnalysisException or ParseException where an expression is wrong."""
    match rule:
        case Filter():
            held = sql.expr(expanded(rule.condition, rule.name))
            return events.where(~sql.coalesce(held, sql.lit(False)) if rule.discard else held)
        case Project():
            columns = {name: sql.expr(expanded(text, rule.name)) for name, text in rule.compute.items()}
            return events.withColumns(columns).drop(*rule.drop)
        case Enrich(reference=reference) if reference.ranges:
            return _by_subnet(events, rule.using, reference)
        case Enrich(reference=reference):
            rows = [(key, *row) for key, row in reference.equal.items()]
            table = _table(events, rows, ("_key", *reference.columns))
            joined = events.join(sql.broadcast(table), events[rule.using] == table["_key"], "left")
            return joined.drop("_key")
    raise TypeError(f"{rule!r} is not a rule")


def _by_subnet(events: DataFrame, on: str, reference: Reference) -> DataFrame:
    rows = [(low, high, *row) for low, high, row in reference.ranges]
    columns = ("_low", "_high", *reference.columns)
    table = _table(events, rows, columns)
    numbered = events.withColumn("_address", sql.expr(address_number(on)))
    inside = numbered["_address"].between(table["_low"], table["_high"])
    return numbered.join(sql.broadcast(table), inside, "left").drop("_address", "_low", "_high")


def _table(events: DataFrame, rows: list[tuple], columns: tuple[str, ...]) -> DataFrame:
    """A small constant table: part of the plan, so that a batch needs no job to make it."""
    places = f"({', '.join('?' * len(columns))})"
    names = ", ".join(columns)
    values = [value for row in rows for value in row]
    return events.sparkSession.sql(
        f"SELECT * FROM VALUES {', '.join([places] * len(rows))} AS reference({names})", args=values
    )


def address_number(column: str) -> str:
    """SQL of an IPv4 address (text) as a number; outside 0 … 2³² - 1, or null, where it is none.

    The column is named once: Spark writes out what a column stands for wherever it is named, and here that is
    mostly the parsing of JSON. The leading 1 tells four parts from three or five.
    """
    parts = f"transform(split({column}, '[.]'), part -> cast(part as bigint))"
    return f"(aggregate({parts}, 1L, (number, part) -> number * 256L + part) - {256**4}L)"


def expanded(text: str, field_name: str) -> str:
    """An expression with `in_subnet(…)` written out. Raises BadInput for a wrong subnet."""

    def write(found: re.Match) -> str:
        low, prefix_length = subnet_of(found["subnet"], field_name)
        free_bits = 32 - prefix_length
        return f"(shiftright({address_number(found['address'])}, {free_bits}) = {low >> free_bits}L)"

    return _SUBNET.sub(write, text)


def check_rules(events: DataFrame, rules: tuple[Rule, ...], needed: frozenset[str]) -> None:
    """Lets Spark analyse every rule (nothing is read). Raises BadInput naming the rule, or the column a
    pattern needs and nobody makes.
    """
    for place, rule in enumerate(rules):
        where = f"rules[{place}] ({rule.name})"
        if isinstance(rule, Enrich) and rule.using not in events.columns:
            raise BadInput(
                f"{where}.enrich.using", f"{rule.using!r} is not a column; there are {_names(events)}"
            )
        try:
            events = apply_rule(events, rule)
        except (AnalysisException, ParseException) as error:
            raise BadInput(where, f"is not understood by Spark SQL: {_first_line(error)}") from None
    for name in sorted({*_NEEDED, *needed}):
        if name not in events.columns:
            raise BadInput("patterns", f"need column {name!r}; after the rules there are {_names(events)}")


def _names(events: DataFrame) -> str:
    return ", ".join(events.columns)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given").strip()
