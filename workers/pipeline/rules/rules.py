"""The intra-event stage: declared rules, executed by Spark.

A rule evaluates one event at a time (Xu et al., section 2).

Kinds: *discard* and *keep* (a condition), *project* (compute columns, drop columns), *enrich* (a broadcast join with a
reference table). Expressions are in the language of `rule_language`, over the columns of
`workers.pipeline.events.containers`, declared attributes, and columns that earlier rules have added. `:name` is the
value of a criterion. `in_subnet(address, '92.126.10.0/24')` may be used in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.pipeline.rules.reference import ReferenceTable


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
