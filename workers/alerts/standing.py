"""The open alerts as the snapshot has them, the gravest first."""

from typing import Any

from workers.alerts.inhibition import GRAVITY
from workers.alerts.models import Alert

OPEN = (Alert.State.FIRING, Alert.State.ACKNOWLEDGED)


def open_alerts() -> list[dict[str, Any]]:
    """See `document`; one query."""
    found = Alert.objects.filter(state__in=OPEN).select_related("acknowledged_by", "silence")
    rows = [document(each) for each in found]
    return sorted(rows, key=lambda row: (row["quiet"] is not None, -GRAVITY[row["severity"]], row["since"]))


def document(alert: Alert) -> dict[str, Any]:
    """`quiet` says why it tells nobody: explained, silenced, snoozed, acknowledged; `announce` names what a
    browser shows once, null while there is nothing to show.
    """
    quiet, until = quiet_of(alert)
    return {
        "id": alert.pk,
        "rule": alert.rule_name,
        "title": alert.title,
        "severity": alert.severity,
        "state": alert.state,
        "labels": alert.labels,
        "sentence": alert.sentence,
        "since": alert.fired_at.timestamp() if alert.fired_at else None,
        "under": alert.under_id,
        "quiet": quiet,
        "quiet_until": until.timestamp() if until else None,
        "acknowledged_by": alert.acknowledged_by.get_username() if alert.acknowledged_by else None,
        "value": alert.value,
        "round": alert.round,
        "step": alert.next_step,
        "announce": (alert.announcement or None) if quiet is None else None,
    }


def quiet_of(alert: Alert) -> tuple[str | None, Any]:
    """Why an open alert tells nobody, and until when; (None, None) when it does."""
    if alert.under_id is not None:
        return "explained", None
    if alert.silence is not None:
        return "silenced", alert.silence.expires_at
    if alert.state == Alert.State.ACKNOWLEDGED:
        return "acknowledged", alert.acknowledged_until
    if alert.snoozed_until is not None:
        return "snoozed", alert.snoozed_until
    return None, None
