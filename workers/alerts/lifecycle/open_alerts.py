"""The open alerts as the snapshot has them, the most severe first."""

from typing import Any

from common.stored_document import convert_to_plain
from workers.alerts.lifecycle.inhibition import GRAVITY
from workers.alerts.lifecycle.models import Alert
from workers.documents.alerts import AlertStatus

MAX_SHOWN = 200
OPEN = (Alert.State.FIRING, Alert.State.ACKNOWLEDGED)


def open_alerts() -> list[AlertStatus]:
    """Return the open alerts with one query.

    Of very many alerts, return the most severe, since no page needs more than 200.
    """
    alerts = Alert.objects.filter(state__in=OPEN).select_related("acknowledged_by", "silence", "rule")
    rows = [build_alert_status(alert) for alert in alerts]
    return sorted(rows, key=_order)[:MAX_SHOWN]


def _order(row: AlertStatus) -> tuple[bool, int, float]:
    return row.quiet is not None, -GRAVITY[row.severity], row.since or 0.0


def document(alert: Alert) -> dict[str, Any]:
    """Return the same as plain JSON."""
    return convert_to_plain(build_alert_status(alert))


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
        since=alert.fired_at.timestamp() if alert.fired_at else None,
        under=alert.under_id,
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
    if alert.state == Alert.State.ACKNOWLEDGED:
        return "acknowledged", alert.acknowledged_until
    if alert.snoozed_until is not None:
        return "snoozed", alert.snoozed_until
    return None, None
