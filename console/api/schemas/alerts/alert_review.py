"""The review of a time."""

from datetime import datetime

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Labels, Seconds
from console.api.schemas.alerts.alerts import Severity


class ReviewedAlert(ApiAnswer):
    """An alert of the time that is reviewed."""

    id: int
    rule: str
    title: str
    severity: Severity
    labels: Labels
    fired_at: datetime
    resolved_at: datetime | None
    seconds: Seconds = Field(description="Open for so long, within the time.")
    worst: float | None
    threshold: float
    came_back: int
    acknowledged_after_seconds: Seconds | None
    acknowledged_by: str
    told: int = Field(description="Notifications sent.")
    under: int | None = Field(description="The alert that explains it.")
    actions: int
    effective: int


class ReviewSummary(ApiAnswer):
    """The time in figures, and in a sentence."""

    incidents: int = Field(description="Alerts that no other explains.")
    open_seconds: Seconds = Field(description="The time in which any incident was open, counted once.")
    alerts: int
    critical: int = Field(description="Critical incidents.")
    open: int = Field(description="Incidents that were open at the end.")
    explained: int
    flapped: int
    told: int = Field(description="Notifications sent.")
    failed: int = Field(description="Notifications that did not arrive.")
    acknowledged_seconds: Seconds | None = Field(description="The median until somebody acknowledged, s.")
    actions: int = Field(description="Of loops, while any incident was open, each counted once.")
    effective: int
    sentence: str


class AlertReview(ApiAnswer):
    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")
    summary: ReviewSummary
    alerts: list[ReviewedAlert]
