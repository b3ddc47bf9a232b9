"""The intra-event stage: declared rules as Spark SQL. A rule looks at one event at a time (Xu et al., section
2).

Kinds: *discard* and *keep* (a condition), *project* (compute columns, drop columns), *enrich* (a broadcast
join with a reference table). Expressions are Spark SQL over the columns of `workers.pipeline.source.COLUMNS`
and what rules before have added. `in_subnet(address, '92.126.10.0/24')` may be used in them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql

from queues.errors import BadInput
from workers.pipeline.containers import Layout
from workers.pipeline.reference import Reference, ReferenceTable, Row, subnet_of

_SUBNET = re.compile(r"\bin_subnet\(\s*(?P<address>[A-Za-z_]\w*)\s*,\s*'(?P<subnet>[^']*)'\s*\)")
_CRITERION = re.compile(r"'[^']*'|\"[^\"]*\"|:(?P<name>[a-z][a-z0-9_]*)")  # or a text, which stays as it is
_WORD = re.compile(r"[A-Za-z_]\w*")
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
    table: ReferenceTable


@dataclass(frozen=True)
class Sample:
    """Keeps a share of the events, chosen by their id: the same ones whenever it is asked."""

    name: str
    share: float


@dataclass(frozen=True)
class Cleanse:
    """Replaces columns by their clean values; an event of which one is null goes no further."""

    name: str
    columns: Mapping[str, str]


Rule = Filter | Project | Enrich | Sample | Cleanse
REMOVING = (Filter, Sample, Cleanse)  # rules that let events go
_BUCKETS = 1_000_000
_PARTS = [f"cast(_parts[{place}] as bigint)" for place in range(4)]
_VALID = " AND ".join(["size(_parts) = 4", *(f"{part} BETWEEN 0 AND 255" for part in _PARTS)])
_SUM = " + ".join(f"{part} * {256**power}L" for part, power in zip(_PARTS, (3, 2, 1, 0), strict=True))
_NUMBER = f"CASE WHEN {_VALID} THEN {_SUM} END"  # of an address in parts; null where it is none


@dataclass
class Ruled:
    """Events after the rules, and the counts behind each filter but the last (it is counted where the events
    arrive).
    """

    events: DataFrame
    counts: dict[str, Observation]


def apply_rules(
    events: DataFrame, rules: tuple[Rule, ...], criteria: Mapping[str, float], observe: bool = True
) -> Ruled:
    """The rules in order, lazily. `observe`: count what passes each filter, for `rule_counts`."""
    filters = [rule for rule in rules if isinstance(rule, REMOVING)]
    counts: dict[str, Observation] = {}
    for rule in rules:
        events = apply_rule(events, rule, criteria)
        if observe and isinstance(rule, REMOVING) and rule is not filters[-1]:
            counts[rule.name] = Observation()
            events = events.observe(counts[rule.name], sql.count(sql.lit(1)).alias("out"))
    return Ruled(events, counts)


def rule_counts(rules: tuple[Rule, ...], ruled: Ruled, arrived: int, kept: int) -> list[dict]:
    """Per rule how many events went in and came out, after the batch has run."""
    result, before = [], arrived
    filters = [rule.name for rule in rules if isinstance(rule, REMOVING)]
    for rule in rules:
        after = before
        if rule.name in ruled.counts:
            after = ruled.counts[rule.name].get["out"]
        elif filters and rule.name == filters[-1]:
            after = kept
        result.append({"name": rule.name, "in": before, "out": after})
        before = after
    return result


def apply_rule(events: DataFrame, rule: Rule, criteria: Mapping[str, float]) -> DataFrame:
    """One rule. Raises Spark's AnalysisException or ParseException where an expression is wrong, BadInput
    where it names a criterion that nobody declares.
    """
    match rule:
        case Filter():
            held = sql.expr(expanded(rule.condition, rule.name, criteria))
            return events.where(~sql.coalesce(held, sql.lit(False)) if rule.discard else held)
        case Project():
            columns = {
                name: sql.expr(expanded(text, rule.name, criteria)) for name, text in rule.compute.items()
            }
            return events.withColumns(columns).drop(*rule.drop)
        case Sample():
            bucket = sql.pmod(sql.xxhash64("id"), sql.lit(_BUCKETS))
            return events.where(bucket < round(rule.share * _BUCKETS))
        case Cleanse():
            clean = {
                name: sql.expr(expanded(text, rule.name, criteria)) for name, text in rule.columns.items()
            }
            return events.withColumns(clean).dropna(subset=list(rule.columns))
        case Enrich(table=table) if table.current.networks:
            return _by_subnet(events, rule.using, table.current)
        case Enrich(table=table):
            return _looked_up(events, sql.col(rule.using), table.current.equal, "_row", table.columns)
    raise TypeError(f"{rule!r} is not a rule")


def _by_subnet(events: DataFrame, using: str, reference: Reference) -> DataFrame:
    """A look-up for each prefix length; the first that finds a row counts, the longest prefix being first."""
    parts = events.withColumn("_parts", sql.split(using, "[.]"))
    numbered = parts.withColumn("_address", sql.expr(_NUMBER))
    found = numbered.drop("_parts")
    names = []
    for length, rows in reference.networks.items():
        names.append(f"_row{length}")
        bits = sql.shiftright("_address", 32 - length)
        found = _joined(found, bits, rows, names[-1], reference.columns)
    row = sql.coalesce(*names)
    columns = {name: row.getField(name) for name in reference.columns}
    return found.withColumns(columns).drop("_address", *names)


def _looked_up(
    events: DataFrame, key: Column, rows: Mapping[Any, Row], name: str, columns: tuple[str, ...]
) -> DataFrame:
    found = _joined(events, key, rows, name, columns)
    return found.withColumns({column: sql.col(name).getField(column) for column in columns}).drop(name)


def _joined(
    events: DataFrame, key: Column, rows: Mapping[Any, Row], name: str, columns: tuple[str, ...]
) -> DataFrame:
    """With the row of a small table whose key is `key`, as struct `name` (null where there is none)."""
    table = _table(events, [(each, *row) for each, row in rows.items()], ("_key", *columns))
    packed = table.select("_key", sql.struct(*columns).alias(name))
    return events.join(sql.broadcast(packed), key == packed["_key"], "left").drop("_key")


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

    The column is named once: Spark writes out what a column stands for wherever it is named. The leading 1
    tells four parts from three or five.
    """
    parts = f"transform(split({column}, '[.]'), part -> cast(part as bigint))"
    return f"(aggregate({parts}, 1L, (number, part) -> number * 256L + part) - {256**4}L)"


