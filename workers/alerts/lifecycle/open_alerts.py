"""The open alerts as the snapshot has them, the most severe first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from workers.alerts.lifecycle.inhibition import GRAVITY, ROOT, list_alert_subjects
from workers.alerts.lifecycle.models import Alert, Delivery, FollowUp, Message, Silence
from workers.alerts.lifecycle.routing import Step, find_steps
from workers.documents.alerts import AlertStatus
from workers.steering.kept import exclude_kept
from workers.steering.scope import format_time

MAX_SHOWN = 200
NOBODY_YET = "No receiver has been notified yet."
OPEN = (Alert.State.FIRING, Alert.State.ACKNOWLEDGED)


def open_alerts() -> list[AlertStatus]:
    """Return the open alerts with one query; of more than 200, the most severe, since no page needs more."""
    alerts = Alert.objects.filter(state__in=OPEN).select_related("acknowledged_by", "silence", "expected", "rule")
    rows = [build_alert_status(alert) for alert in alerts]
    return sorted(rows, key=_order)[:MAX_SHOWN]


def list_opening_incidents() -> dict[str, float]:
    """Return when the alert of each subject fires (Unix time) if its condition stays true: {"kind/name": time}."""
    opening: dict[str, float] = {}
    for alert in Alert.objects.filter(state=Alert.State.PENDING, rule__isnull=False).select_related("rule"):
        fires_at = alert.began_at.timestamp() + (alert.rule.for_seconds if alert.rule else 0.0)
        for subject in list_alert_subjects(alert.condition, alert.labels):
            opening[subject] = min(fires_at, opening.get(subject, fires_at))
    return opening


def _order(row: AlertStatus) -> tuple[bool, int, float]:
    return row.quiet is not None, -GRAVITY[row.severity], row.since or 0.0


def build_alert_status(alert: Alert) -> AlertStatus:
    """Return an alert as the snapshot has it."""
    quiet, until = find_suppression(alert)
    has_it = alert.acknowledged_by if alert.state == Alert.State.ACKNOWLEDGED else None
    return AlertStatus(
        id=alert.pk,
        rule=alert.rule_name,
        condition=alert.rule.condition if alert.rule else "",
        title=alert.title,
        severity=alert.severity,
        state=alert.state,
        labels=alert.labels,
        sentence=alert.sentence,
        since=alert.since.timestamp() if alert.since else None,
        recurrence=alert.recurrence,
        under=alert.under_id,
        root=(alert.touches or {}).get(ROOT, ""),
        quiet=quiet,
        explanation=alert.explanation,
        quiet_until=until.timestamp() if until else None,
        acknowledged_by=has_it.get_username() if has_it else None,
        value=alert.value,
        round=alert.round,
        step=alert.next_step,
        announce=(alert.announcement or None) if quiet is None else None,
    )


def find_suppression(alert: Alert) -> tuple[str | None, Any]:
    """Return why an open alert notifies nobody, and until when; (None, None) if it notifies."""
    if alert.under_id is not None:
        return "explained", None
    if alert.explanation:
        return "paused", None
    if alert.silence is not None:
        return "silenced", alert.silence.expires_at
    if alert.expected is not None:
        return "silenced", alert.expected.ends_at
    if alert.state == Alert.State.ACKNOWLEDGED:
        return "acknowledged", alert.acknowledged_until
    if alert.snoozed_until is not None:
        return "snoozed", alert.snoozed_until
    return None, None


@dataclass(frozen=True)
class AlertSituation:
    """The state of an alert, in words that end with the time left until an instant, if there is one."""

    words: str
    until: datetime | None = None

    def format_sentence(self) -> str:
        """Return the same with the instant itself, for readers without a countdown."""
        if self.until is None:
            return self.words
        return f"{self.words.removesuffix(' in')} at {self.until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC."


def describe_situation(alert: Alert) -> AlertSituation:
    """Return the present state."""
    if alert.resolved_at is not None:
        length = alert.length_seconds
        after = "" if length is None else f" after {_format_age(length)}"
        return AlertSituation(f"Resolved at {format_time(alert.resolved_at, timezone.now())}{after}.")
    suppression, until = find_suppression(alert)
    if suppression == "acknowledged":
        who = alert.acknowledged_by.get_username() if alert.acknowledged_by else "an unknown user"
        return AlertSituation(f"Acknowledged by {who}; fires again in", until)
    if suppression == "silenced":
        if alert.silence is not None:
            return AlertSituation(f"Silenced by {alert.silence.owner}; the silence ends in", until)
        assert alert.expected is not None
        return AlertSituation(f"Silenced by the planned window {alert.expected.window.name}, which ends in", until)
    if suppression == "snoozed":
        who = alert.snoozed_by.get_username() if alert.snoozed_by else "an unknown user"
        return AlertSituation(f"Snoozed by {who}; notifies again in", until)
    if suppression == "explained":
        return AlertSituation("Suppressed: explained by another alert.")
    if suppression == "paused":
        return AlertSituation(f"Suppressed: {alert.explanation}")
    steps = find_steps(alert)
    if not steps:
        return AlertSituation("Not acknowledged. The alert notifies nobody.")
    if alert.next_step >= len(steps):
        notified = _list_notified(alert)
        steps_over = "; all escalation steps are done" if notified != NOBODY_YET else ""
        return AlertSituation(f"Not acknowledged{steps_over}. {notified}")
    names = " and ".join(steps[alert.next_step]["receivers"])
    due = compute_next_step_time(alert, steps)
    if due is None:
        return AlertSituation(f"Not acknowledged; {names} will be notified.")
    verb = "escalates to" if alert.next_step else "notifies"
    return AlertSituation(f"Not acknowledged; {verb} {names} in", due)


def compute_next_step_time(alert: Alert, steps: Sequence[Step]) -> datetime | None:
    """Return when the next of its steps is due; None if there is none, or it is not counting."""
    if alert.told_from is None or alert.next_step >= len(steps):
        return None
    from_seconds = alert.told_from.timestamp() + 60.0 * steps[alert.next_step]["after_minutes"]
    return datetime.fromtimestamp(from_seconds, alert.told_from.tzinfo)


def _format_age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _list_notified(alert: Alert) -> str:
    """List who was reached, not who was named: a receiver may be disabled, or its messages fail.

    A receiver that was notified of the end since does not know that the alert came back.
    """
    arrived = alert.deliveries.filter(message__state=Message.State.SENT).order_by("pk")
    last = dict(arrived.values_list("receiver__name", "kind"))
    names = [name for name, kind in last.items() if kind == Delivery.Kind.FIRING]
    return f"Notified: {', '.join(names)}." if names else NOBODY_YET


def select_due_alerts(before: datetime) -> QuerySet[Alert]:
    """Return alerts that had ended by then, except those that fired in a kept range or have open work."""
    to_do = FollowUp.objects.filter(done_at=None).values("incident")
    return exclude_kept(Alert.objects.filter(resolved_at__lt=before).exclude(pk__in=to_do), "fired_at")


def select_due_messages(before: datetime) -> QuerySet[Message]:
    return Message.objects.filter(created_at__lt=before).exclude(state="waiting")


def select_due_silences(before: datetime) -> QuerySet[Silence]:
    return Silence.objects.filter(Q(ended_at__lt=before) | Q(expires_at__lt=before))
