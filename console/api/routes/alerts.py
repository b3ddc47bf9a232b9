"""Alerts: read, reviewed over a time range, acted on, and reported by external systems."""

from datetime import datetime, timedelta
from typing import Annotated, Any, NotRequired, TypedDict

from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Schema
from pydantic import Field

from common.errors import BadInput
from common.stored_document import Instant, Seconds, Time, copy_shared_values, describe
from console.actions import alerts
from console.api.request.answers import Router, build_answer, convert
from console.api.request.authentication import actor_for
from console.api.request.input import RequestBody, UtcTime, check_rows
from console.incidents import changes
from console.incidents.change_rows import build_change_rows
from console.input.form_values import Id
from workers.alerts import review
from workers.alerts.delivery.notification import Notice, load_notification
from workers.alerts.incidents import REACH, compute_onset
from workers.alerts.lifecycle import open_alerts, reported
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, ReportedAlert
from workers.alerts.lifecycle.open_alerts import OPEN, build_alert_status
from workers.documents.alerts import AlertStatus, Labels

router = Router(tags=["alerts"])
STATES = ("open", "firing", "acknowledged", "resolved")
Severity = Annotated[str, describe(values=AlertRule.Severity.values)]


class AlertRow(AlertStatus, frozen=True, kw_only=True):
    """An alert with its history."""

    impact: str
    worst: Annotated[float | None, describe("Worst value, in the unit of its condition.")]
    worst_sentence: Annotated[str, describe("The summary at the worst value.")]
    worst_impact: Annotated[str, describe("The impact at the worst value.")]
    threshold: float
    came_back: Annotated[int, describe("Number of times the alert fired again soon after it was resolved.")]
    resolved_at: Instant | None


class AlertHappening(TypedDict):
    """An event of an alert, or a note."""

    at: Instant
    kind: Annotated[str, describe(values=AlertEvent.Kind.values)]
    by: str | None
    text: str


class ReportedRow(TypedDict):
    """An alert that an external Alertmanager reported."""

    source: Annotated[str, describe("The token that reported it.")]
    name: str
    severity: str
    labels: Labels
    summary: str
    description: str
    link: Annotated[str, describe("URL of its source; empty: unknown.")]
    began_at: Time
    ended_at: Annotated[Time | None, describe("Time when the alert ended; null: still firing.")]
    reported_at: Annotated[Time, describe("Time of the last report.")]


def query_fired_alerts() -> QuerySet[Alert]:
    fired = Alert.objects.filter(fired_at__isnull=False)
    return fired.select_related("rule", "silence__owner", "acknowledged_by", "snoozed_by")


def find_alert(alert_id: int) -> Alert:
    alert = query_fired_alerts().select_related("incident").filter(pk=alert_id).first()
    if alert is None:
        raise Http404(f"Alert {alert_id} is unknown.")
    return alert


def build_alert_document(alert: Alert) -> AlertRow:
    return AlertRow(**get_alert_values(alert))


def get_alert_values(alert: Alert) -> dict[str, Any]:
    """Return the fields of an AlertRow."""
    status = build_alert_status(alert)
    history = ("impact", "worst", "worst_sentence", "worst_impact", "threshold", "came_back")
    return {
        **copy_shared_values(status, AlertStatus),
        **{name: getattr(alert, name) for name in history},
        "resolved_at": convert_to_timestamp(alert.resolved_at),
    }


def build_event_document(event: AlertEvent) -> AlertHappening:
    by = event.by.get_username() if event.by else None
    return {"at": event.at.timestamp(), "kind": event.kind, "by": by, "text": event.text}


def convert_to_timestamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


class ReviewedAlert(TypedDict):
    """An alert in the reviewed time range."""

    id: int
    rule: str
    title: str
    severity: Severity
    labels: Labels
    fired_at: Time
    resolved_at: Time | None
    seconds: Annotated[Seconds, describe("Duration within the time range.")]
    worst: float | None
    threshold: float
    came_back: int
    acknowledged_after_seconds: Seconds | None
    acknowledged_by: str
    told: Annotated[int, describe("Number of notifications sent.")]
    under: Annotated[int | None, describe("ID of the alert that explains this alert.")]
    actions: int
    effective: int


