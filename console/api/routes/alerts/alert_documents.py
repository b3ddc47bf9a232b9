"""An alert, what happened to it and what others reported, as the API answers them."""

from datetime import datetime
from typing import Any

from django.http import Http404

from workers.alerts.lifecycle.models import (
    Alert,
    AlertEvent,
    ReportedAlert,
)
from workers.alerts.lifecycle.open_alerts import document


def fired_alerts() -> Any:
    fired = Alert.objects.filter(fired_at__isnull=False)
    return fired.select_related("rule", "silence__owner", "acknowledged_by", "snoozed_by")


def found_alert(alert_id: int) -> Alert:
    found: Alert | None = fired_alerts().select_related("incident").filter(pk=alert_id).first()
    if found is None:
        raise Http404(f"Alert {alert_id} is not known.")
    return found


def alert_document(alert: Alert) -> dict[str, Any]:
    more = {
        "impact": alert.impact,
        "worst": alert.worst,
        "threshold": alert.threshold,
        "came_back": alert.came_back,
        "resolved_at": seconds_of(alert.resolved_at),
    }
    return {**document(alert), **more}


def event_document(event: AlertEvent) -> dict[str, Any]:
    by = event.by.get_username() if event.by else None
    return {"at": event.at.timestamp(), "kind": event.kind, "by": by, "text": event.text}


def reported_document(row: ReportedAlert) -> dict[str, Any]:
    names = (
        "source",
        "name",
        "severity",
        "labels",
        "summary",
        "description",
        "link",
        "began_at",
        "ended_at",
        "reported_at",
    )
    return {name: getattr(row, name) for name in names}


def seconds_of(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
