"""Reports of external Alertmanagers, as evidence beside Weir's alerts."""

from typing import Annotated, Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import Field

from console.actions import alerts
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.rows import check_rows
from console.api.routes.alerts.alert_documents import build_report
from console.api.schemas.alerts.reported import ReportedList, ReportReceipt
from workers.alerts.lifecycle.models import ReportedAlert

router = Router(tags=["alerts"])


class AlertmanagerReport(Schema):
    """The webhook of Alertmanager, version 4; its other fields are ignored."""

    version: str
    # Each is checked separately: an invalid one does not affect the others.
    alerts: Annotated[list[Any], Field(json_schema_extra={"items": {"type": "object"}})]


@router.get("/alerts/reported", response=ReportedList, summary="List reports of external Alertmanagers, newest first")
def list_reported(request: HttpRequest, rows: int = 100) -> ReportedList:
    actor_for(request, "plant.view")
    check_rows(rows)
    newest = ReportedAlert.objects.order_by("-began_at", "-pk")[:rows]
    return {"alerts": [build_report(report) for report in newest]}


@router.post(
    "/alerts/reported", response=ReportReceipt, summary="Store the alerts of an Alertmanager webhook as evidence"
)
def report_alerts(request: HttpRequest, body: AlertmanagerReport) -> ReportReceipt:
    """Store the alerts that an Alertmanager reports.

    Its receiver is a `webhook_config` with this address, and a token of the action alert.report as `authorization`. At
    most 200 alerts (`max_alerts`) in 8 MiB. A repetition changes nothing. Unreadable alerts are listed in `refused`,
    and the others are stored; 422 if none can be read.
    """
    actor = actor_for(request, "alert.report")
    taken = alerts.report(actor, body.dict(), now=timezone.now())
    answer: ReportReceipt = {"stored": taken.stored, "own": taken.own}
    if taken.refused:
        answer["refused"] = [{"field": refusal.field, "message": refusal.message} for refusal in taken.refused]
    return answer