def expanded(text: str, field_name: str, criteria: Mapping[str, float]) -> str:
    """An expression with `in_subnet(…)` written out, and the value of each criterion in place of its `:name`.
    Raises BadInput for a wrong subnet or an unknown criterion.
    """

    def write(found: re.Match) -> str:
        low, prefix_length = subnet_of(found["subnet"], field_name)
        address, free_bits = found["address"], 32 - prefix_length
        # Most addresses differ in the text already, and are not taken apart.
        begins = ".".join(str(low >> shift & 255) for shift in (24, 16, 8, 0)[: prefix_length // 8])
        inside = f"shiftright({address_number(address)}, {free_bits}) = {low >> free_bits}L"
        return f"(startswith({address}, '{begins}') AND {inside})"

    def value(found: re.Match) -> str:
        if found["name"] is None:
            return found[0]
        if found["name"] not in criteria:
            known = ", ".join(sorted(criteria)) or "none"
            raise BadInput(field_name, f":{found['name']} is not a declared criterion; there are {known}")
        return repr(float(criteria[found["name"]]))

    return _CRITERION.sub(value, _SUBNET.sub(write, text))


def names_in(rules: tuple[Rule, ...]) -> frozenset[str]:
    """Every word in the rules that may be a column."""
    texts: list[str] = []
    for rule in rules:
        match rule:
            case Filter():
                texts.append(rule.condition)
            case Project():
                texts += rule.compute.values()
            case Enrich():
                texts.append(rule.using)
            case Cleanse():
                texts += [*rule.columns, *rule.columns.values()]
    return frozenset(_WORD.findall(" ".join(texts)))


def empty_events(spark: SparkSession, layout: Layout) -> DataFrame:
    """No events under a layout: enough for Spark to analyse rules."""
    return spark.createDataFrame([], layout.sql)


def check_rules(
    events: DataFrame, rules: tuple[Rule, ...], needed: frozenset[str], criteria: Mapping[str, float]
) -> None:
    """Lets Spark analyse every rule (nothing is read). Raises BadInput naming the rule, or the column a
    pattern needs and nobody makes.
    """
    for place, rule in enumerate(rules):
        where = f"rules[{place}]"
        if isinstance(rule, Enrich) and rule.using not in events.columns:
            raise BadInput(
                f"{where}.enrich.using", f"{rule.using!r} is not a column; there are {_names(events)}"
            )
        try:
            events = apply_rule(events, rule, criteria)
        except BadInput as error:
            raise BadInput(where, f"({rule.name}) {error.message}") from None
        except (AnalysisException, ParseException) as error:
            raise BadInput(
                where, f"({rule.name}) is not understood by Spark SQL: {_first_line(error)}"
            ) from None
    for name in sorted({*_NEEDED, *needed}):
        if name not in events.columns:
            raise BadInput("patterns", f"need column {name!r}; after the rules there are {_names(events)}")


def _names(events: DataFrame) -> str:
    return ", ".join(events.columns)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given").strip()
