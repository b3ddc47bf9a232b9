"""Answers about the past: series, decisions, and marks."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from console.api.answer.schema import ApiAnswer, Instant, build_enum_field
from console.models import Mark
from workers.models import LedgerEntry


class HistorySeries(ApiAnswer):
    """Columns for a chart, with one time axis."""

    time: list[Instant]
    series: Annotated[dict[str, list[float | None]], Field(description="Keyed by name; null: unknown.")]


class ChartDecision(ApiAnswer):
    """A decision that acted, or several that are too close for a chart."""

    at: Instant
    law: str
    verdict: Annotated[
        Annotated[str, build_enum_field(LedgerEntry.Verdict.values)], Field(description="The most severe verdict.")
    ]
    count: int
    url: Annotated[str, Field(description="URL of a page that lists the decisions.")]
    title: str


class GuardEvent(ApiAnswer):
    """A time range in which a loop's guard limited, delayed, or held its decisions."""

    at: Instant
    limited_by: str
    count: Annotated[int, Field(description="Number of decisions.")]
    url: Annotated[str, Field(description="URL of a page that lists the decisions.")]
    title: str


class ChartDecisionList(ApiAnswer):
    decisions: list[ChartDecision]
    guard: Annotated[list[GuardEvent], Field(description="Only for one `loop` and at most one day; otherwise empty.")]


class DifferenceRow(ApiAnswer):
    """A significant difference between time ranges."""

    dimension: Annotated[
        str, Field(description="Such as type, key, source, producer, node, container, handler, or operator.")
    ]
    value: str
    measure: Annotated[
        str, Field(description='"share" of the events (0 to 1), or the subject of a mean, with its unit.')
    ]
    here: float
    there: float
    effect: Annotated[float, Field(description="Cohen's h for a share; logarithm of the ratio for a mean.")]
    probability: Annotated[float, Field(description="p-value before the correction for multiple comparisons.")]


_Stretch = TypedDict("_Stretch", {"from": float, "to": float})  # "from" is a Python keyword


class DifferenceList(_Stretch):
    """A time range compared with another. Unix times."""

    other_from: float
    other_to: float
    compared: Annotated[int, Field(description="Number of values tested.")]
    differences: Annotated[list[DifferenceRow], Field(description="Largest effect first.")]


class MarkRow(ApiAnswer):
    """A deploy or a note."""

    id: int
    kind: Annotated[str, build_enum_field(Mark.Kind.values)]
    title: str
    text: str
    at: datetime
    until: Annotated[datetime | None, Field(description="End of the mark; null: the mark has no duration.")]
    author: str
    source: Annotated[str, Field(description="System that reported an external change; otherwise empty.")]
    event: Annotated[str, Field(description="ID of an external change in that system; otherwise empty.")]
    parts: Annotated[list[str], Field(description="Affected subjects, such as queue/alert; empty: the whole plant.")]
    url: str


class IgnoredEvent(ApiAnswer):
    """An event that is valid and reports no change."""

    ignored: Annotated[str, Field(description="Why the event was ignored and not stored.")]


class MarkList(ApiAnswer):
    marks: list[MarkRow]
    next: Annotated[int | None, Field(description="The value of `before` for the next page; null: last page.")]


class SharedLinkRow(ApiAnswer):
    """A link to the plant as it was at `at`, for people without a login."""

    id: int
    at: datetime
    reason: str
    author: str
    created_at: datetime
    expires_at: datetime
    url: Annotated[str, Field(description="The link. Anyone with the link can see the plant at that instant.")]


class SharedLinkList(ApiAnswer):
    links: list[SharedLinkRow]
