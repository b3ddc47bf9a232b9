"""The intra-event stage: declared rules, executed by Spark.

A rule evaluates one event at a time (Xu et al., section 2).

Kinds: *discard* and *keep* (a condition), *project* (compute columns, drop columns), *enrich* (a broadcast join with a
reference table). Expressions are in the language of `rule_language`, over the columns of
`workers.pipeline.events.containers`, declared attributes, and columns that earlier rules have added. `:name` is the
value of a criterion. `in_subnet(address, '92.126.10.0/24')` may be used in them.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from common import checks
from common.errors import BadInput, Forbidden
from workers.pipeline.rules.reference import ReferenceTable
from workers.pipeline.rules.rule_language import Cost, WrittenRule, compute_cost, parse_expression


@dataclass(frozen=True)
class Filter:
    """A filter that keeps the events whose `condition` is true.

    `discard` keeps all others, including those where the condition is unknown.
    """

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
    """A rule that adds the reference's columns of the row found by `using`.

    `using` is a column of the event. The added columns are null if no row is found.
    """

    name: str
    using: str
    table: ReferenceTable


@dataclass(frozen=True)
class Sample:
    """Keeps a share of the events, selected by id, so that a replay keeps the same events."""

    name: str
    share: float


@dataclass(frozen=True)
class Cleanse:
    """Replaces columns by their clean values and drops events with a null among these values."""

    name: str
    columns: Mapping[str, str]


Rule = Filter | Project | Enrich | Sample | Cleanse
REMOVING = (Filter, Sample, Cleanse)  # rules that remove events


ENGINES = (AUTO, SPARK) = ("auto", "spark")  # engines of rules; auto: Arrow if it supports all rules of the application

BUCKETS = 1_000_000  # of the hashes of events' ids, of which a sample keeps its share

MAX_RULES = 64
MAX_TABLES = 8
MAX_EXPRESSION_CHARACTERS = 20_000  # of all rules together
MAX_PARTS = 10_000  # of all expressions together, each with its columns expanded


def iterate_expressions(rule: Rule) -> Iterator[tuple[str, str, str | None]]:
    """Return each expression as (field within the rule, text, the column it computes)."""
    match rule:
        case Filter():
            yield "discard" if rule.discard else "keep", rule.condition, None
        case Project():
            yield from ((f"project.compute.{name}", text, name) for name, text in rule.compute.items())
        case Cleanse():
            yield from ((f"cleanse.{name}", text, name) for name, text in rule.columns.items())


def check_size(rules: Collection[Rule]) -> None:
    """Raise `Forbidden` that names the field if a limit is exceeded, before any expression is parsed."""
    tables = sum(isinstance(rule, Enrich) for rule in rules)
    if tables > MAX_TABLES:
        raise Forbidden("rules", f"must use at most {MAX_TABLES} tables, not {tables}")
    if len(rules) > MAX_RULES:
        raise Forbidden("rules", f"must have at most {MAX_RULES} rules, not {len(rules)}")
    total = sum(len(text) for rule in rules for _, text, _ in iterate_expressions(rule))
    if total > MAX_EXPRESSION_CHARACTERS:
        raise Forbidden(
            "rules", f"must have at most {MAX_EXPRESSION_CHARACTERS} characters of expressions, not {total}"
        )


def check_expressions(rules: Collection[Rule], columns: Collection[str], criteria: Collection[str]) -> Collection[str]:
    """Return the columns after the rules. columns: those of the arriving events.

    Raises `BadInput` that names the rule and the field.
    """
    check_size(rules)
    costs, parts = dict.fromkeys(columns, Cost()), 0
    for place, rule in enumerate(rules):
        where = f"rules[{place}]"
        if isinstance(rule, Enrich) and rule.using not in costs:
            raise BadInput(f"{where}.enrich.using", describe_missing_column(rule.using, costs))
        made: dict[str, Cost] = {}
        for place_in_rule, text, column in iterate_expressions(rule):
            cost = _check_expression(text, f"{where}.{place_in_rule}", rule.name, costs, criteria)
            parts += cost.parts
            if column is not None:
                made[column] = cost
        if parts > MAX_PARTS:
            raise Forbidden("rules", f"must have at most {MAX_PARTS} parts after their columns are expanded")
        costs |= made | (dict.fromkeys(rule.table.columns, Cost()) if isinstance(rule, Enrich) else {})
        for column in rule.drop if isinstance(rule, Project) else ():
            costs.pop(column, None)
    return list(costs)


def _check_expression(text: str, where: str, name: str, costs: dict[str, Cost], criteria: Collection[str]) -> Cost:
    try:
        expression = parse_expression(text, where)
        for column in sorted(expression.columns - set(costs)):
            raise BadInput(where, describe_missing_column(column, costs))
        for criterion in sorted(expression.criteria - set(criteria)):
            known = ", ".join(sorted(criteria)) or "none"
            hint = checks.suggest(criterion, criteria)
            raise BadInput(where, f":{criterion[:40]} is not a declared criterion{hint}; the criteria are {known}")
        return compute_cost(expression, costs, where)
    except BadInput as error:
        raise type(error)(where, f"({name}) {error.message}") from None


def describe_missing_column(name: str, columns: Collection[str]) -> str:
    """Return that a name is no column, with the one that it resembles."""
    return f"{name[:40]!r} is not a column{checks.suggest(name, columns)}; the columns are {', '.join(columns)}"


_NEEDED = ("id", "time", "type", "source", "value")
_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("id", "type", "source"), ("string",)),
    "time": ("timestamp",),
    "value": ("double", "float", "bigint", "int", "smallint", "tinyint", "decimal"),
}


def check_columns(kinds: Mapping[str, str], needed: Collection[str]) -> None:
    """Raise `BadInput` if a needed column is missing after the rules, or has another type than events have.

    kinds: column → its type in SQL. needed: the columns that patterns read.
    """
    for name in sorted({*_NEEDED, *needed}):
        if name not in kinds:
            raise BadInput("patterns", f"need column {name!r}; after the rules, the columns are {', '.join(kinds)}")
    for name, wanted in _KINDS.items():
        if name in kinds and not kinds[name].startswith(wanted):
            takes = wanted[0] if len(wanted) == 1 else "number"
            raise BadInput("rules", f"must make column {name} a {takes}, not a {kinds[name]}.")


def list_named_columns(rules: Collection[Rule]) -> frozenset[str]:
    named = {rule.using for rule in rules if isinstance(rule, Enrich)}
    named |= {column for rule in rules if isinstance(rule, Cleanse) for column in rule.columns}
    return frozenset(named.union(*(written_column.columns for written_column in _list_written_columns(rules))))


def list_named_criteria(rules: Collection[Rule]) -> tuple[str, ...]:
    return tuple(sorted(set().union(*(written_column.criteria for written_column in _list_written_columns(rules)))))


def _list_written_columns(rules: Collection[Rule]) -> list[WrittenRule]:
    return [parse_expression(text, rule.name) for rule in rules for _, text, _ in iterate_expressions(rule)]
