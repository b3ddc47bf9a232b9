"""Incidents: their timeline, roles, follow-ups, and review."""

from datetime import date

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja import Status

from console.actions import incidents as acting
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.request.rows import check_rows
from console.api.routes.alerts.alert_documents import find_alert
from console.api.schemas.alerts.incidents import (
    FollowUpList,
    FollowUpRow,
    IncidentDetail,
    IncidentEventRow,
    IncidentReview,
)
from console.incidents.incident_timeline import list_timeline_events, review_of
from console.input.row_id import Id
from workers.alerts import incidents
from workers.alerts.lifecycle.models import Alert, FollowUp

router = Router(tags=["alerts"])


class IncidentFields(RequestBody):
    """Omitted fields keep their values."""

    severity: str | None = None
    roles: dict[str, str] | None = None
    mitigated: bool = False
    retained: bool | None = None


class NewFollowUp(RequestBody):
    """owner: a user name; empty: unassigned."""

    text: str
    owner: str = ""
    due_on: date | None = None


class FollowUpState(RequestBody):
    done: bool = True


class EditedReview(RequestBody):
    """The review in Markdown; revision: of the text that was edited."""

    text: str
    revision: int


@router.get(
    "/alerts/{alert_id}/incident", response=IncidentDetail, summary=("Get an incident's timeline, roles, and times")
)
def get_incident(request: HttpRequest, alert_id: Id) -> IncidentDetail:
    actor_for(request, "plant.view")
    return _build_incident_detail(find_alert(alert_id))


@router.post(
    "/alerts/{alert_id}/incident",
    response=IncidentDetail,
    summary="Change an incident: severity, roles, mitigation, and retained data",
)
def change_incident(request: HttpRequest, alert_id: Id, body: IncidentFields) -> IncidentDetail:
    """Change an incident; omitted fields keep their values.

    A severity of "" is that of the rule, a role of "" is unassigned. retained: whether retention keeps the data of its
    time.
    """
    actor = actor_for(request, "incident.change")
    acting.change(actor, alert_id, now=timezone.now(), **body.dict())
    return _build_incident_detail(find_alert(alert_id))


@router.post("/alerts/{alert_id}/follow-ups", response={201: FollowUpRow}, summary="Add a follow-up to an incident")
def add_follow_up(request: HttpRequest, alert_id: Id, body: NewFollowUp) -> Status[FollowUpRow]:
    actor = actor_for(request, "incident.change")
    made = acting.add_follow_up(actor, alert_id, now=timezone.now(), **body.dict())
    return Status(201, _follow_up(made))


@router.post(
    "/alerts/{alert_id}/follow-ups/{follow_up_id}", response=FollowUpRow, summary="Complete or reopen a follow-up"
)
def set_follow_up(request: HttpRequest, alert_id: Id, follow_up_id: Id, body: FollowUpState) -> FollowUpRow:
    actor = actor_for(request, "incident.change")
    return _follow_up(acting.set_follow_up(actor, alert_id, follow_up_id, done=body.done, now=timezone.now()))


@router.get("/follow-ups", response=FollowUpList, summary="List open follow-ups of incidents")
def list_follow_ups(request: HttpRequest, rows: int = 100) -> FollowUpList:
    actor_for(request, "plant.view")
    check_rows(rows)
    return {"follow_ups": [_follow_up(follow_up) for follow_up in incidents.open_follow_ups()[:rows]]}


@router.get("/alerts/{alert_id}/review", response=IncidentReview, summary="Get the review of an incident")
def get_incident_review(request: HttpRequest, alert_id: Id) -> IncidentReview:
    """Return the review in Markdown: as edited, or else a draft from the records."""
    actor_for(request, "plant.view")
    return _review(find_alert(alert_id))


@router.post("/alerts/{alert_id}/review", response=IncidentReview, summary="Edit the review of an incident")
def change_incident_review(request: HttpRequest, alert_id: Id, body: EditedReview) -> IncidentReview:
    """Save the review; an empty text restores the draft. `revision`: of the review as it was read."""
    actor = actor_for(request, "incident.change")
    acting.write_review(actor, alert_id, now=timezone.now(), **body.dict())
    return _review(find_alert(alert_id))


def _build_incident_detail(alert: Alert) -> IncidentDetail:
    kept = incidents.get_incident(alert)
    rows = FollowUp.objects.filter(incident=alert.pk).order_by("pk")
    retained = acting.find_retained_range(alert.pk)
    times, timeline = incidents.compute_incident_times(alert), list_timeline_events(alert, settings.WEIR_DATA)
    return {
        "alert": alert.pk,
        "severity": incidents.get_severity(alert),
        "roles": kept.roles,
        "mitigated_at": kept.mitigated_at,
        "retained_since": retained.since if retained else None,
        "retained_until": retained.until if retained else None,
        "detect_seconds": times.detect_seconds,
        "acknowledge_seconds": times.acknowledge_seconds,
        "mitigate_seconds": times.mitigate_seconds,
        "resolve_seconds": times.resolve_seconds,
        "timeline": [convert(IncidentEventRow, vars(event)) for event in timeline],
        "follow_ups": [_follow_up(row) for row in rows],
    }


def _follow_up(row: FollowUp) -> FollowUpRow:
    return {
        "id": row.pk,
        "alert": row.incident_id,
        "text": row.text,
        "owner": row.owner,
        "due_on": row.due_on,
        "created_at": row.created_at,
        "done_at": row.done_at,
    }


def _review(alert: Alert) -> IncidentReview:
    kept = incidents.get_incident(alert)
    return {
        "alert": alert.pk,
        "text": review_of(alert, settings.WEIR_DATA),
        "is_draft": not kept.review,
        "revision": kept.review_revision,
    }