class ReviewSummary(TypedDict):
    """The time range in figures, and in a sentence."""

    incidents: Annotated[int, describe("Number of alerts that no other alert explains.")]
    open_seconds: Annotated[Seconds, describe("Time with at least one open incident, s.")]
    alerts: int
    critical: Annotated[int, describe("Number of critical incidents.")]
    open: Annotated[int, describe("Number of incidents that were open at the end.")]
    explained: int
    flapped: int
    told: Annotated[int, describe("Number of notifications sent.")]
    failed: Annotated[int, describe("Number of notifications that did not arrive.")]
    acknowledged_seconds: Annotated[Seconds | None, describe("The median time to acknowledge, s.")]
    actions: Annotated[int, describe("Number of loop actions while an incident was open.")]
    effective: Annotated[int, describe("Number of effective actions.")]
    unjudged: Annotated[int, describe("Number of actions without a verdict.")]
    sentence: str


_Span = TypedDict("_Span", {"from": Time, "to": Time})  # "from" is a Python keyword


class AlertReview(_Span):
    summary: ReviewSummary
    alerts: list[ReviewedAlert]


@router.get("/alerts/review", summary="Review a time range: alerts that fired, their duration, and effective actions")
def get_alert_review(
    request: HttpRequest,
    since: Annotated[UtcTime | None, Query(alias="from")] = None,
    until: Annotated[UtcTime | None, Query(alias="to")] = None,
) -> AlertReview:
    """Return the review of the last 12 hours by default; at most 31 days."""
    actor_for(request, "plant.view")
    end = until or timezone.now()
    begin = since or end - timedelta(hours=12)
    if not timedelta(0) < end - begin <= review.MAX_RANGE:
        raise BadInput("from", f"must be before `to`, by at most {review.MAX_RANGE.days} days.")
    rows_of_review = list(review.iterate_review_rows(begin, end))
    return {
        "from": begin,
        "to": end,
        "summary": convert(ReviewSummary, review.summarize_review(rows_of_review, begin, end).document()),
        "alerts": [convert(ReviewedAlert, row.document()) for row in rows_of_review],
    }


class ReportedList(TypedDict):
    alerts: list[ReportedRow]


class RefusedAlert(TypedDict):
    """An alert of a report that could not be read."""

    field: Annotated[str, describe("Position in the report, such as alerts[3].startsAt.")]
    message: str


class ReportReceipt(TypedDict):
    """The stored and the rejected alerts of a report."""

    stored: int
    own: Annotated[int, describe("Number of Weir's own alerts that were reported back.")]
    refused: NotRequired[Annotated[list[RefusedAlert], describe("Unreadable alerts, if any; the others are stored.")]]


class AlertmanagerReport(Schema):
    """The webhook of Alertmanager, version 4; its other fields are ignored."""

    version: str
    # Each is checked separately: an invalid one does not affect the others.
    alerts: Annotated[list[Any], Field(json_schema_extra={"items": {"type": "object"}})]


@router.get("/alerts/reported", summary="List reports of external Alertmanagers, newest first")
def list_reported(request: HttpRequest, rows: int = 100) -> ReportedList:
    actor_for(request, "plant.view")
    check_rows(rows)
    newest = ReportedAlert.objects.order_by("-began_at", "-pk")[:rows]
    return {"alerts": [build_answer(ReportedRow, report) for report in newest]}


@router.post("/alerts/reported", summary="Store the alerts of an Alertmanager webhook as evidence")
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


class AlertList(TypedDict):
    alerts: list[AlertRow]


class LoopAttempts(TypedDict):
    """Actions of control loops on the alert's subject."""

    entries: Annotated[list[int], describe("Ledger entries of the latest actions; actions since the onset come first.")]
    advice: Annotated[list[int], describe("Ledger entries of actions proposed in mode advise or hold.")]
    plans: list[int]
    actions: Annotated[int, describe("Number of actions since the onset.")]
    effective: Annotated[int, describe("Number of effective actions.")]
    words: str


class NotificationDetail(TypedDict):
    """The notifications of an alert, and why there are none."""

    nobody: bool
    reasons: Annotated[list[str], describe("Why no receiver was notified; empty: a receiver was notified.")]
    receivers: list[Notice]


class AlertDetail(AlertRow, frozen=True, kw_only=True):
    """One alert: its history, notifications, actions tried, and external reports of the same time."""

    situation: str
    notification: NotificationDetail
    tried: LoopAttempts
    events: list[AlertHappening]
    reported: Annotated[list[ReportedRow], describe("Most relevant first.")]


class IncidentChangeRow(TypedDict):
    """A change before an incident, with its distance and how often its kind preceded such incidents."""

    kind: str
    at: Time
    words: str
    by: str
    ref: Annotated[str, describe("The record, such as override:12; empty: none.")]
    steps: Annotated[int | None, describe("Number of steps upstream of the alert's subject; null: unknown.")]
    delay_seconds: Annotated[Seconds, describe("Time from the change to the onset, s.")]
    weight: Annotated[float, describe("Ranking score; a higher score is more likely.")]
    before: Annotated[int, describe("Number of earlier incidents of this condition that a similar change preceded.")]
    incidents: Annotated[int, describe("Number of earlier incidents considered.")]
    url: Annotated[str, describe("URL of the details.")]
    undo: Annotated[str, describe("Label of the button that undoes the change; empty: no button.")]


