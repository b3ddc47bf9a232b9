"""Answers about the past: series, decisions, and marks."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from console.api.answer.schema import ApiAnswer, Instant, one_of
from console.models import Mark
from workers.models import LedgerEntry


class HistorySeries(ApiAnswer):
    """Columns for a chart, with one time axis."""

    time: list[Instant]
    series: Annotated[dict[str, list[float | None]], Field(description="By name; null: unknown.")]


class ChartDecision(ApiAnswer):
    """A decision that acted, or several that are too close for a chart."""

    at: Instant
    law: str
    verdict: Annotated[
        Annotated[str, one_of(LedgerEntry.Verdict.values)], Field(description="The most severe of them.")
    ]
    count: int
    url: Annotated[str, Field(description="A page that lists them.")]
    title: str


class GuardEvent(ApiAnswer):
    """A time range in which a loop's guard limited, delayed, or held its decisions."""

    at: Instant
    limited_by: str
    count: Annotated[int, Field(description="Decisions.")]
    url: Annotated[str, Field(description="A page that lists them.")]
    title: str


class ChartDecisionList(ApiAnswer):
    decisions: list[ChartDecision]
    guard: Annotated[list[GuardEvent], Field(description="Of one `loop`, and of a day at most; else empty.")]


class DifferenceRow(ApiAnswer):
    """A significant difference between time ranges."""

    dimension: Annotated[
        str, Field(description="type, key, source, producer, node, container, handler, operator …")
    ]
    value: str
    measure: Annotated[
        str, Field(description='"share" of the events (0 to 1), or the subject of a mean, with its unit.')
    ]
    here: float
    there: float
    effect: Annotated[
        float, Field(description="Cohen's h of a share, the logarithm of the ratio of a measure.")
    ]
    probability: Annotated[
        float, Field(description="Probability of such a difference by chance, before the correction.")
    ]


_Stretch = TypedDict("_Stretch", {"from": float, "to": float})  # "from" is a Python keyword


class DifferenceList(_Stretch):
    """A time range compared with another. Unix times."""

    other_from: float
    other_to: float
    compared: Annotated[int, Field(description="Number of values tested.")]
    differences: Annotated[list[DifferenceRow], Field(description="The largest effect first.")]


class MarkRow(ApiAnswer):
    """A deploy or a note."""

    id: int
    kind: Annotated[str, one_of(Mark.Kind.values)]
    title: str
    text: str
    at: datetime
    until: Annotated[datetime | None, Field(description="null: an instant.")]
    author: str
    source: Annotated[str, Field(description="Of an outside change: the system that reports it; else empty.")]
    event: Annotated[str, Field(description="Of an outside change: its id there; else empty.")]
    parts: Annotated[
        list[str], Field(description="Its subjects, such as queue/alert; none: the whole plant.")
    ]
    url: str


class IgnoredEvent(ApiAnswer):
    """An event that is valid and reports no change."""

    ignored: Annotated[str, Field(description="Why: nothing was stored.")]


class MarkList(ApiAnswer):
    marks: list[MarkRow]
    next: Annotated[
        int | None, Field(description="The value of `before` for older ones; null: there are none.")
    ]


class SharedLinkRow(ApiAnswer):
    """A link to the plant as it was at `at`, for people without a login."""

    id: int
    at: datetime
    reason: str
    author: str
    created_at: datetime
    expires_at: datetime
    url: Annotated[str, Field(description="The link: everybody who has it sees the plant at that instant.")]


class SharedLinkList(ApiAnswer):
    links: list[SharedLinkRow]
