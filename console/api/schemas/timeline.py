"""Answers about the past: series, decisions and marks."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, one_of
from console.models import Mark
from workers.models import LedgerEntry


class HistorySeries(ApiAnswer):
    """Columns for a chart, over one axis of time."""

    time: list[Instant]
    series: dict[str, list[float | None]] = Field(description="By name; null: not known.")


class ChartDecision(ApiAnswer):
    """A decision that acted, or several that are too near to one another."""

    at: Instant
    law: str
    verdict: Annotated[str, one_of(LedgerEntry.Verdict.values)] = Field(
        description="The most severe of them."
    )
    count: int
    url: str = Field(description="A page that lists them.")
    title: str


class GuardEvent(ApiAnswer):
    """A stretch in which a loop's guard limited, delayed or held its decisions."""

    at: Instant
    limited_by: str
    count: int = Field(description="Decisions.")
    url: str = Field(description="A page that lists them.")
    title: str


class ChartDecisionList(ApiAnswer):
    decisions: list[ChartDecision]
    guard: list[GuardEvent] = Field(description="Of one `loop`, and of a day at most; else empty.")


class DifferenceRow(ApiAnswer):
    """What is different in a stretch of time, beyond chance."""

    dimension: str = Field(description="type, key, source, producer, node, container, handler, operator …")
    value: str
    measure: str = Field(description='"share" of the events (0 to 1), or what a mean is of, with its unit.')
    here: float
    there: float
    effect: float = Field(description="Cohen's h of a share, the logarithm of the ratio of a measure.")
    probability: float = Field(description="That chance alone differs so much, before the correction.")


class DifferenceList(ApiAnswer):
    """A stretch against another. Times in seconds since 1970."""

    since: float = Field(alias="from")
    until: float = Field(alias="to")
    other_since: float = Field(alias="other_from")
    other_until: float = Field(alias="other_to")
    compared: int = Field(description="How many values were tested.")
    differences: list[DifferenceRow] = Field(description="The largest effect first.")


class MarkRow(ApiAnswer):
    """A deploy or a note."""

    id: int
    kind: Annotated[str, one_of(Mark.Kind.values)]
    title: str
    text: str
    at: datetime
    until: datetime | None = Field(description="null: an instant.")
    author: str
    source: str = Field(description="Of an outside change: the system that reports it; else empty.")
    event: str = Field(description="Of an outside change: its id there; else empty.")
    parts: list[str] = Field(description="What it is about, such as queue/alert; none: the whole plant.")
    url: str


class MarkList(ApiAnswer):
    marks: list[MarkRow]
    next: int | None = Field(description="Give it as `before` for older ones; null: there are none.")


class SharedLinkRow(ApiAnswer):
    """A link to the plant as it was at `at`, for people without a login."""

    id: int
    at: datetime
    reason: str
    author: str
    created_at: datetime
    expires_at: datetime
    url: str = Field(description="The link: whoever has it sees the plant at that instant.")


class SharedLinkList(ApiAnswer):
    links: list[SharedLinkRow]
