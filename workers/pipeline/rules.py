"""The intra-event stage: declared rules as Spark SQL. A rule looks at one event at a time (Xu et al., section
2).

Kinds: *discard* and *keep* (a condition), *project* (compute columns, drop columns), *enrich* (a broadcast
join with a reference table). Expressions are Spark SQL over the columns of `workers.pipeline.containers`,
declared attributes and what rules before have added. `:name` stands for a criterion. `in_subnet(address,
'92.126.10.0/24')` may be used in them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from queues.errors import BadInput
from workers.pipeline.reference import ReferenceTable, subnet_of

_SUBNET = re.compile(r"\bin_subnet\(\s*(?P<address>[A-Za-z_]\w*)\s*,\s*'(?P<subnet>[^']*)'\s*\)")
_CRITERION = re.compile(r"'[^']*'|\"[^\"]*\"|:(?P<name>[a-z][a-z0-9_]*)")  # or a text, which stays as it is
_WORD = re.compile(r"[A-Za-z_]\w*")


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


DOT = r"\\."  # as SQL writes the pattern: Java splits by this one without making a regular expression of it
Rule = Filter | Project | Enrich | Sample | Cleanse
REMOVING = (Filter, Sample, Cleanse)  # rules that let events go


def address_number(column: str) -> str:
    """SQL of an IPv4 address (text) as a number; outside 0 … 2³² - 1, or null, where it is none.

    The column is named once: Spark writes out what a column stands for wherever it is named. The leading 1
    tells four parts from three or five.
    """
    parts = f"transform(split({column}, '{DOT}'), part -> cast(part as bigint))"
    return f"(aggregate({parts}, 1L, (number, part) -> number * 256L + part) - {256**4}L)"


def criterion_column(name: str) -> str:
    """The column that holds a criterion's value of the moment: it may change without a new plan."""
    return f"criterion {name}"


def expanded(text: str, field_name: str, criteria: Collection[str]) -> str:
    """An expression with `in_subnet(…)` written out, and the column of each criterion in place of its
    `:name`. Raises BadInput for a wrong subnet or an unknown criterion.
    """

    def write(found: re.Match) -> str:
        low, prefix_length = subnet_of(found["subnet"], field_name)
        address, free_bits = found["address"], 32 - prefix_length
        # Most addresses differ in the text already, and are not taken apart.
        begins = ".".join(str(low >> shift & 255) for shift in (24, 16, 8, 0)[: prefix_length // 8])
        inside = f"shiftright({address_number(address)}, {free_bits}) = {low >> free_bits}L"
        return f"(startswith({address}, '{begins}') AND {inside})"

    def column(found: re.Match) -> str:
        if found["name"] is None:
            return found[0]
        if found["name"] not in criteria:
            known = ", ".join(sorted(criteria)) or "none"
            raise BadInput(field_name, f":{found['name']} is not a declared criterion; there are {known}")
        return f"`{criterion_column(found['name'])}`"

    return _CRITERION.sub(column, _SUBNET.sub(write, text))


def names_in(rules: tuple[Rule, ...]) -> frozenset[str]:
    """Every word in the rules that may be a column."""
    return frozenset(_WORD.findall(" ".join(_texts(rules))))


def criteria_in(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """The criteria that they name."""
    found = _CRITERION.finditer(" ".join(_texts(rules)))
    return tuple(sorted({each["name"] for each in found if each["name"]}))


def _texts(rules: tuple[Rule, ...]) -> list[str]:
    """Their expressions and columns."""
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
    return texts
