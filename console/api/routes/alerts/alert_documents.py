"""An alert, its history, and external reports, as the API answers them."""

from datetime import datetime
from typing import Any

from django.http import Http404

from console.api.answer.schema import convert
from console.api.schemas.alerts.alerts import AlertHappening, AlertRow
from console.api.schemas.alerts.reported import ReportedRow
from workers.alerts.lifecycle.models import Alert, AlertEvent, ReportedAlert
from workers.alerts.lifecycle.open_alerts import document


def query_fired_alerts() -> Any:
    fired = Alert.objects.filter(fired_at__isnull=False)
    return fired.select_related("rule", "silence__owner", "acknowledged_by", "snoozed_by")


def find_alert(alert_id: int) -> Alert:
    alert: Alert | None = query_fired_alerts().select_related("incident").filter(pk=alert_id).first()
    if alert is None:
        raise Http404(f"Alert {alert_id} is unknown.")
    return alert


def build_alert_document(alert: Alert) -> AlertRow:
    more = {
        "impact": alert.impact,
        "worst": alert.worst,
        "worst_sentence": alert.worst_sentence,
        "worst_impact": alert.worst_impact,
        "threshold": alert.threshold,
        "came_back": alert.came_back,
        "resolved_at": convert_to_timestamp(alert.resolved_at),
    }
    return convert(AlertRow, {**document(alert), **more})


def build_event_document(event: AlertEvent) -> AlertHappening:
    by = event.by.get_username() if event.by else None
    return {"at": event.at.timestamp(), "kind": event.kind, "by": by, "text": event.text}


def build_report(row: ReportedAlert) -> ReportedRow:
    return {
        "source": row.source,
        "name": row.name,
        "severity": row.severity,
        "labels": row.labels,
        "summary": row.summary,
        "description": row.description,
        "link": row.link,
        "began_at": row.began_at,
        "ended_at": row.ended_at,
        "reported_at": row.reported_at,
    }


def convert_to_timestamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
