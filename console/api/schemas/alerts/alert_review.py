"""The review of a time range."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from console.api.answer.schema import ApiAnswer, Labels, Seconds
from console.api.schemas.alerts.alerts import Severity


class ReviewedAlert(ApiAnswer):
    """An alert in the reviewed time range."""

    id: int
    rule: str
    title: str
    severity: Severity
    labels: Labels
    fired_at: datetime
    resolved_at: datetime | None
    seconds: Annotated[Seconds, Field(description="Duration within the time range.")]
    worst: float | None
    threshold: float
    came_back: int
    acknowledged_after_seconds: Seconds | None
    acknowledged_by: str
    told: Annotated[int, Field(description="Number of notifications sent.")]
    under: Annotated[int | None, Field(description="ID of the alert that explains this alert.")]
    actions: int
    effective: int


class ReviewSummary(ApiAnswer):
    """The time range in figures, and in a sentence."""

    incidents: Annotated[int, Field(description="Number of alerts that no other alert explains.")]
    open_seconds: Annotated[Seconds, Field(description="Time with at least one open incident, s.")]
    alerts: int
    critical: Annotated[int, Field(description="Number of critical incidents.")]
    open: Annotated[int, Field(description="Number of incidents that were open at the end.")]
    explained: int
    flapped: int
    told: Annotated[int, Field(description="Number of notifications sent.")]
    failed: Annotated[int, Field(description="Number of notifications that did not arrive.")]
    acknowledged_seconds: Annotated[Seconds | None, Field(description="The median time to acknowledge, s.")]
    actions: Annotated[int, Field(description=("Number of loop actions while an incident was open."))]
    effective: Annotated[int, Field(description="Number of effective actions.")]
    unjudged: Annotated[int, Field(description="Number of actions without a verdict.")]
    sentence: str


_Span = TypedDict("_Span", {"from": datetime, "to": datetime})  # "from" is a Python keyword


class AlertReview(_Span):
    summary: ReviewSummary
    alerts: list[ReviewedAlert]
