"""Alerts: read, with what changed before them, and acted on."""

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from common.errors import BadInput
from console.actions import alerts
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.request.rows import check_rows
from console.api.routes.alerts.alert_documents import (
    build_alert_document,
    build_event_document,
    build_report,
    find_alert,
    query_fired_alerts,
)
from console.api.schemas.alerts.alerts import (
    AlertDetail,
    AlertHappening,
    AlertList,
    AlertRow,
    NoticeRow,
    NotificationDetail,
)
from console.api.schemas.alerts.incidents import IncidentChangeRow, IncidentChanges
from console.incidents import changes
from console.input.row_id import Id
from console.pages.alerts.incident_changes import ShownChange, build_change_rows
from workers.alerts import review
from workers.alerts.delivery.notification import load_notification
from workers.alerts.incidents import REACH, compute_onset
from workers.alerts.lifecycle import open_alerts, reported
from workers.alerts.lifecycle.models import Alert
from workers.alerts.lifecycle.open_alerts import OPEN

router = Router(tags=["alerts"])
STATES = ("open", "firing", "acknowledged", "resolved")


class Note(RequestBody):
    """A note; may be empty if the request also does something else."""

    note: str = ""


class Minutes(RequestBody):
    """A duration."""

    minutes: float


@router.get("/alerts", response=AlertList, summary="List alerts, newest first")
def list_alerts(request: HttpRequest, state: str = "open", rows: int = 100) -> AlertList:
    """Return alerts by `state`: open (firing or acknowledged), firing, acknowledged, resolved."""
    actor_for(request, "plant.view")
    if state not in STATES:
        raise BadInput("state", f"must be one of {', '.join(STATES)}, not {state[:40]!r}.")
    check_rows(rows)
    chosen = query_fired_alerts().filter(state__in=OPEN if state == "open" else (state,))
    return {"alerts": [build_alert_document(alert) for alert in chosen.order_by("-fired_at", "-pk")[:rows]]}


@router.get("/alerts/{alert_id}", response=AlertDetail, summary="Get an alert, its history, and the actions tried")
def get_alert(request: HttpRequest, alert_id: Id) -> AlertDetail:
    actor_for(request, "plant.view")
    alert = find_alert(alert_id)
    tried = review.build_alert_response(alert)
    events = alert.events.select_related("by").order_by("at", "pk")
    return {
        **build_alert_document(alert),
        "situation": open_alerts.describe_situation(alert).format_sentence(),
        "notification": _notification(alert),
        "tried": {
            "entries": [entry.pk for entry in tried.entries],
            "advice": [loop.pk for loop in tried.advice],
            "plans": [plan.pk for plan in tried.plans],
            "actions": tried.outcome.count,
            "effective": tried.outcome.effective,
            "words": tried.outcome.words,
        },
        "events": [build_event_document(event) for event in events],
        "reported": [
            build_report(concurrent_report)
            for concurrent_report in reported.list_concurrent_reports(
                alert, *review.find_response_range(alert), timezone.now()
            )
        ],
    }


def _notification(alert: Alert) -> NotificationDetail:
    notification = load_notification(alert)
    rows = [convert(NoticeRow, vars(notice)) for notice in notification.notices]
    return {"nobody": notification.nobody, "reasons": notification.reasons, "receivers": rows}


def _change(shown: ShownChange) -> IncidentChangeRow:
    undo = shown.undo.words if shown.undo else ""
    return convert(IncidentChangeRow, {**shown.change.document(), "url": shown.url, "undo": undo})


@router.get("/alerts/{alert_id}/changes", response=IncidentChanges, summary="List changes before an incident")
def get_incident_changes(request: HttpRequest, alert_id: Id) -> IncidentChanges:
    """Return the changes in the 3 h before the incident's onset, the most likely cause first.

    They are at its subject and upstream.
    """
    actor = actor_for(request, "plant.view")
    alert = find_alert(alert_id)
    kept = changes.load_changes(alert) or changes.search_changes(alert, settings.WEIR_DATA)
    return {
        "alert": alert.pk,
        "onset": compute_onset(alert),
        "reach_seconds": REACH.total_seconds(),
        "changes": [_change(change_row) for change_row in build_change_rows(kept[: changes.MAX_STORED], actor)],
    }


@router.post(
    "/alerts/{alert_id}/acknowledge", response=AlertRow, summary=("Acknowledge an alert until its rule's timeout")
)
def acknowledge_alert(request: HttpRequest, alert_id: Id, body: Note) -> AlertRow:
    actor = actor_for(request, "alert.acknowledge")
    return build_alert_document(alerts.acknowledge(actor, alert_id, note=body.note, now=timezone.now()))


@router.post("/alerts/{alert_id}/snooze", response=AlertRow, summary=("Snooze the notifications of an alert"))
def snooze_alert(request: HttpRequest, alert_id: Id, body: Minutes) -> AlertRow:
    actor = actor_for(request, "alert.snooze")
    return build_alert_document(alerts.snooze(actor, alert_id, minutes=body.minutes, now=timezone.now()))


@router.post("/alerts/{alert_id}/escalate", response=AlertRow, summary="Notify the next escalation step now")
def escalate_alert(request: HttpRequest, alert_id: Id, body: Note) -> AlertRow:
    actor = actor_for(request, "alert.escalate")
    return build_alert_document(alerts.escalate(actor, alert_id, note=body.note, now=timezone.now()))


@router.post("/alerts/{alert_id}/notes", response=AlertHappening, summary="Add a note to an alert")
def add_note(request: HttpRequest, alert_id: Id, body: Note) -> AlertHappening:
    actor = actor_for(request, "alert.note")
    return build_event_document(alerts.note(actor, alert_id, text=body.note, now=timezone.now()))
