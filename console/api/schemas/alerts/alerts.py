"""An open alert, and all details of an alert."""

from datetime import datetime
from typing import Annotated, NotRequired, get_args

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, Labels, one_of
from console.api.schemas.alerts.reported import ReportedRow
from workers.alerts.delivery.notification import NoticeState
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule

Severity = Annotated[str, one_of(AlertRule.Severity.values)]
State = Annotated[str, one_of(Alert.State.values)]


class OpenAlert(ApiAnswer):
    """An alert in the snapshot."""

    id: int
    rule: str
    condition: Annotated[str, Field(description="The condition of its rule; empty: the rule is gone.")]
    title: str
    severity: Severity
    state: State
    labels: Labels
    sentence: Annotated[str, Field(description="The problem, with its figures.")]
    since: Instant | None
    under: Annotated[int | None, Field(description="The alert that explains it.")]
    explanation: NotRequired[
        Annotated[str, Field(description="The pause or drain that explains it, in words.")]
    ]
    quiet: Annotated[
        Annotated[str, one_of(("explained", "paused", "silenced", "acknowledged", "snoozed"))] | None,
        Field(description="Why it notifies nobody; null: it notifies somebody."),
    ]
    quiet_until: Instant | None
    acknowledged_by: str | None
    value: Annotated[float | None, Field(description="The current value, in the unit of its condition.")]
    round: Annotated[int, Field(description="Number of escalations started.")]
    step: Annotated[int, Field(description="The next step of its escalation.")]
    announce: Annotated[str | None, Field(description="The text of a browser notification.")]


class AlertRow(OpenAlert):
    """An alert with its history."""

    impact: str
    worst: Annotated[float | None, Field(description="In the unit of its condition.")]
    worst_sentence: Annotated[str, Field(description="Its sentence when it was at its worst.")]
    worst_impact: Annotated[str, Field(description="Its impact when it was at its worst.")]
    threshold: float
    came_back: Annotated[int, Field(description="How often it fired again soon after its end.")]
    resolved_at: Instant | None


class AlertList(ApiAnswer):
    alerts: list[AlertRow]


class AlertHappening(ApiAnswer):
    """An event of an alert, or a note."""

    at: Instant
    kind: Annotated[str, one_of(AlertEvent.Kind.values)]
    by: str | None
    text: str


class LoopsTried(ApiAnswer):
    """Actions of control loops on the alert's subject."""

    entries: Annotated[
        list[int], Field(description="The latest actions in the ledger, those since its onset first.")
    ]
    advice: Annotated[
        list[int], Field(description="Entries of proposed actions of loops in mode advise or hold.")
    ]
    plans: list[int]
    actions: Annotated[int, Field(description="Since its onset.")]
    effective: Annotated[int, Field(description="Number of actions that helped.")]
    words: str


class NoticeRow(ApiAnswer):
    """The state of one receiver's notification about an alert."""

    receiver: str
    channel: Annotated[str, Field(description="Empty: the receiver does not exist any more.")]
    state: Annotated[str, one_of(get_args(NoticeState))]
    words: str
    at: Annotated[datetime | None, Field(description="When it was or will be notified.")]


class NotificationDetail(ApiAnswer):
    """The notifications of an alert, and why there are none."""

    nobody: bool
    reasons: Annotated[
        list[str], Field(description=("Why there were no notifications; empty if there were some."))
    ]
    receivers: list[NoticeRow]


class AlertDetail(AlertRow):
    """One alert: its history, notifications, actions tried, and external reports of the same time."""

    situation: str
    notification: NotificationDetail
    tried: LoopsTried
    events: list[AlertHappening]
    reported: Annotated[list[ReportedRow], Field(description="The most likely to be related first.")]