class IncidentChanges(TypedDict):
    """Changes before an incident, the most likely cause first."""

    alert: int
    onset: Time
    reach_seconds: Annotated[Seconds, describe("Length of the searched time before the onset, s.")]
    changes: list[IncidentChangeRow]


class Note(RequestBody):
    """A note; may be empty if the request also does something else."""

    note: str = ""


class Minutes(RequestBody):
    """A duration."""

    minutes: float


@router.get("/alerts", summary="List alerts, newest first")
def list_alerts(request: HttpRequest, state: str = "open", rows: int = 100) -> AlertList:
    """Return alerts by `state`: open (firing or acknowledged), firing, acknowledged, resolved."""
    actor_for(request, "plant.view")
    if state not in STATES:
        raise BadInput("state", f"must be one of {', '.join(STATES)}, not {state[:40]!r}.")
    check_rows(rows)
    chosen = query_fired_alerts().filter(state__in=OPEN if state == "open" else (state,))
    return {"alerts": [build_alert_document(alert) for alert in chosen.order_by("-fired_at", "-pk")[:rows]]}


@router.get("/alerts/{alert_id}", summary="Get an alert, its history, and the actions tried")
def get_alert(request: HttpRequest, alert_id: Id) -> AlertDetail:
    actor_for(request, "plant.view")
    alert = find_alert(alert_id)
    tried, notification = review.build_alert_response(alert), load_notification(alert)
    events = alert.events.select_related("by").order_by("at", "pk")
    return AlertDetail(
        **get_alert_values(alert),
        situation=open_alerts.describe_situation(alert).format_sentence(),
        notification=build_answer(NotificationDetail, notification, receivers=list(notification.notices)),
        tried={
            "entries": [entry.pk for entry in tried.entries],
            "advice": [loop.pk for loop in tried.advice],
            "plans": [plan.pk for plan in tried.plans],
            "actions": tried.outcome.count,
            "effective": tried.outcome.effective,
            "words": tried.outcome.words,
        },
        events=[build_event_document(event) for event in events],
        reported=[
            build_answer(ReportedRow, report)
            for report in reported.list_concurrent_reports(alert, *review.find_response_range(alert), timezone.now())
        ],
    )


@router.get("/alerts/{alert_id}/changes", summary="List changes before an incident")
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
        "changes": [
            convert(
                IncidentChangeRow, {**row.change.document(), "url": row.url, "undo": row.undo.words if row.undo else ""}
            )
            for row in build_change_rows(kept[: changes.MAX_STORED], actor)
        ],
    }


@router.post("/alerts/{alert_id}/acknowledge", summary=("Acknowledge an alert until its rule's timeout"))
def acknowledge_alert(request: HttpRequest, alert_id: Id, body: Note) -> AlertRow:
    actor = actor_for(request, "alert.acknowledge")
    return build_alert_document(alerts.acknowledge(actor, alert_id, note=body.note, now=timezone.now()))


@router.post("/alerts/{alert_id}/snooze", summary=("Snooze the notifications of an alert"))
def snooze_alert(request: HttpRequest, alert_id: Id, body: Minutes) -> AlertRow:
    actor = actor_for(request, "alert.snooze")
    return build_alert_document(alerts.snooze(actor, alert_id, minutes=body.minutes, now=timezone.now()))


@router.post("/alerts/{alert_id}/withdraw", summary="End the acknowledgment or snooze of an alert")
def withdraw_alert(request: HttpRequest, alert_id: Id) -> AlertRow:
    """End it, so that the escalation restarts with its first step."""
    actor = actor_for(request, "alert.acknowledge")
    return build_alert_document(alerts.withdraw(actor, alert_id, now=timezone.now()))


@router.post("/alerts/{alert_id}/escalate", summary="Notify the next escalation step now")
def escalate_alert(request: HttpRequest, alert_id: Id, body: Note) -> AlertRow:
    actor = actor_for(request, "alert.escalate")
    return build_alert_document(alerts.escalate(actor, alert_id, note=body.note, now=timezone.now()))


@router.post("/alerts/{alert_id}/notes", summary="Add a note to an alert")
def add_note(request: HttpRequest, alert_id: Id, body: Note) -> AlertHappening:
    actor = actor_for(request, "alert.note")
    return build_event_document(alerts.note(actor, alert_id, text=body.note, now=timezone.now()))
