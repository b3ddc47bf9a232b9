"""Incidents: their people, timeline, follow-ups, and review."""

from datetime import date
from typing import Annotated, TypedDict

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Seconds, Time, describe
from console.actions import incidents as acting
from console.api.request.answers import Created, Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import RequestBody, check_rows
from console.api.routes.alerts import Severity, find_alert
from console.incidents.incident_timeline import IncidentEvent, list_timeline_events, review_of
from console.input.form_values import Id
from workers.alerts import incidents
from workers.alerts.lifecycle.models import Alert, FollowUp

router = Router(tags=["alerts"])


class FollowUpRow(TypedDict):
    """A follow-up of an incident."""

    id: int
    alert: int
    text: str
    owner: Annotated[str, describe("A username; empty: unassigned.")]
    due_on: date | None
    created_at: Time
    done_at: Annotated[Time | None, describe("Time of completion; null: open.")]


class FollowUpList(TypedDict):
    follow_ups: Annotated[list[FollowUpRow], describe("Open follow-ups, earliest due date first.")]


class IncidentDetail(TypedDict):
    """An incident, in addition to its alert."""

    alert: int
    severity: Annotated[Severity, describe("The severity that a user set, or else the severity of the rule.")]
    roles: Annotated[dict[str, str], describe("Role → username.")]
    mitigated_at: Time | None
    retained_since: Annotated[Time | None, describe("Start of the retained data; null: the usual retention applies.")]
    retained_until: Time | None
    detect_seconds: Annotated[Seconds | None, describe("Time from the onset to the alert, s.")]
    acknowledge_seconds: Annotated[Seconds | None, describe("Time from the alert to its acknowledgment, s.")]
    mitigate_seconds: Seconds | None
    resolve_seconds: Seconds | None
    timeline: Annotated[list[IncidentEvent], describe("Oldest first.")]
    follow_ups: list[FollowUpRow]


class IncidentReview(TypedDict):
    """The review of an incident, in Markdown."""

    alert: int
    text: str
    is_draft: Annotated[bool, describe("true: generated from the records and not edited yet.")]
    revision: Annotated[int, describe("Send this revision with a change.")]


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


@router.get("/alerts/{alert_id}/incident", summary=("Get an incident's timeline, roles, and times"))
def get_incident(request: HttpRequest, alert_id: Id) -> IncidentDetail:
    actor_for(request, "plant.view")
    return _build_incident_detail(find_alert(alert_id))


@router.post(
    "/alerts/{alert_id}/incident", summary="Change an incident: severity, roles, mitigation, and retained data"
)
def change_incident(request: HttpRequest, alert_id: Id, body: IncidentFields) -> IncidentDetail:
    """Change an incident; omitted fields keep their values.

    A severity of "" is that of the rule, a role of "" is unassigned. retained: whether retention keeps the data of its
    time.
    """
    actor = actor_for(request, "incident.change")
    acting.change(actor, alert_id, now=timezone.now(), **body.dict())
    return _build_incident_detail(find_alert(alert_id))


@router.post("/alerts/{alert_id}/follow-ups", summary="Add a follow-up to an incident")
def add_follow_up(request: HttpRequest, alert_id: Id, body: NewFollowUp) -> Created[FollowUpRow]:
    actor = actor_for(request, "incident.change")
    made = acting.add_follow_up(actor, alert_id, now=timezone.now(), **body.dict())
    return _follow_up(made)


@router.post("/alerts/{alert_id}/follow-ups/{follow_up_id}", summary="Complete or reopen a follow-up")
def set_follow_up(request: HttpRequest, alert_id: Id, follow_up_id: Id, body: FollowUpState) -> FollowUpRow:
    actor = actor_for(request, "incident.change")
    return _follow_up(acting.set_follow_up(actor, alert_id, follow_up_id, done=body.done, now=timezone.now()))


@router.get("/follow-ups", summary="List open follow-ups of incidents")
def list_follow_ups(request: HttpRequest, rows: int = 100) -> FollowUpList:
    actor_for(request, "plant.view")
    check_rows(rows)
    return {"follow_ups": [_follow_up(follow_up) for follow_up in incidents.open_follow_ups()[:rows]]}


@router.get("/alerts/{alert_id}/review", summary="Get the review of an incident")
def get_incident_review(request: HttpRequest, alert_id: Id) -> IncidentReview:
    """Return the review in Markdown: as edited, or else a draft from the records."""
    actor_for(request, "plant.view")
    return _review(find_alert(alert_id))


@router.post("/alerts/{alert_id}/review", summary="Edit the review of an incident")
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
    return build_answer(
        IncidentDetail,
        times,
        alert=alert.pk,
        severity=incidents.get_severity(alert),
        roles=kept.roles,
        mitigated_at=kept.mitigated_at,
        retained_since=retained.since if retained else None,
        retained_until=retained.until if retained else None,
        timeline=timeline,
        follow_ups=[_follow_up(row) for row in rows],
    )


def _follow_up(row: FollowUp) -> FollowUpRow:
    return build_answer(FollowUpRow, row, alert=row.incident_id)


def _review(alert: Alert) -> IncidentReview:
    kept = incidents.get_incident(alert)
    return {
        "alert": alert.pk,
        "text": review_of(alert, settings.WEIR_DATA),
        "is_draft": not kept.review,
        "revision": kept.review_revision,
    }
