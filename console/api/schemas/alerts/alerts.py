"""An open alert, and all details of an alert."""

from datetime import datetime
from typing import Annotated, NotRequired, get_args

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, Labels, build_enum_field
from console.api.schemas.alerts.reported import ReportedRow
from workers.alerts.delivery.notification import NoticeState
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule

Severity = Annotated[str, build_enum_field(AlertRule.Severity.values)]
State = Annotated[str, build_enum_field(Alert.State.values)]


class OpenAlert(ApiAnswer):
    """An alert in the snapshot."""

    id: int
    rule: str
    condition: Annotated[str, Field(description="The condition of its rule; empty: the rule was deleted.")]
    title: str
    severity: Severity
    state: State
    labels: Labels
    sentence: Annotated[str, Field(description="A summary of the problem with its current values.")]
    since: Instant | None
    under: Annotated[int | None, Field(description="ID of the alert that explains this alert.")]
    explanation: NotRequired[
        Annotated[str, Field(description="Description of the pause or drain that explains the alert.")]
    ]
    quiet: Annotated[
        Annotated[str, build_enum_field(("explained", "paused", "silenced", "acknowledged", "snoozed"))] | None,
        Field(description="Why notifications are suppressed; null: not suppressed."),
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
    worst: Annotated[float | None, Field(description="Worst value, in the unit of its condition.")]
    worst_sentence: Annotated[str, Field(description="The summary at the worst value.")]
    worst_impact: Annotated[str, Field(description="The impact at the worst value.")]
    threshold: float
    came_back: Annotated[int, Field(description="Number of times the alert fired again soon after it was resolved.")]
    resolved_at: Instant | None


class AlertList(ApiAnswer):
    alerts: list[AlertRow]


class AlertHappening(ApiAnswer):
    """An event of an alert, or a note."""

    at: Instant
    kind: Annotated[str, build_enum_field(AlertEvent.Kind.values)]
    by: str | None
    text: str


class LoopAttempts(ApiAnswer):
    """Actions of control loops on the alert's subject."""

    entries: Annotated[
        list[int], Field(description="Ledger entries of the latest actions; actions since the onset come first.")
    ]
    advice: Annotated[list[int], Field(description="Ledger entries of actions proposed in mode advise or hold.")]
    plans: list[int]
    actions: Annotated[int, Field(description="Number of actions since the onset.")]
    effective: Annotated[int, Field(description="Number of effective actions.")]
    words: str


class NoticeRow(ApiAnswer):
    """The state of one receiver's notification about an alert."""

    receiver: str
    channel: Annotated[str, Field(description="Empty: the receiver was deleted.")]
    state: Annotated[str, build_enum_field(get_args(NoticeState))]
    words: str
    at: Annotated[datetime | None, Field(description="When the receiver was or will be notified.")]


class NotificationDetail(ApiAnswer):
    """The notifications of an alert, and why there are none."""

    nobody: bool
    reasons: Annotated[list[str], Field(description=("Why no receiver was notified; empty: a receiver was notified."))]
    receivers: list[NoticeRow]


class AlertDetail(AlertRow):
    """One alert: its history, notifications, actions tried, and external reports of the same time."""

    situation: str
    notification: NotificationDetail
    tried: LoopAttempts
    events: list[AlertHappening]
    reported: Annotated[list[ReportedRow], Field(description="Most relevant first.")]
