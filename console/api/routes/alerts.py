"""Alerts: seen and acted on; silences, rules, receivers, and the review of a time."""

from datetime import date, datetime, timedelta
from typing import Annotated, Any

from django.conf import settings
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status

from console.actions import alerts
from console.actions import incidents as acting
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.bodies import Given, Reason
from console.api.request.instant import UtcTime
from console.api.request.rows import check_rows
from console.api.schemas.alerts import (
    AlertDetail,
    AlertHappening,
    AlertList,
    AlertReview,
    AlertRow,
    FollowUpList,
    FollowUpRow,
    IncidentChanges,
    IncidentDetail,
    IncidentReview,
    MessageRow,
    ReceiverDeleted,
    ReceiverList,
    ReceiverRow,
    ReportedList,
    ReportTaken,
    RuleDetail,
    RuleList,
    RulePreview,
    RuleRow,
    SilenceEnd,
    SilenceList,
    SilencePreview,
    SilenceRow,
)
from console.connections.control_server import control
from console.incidents import changes
from console.incidents.incident_timeline import timeline_of
from console.incidents.review_draft import review_of
from console.input.row_id import Id
from console.pages.alerts.incident_changes import shown_changes
from queues.errors import BadInput
from workers.alerts import history, incidents, review
from workers.alerts.delivery.notification import notification_of
from workers.alerts.evaluation import preview
from workers.alerts.incidents import REACH, onset_of
from workers.alerts.lifecycle import on_call, reported
from workers.alerts.lifecycle.models import (
    Alert,
    AlertEvent,
    AlertRule,
    AlertWatch,
    FollowUp,
    Message,
    Receiver,
    ReportedAlert,
    Silence,
)
from workers.alerts.lifecycle.open_alerts import OPEN, document
from workers.alerts.rules import matching, rules, silences
from workers.alerts.rules.silences import in_force

router = Router(tags=["alerts"])
STATES = ("open", "firing", "acknowledged", "resolved")


class Note(Given):
    """Words for whoever comes next; may be empty where something else is done."""

    note: str = ""


class Minutes(Given):
    """For how long."""

    minutes: float


class NewSilence(Given):
    """matchers: [{"label", "is": "=", "!=" or "~", "value"}], all of which must hold."""

    matchers: list[dict[str, str]]
    reason: str
    minutes: float


class IncidentFields(Given):
    """What is left out stays."""

    severity: str | None = None
    roles: dict[str, str] | None = None
    mitigated: bool = False
    retained: bool | None = None


class NewFollowUp(Given):
    """owner: a user name; empty: nobody yet."""

    text: str
    owner: str = ""
    due_on: date | None = None


class IsDone(Given):
    done: bool = True


class EditedReview(Given):
    """The review in Markdown; revision: of the text it was edited from."""

    text: str
    revision: int


class Matchers(Given):
    matchers: list[dict[str, str]]


class RuleFields(Given):
    """Fields of a rule; those that are left out stay. `revision`: of the rule as it was seen."""

    fields: dict[str, Any]
    reason: str = ""
    revision: int | None = None


class AlertmanagerReport(Schema):
    """Alertmanager's webhook, version 4; what else it says is not read."""

    version: str
    alerts: list[dict[str, Any]]


class NewReceiver(Given):
    """settings: email {"addresses"}, webhook and alertmanager {"url", "secret_environment"}, apprise
    {"secret_environment", "answers_environment"}, schedule {"secret_environment", "otherwise"}, browser {}.
    """

    channel: str
    settings: dict[str, Any] = {}
    tells_resolved: bool = True
    gets_reports: bool = False
    enabled: bool = True
    reason: str


@router.get("/alerts", response=AlertList, summary="Alerts, newest first")
def list_alerts(request: HttpRequest, state: str = "open", rows: int = 100) -> dict[str, Any]:
    """`state`: open (firing or acknowledged), firing, acknowledged, resolved."""
    actor_for(request, "plant.view")
    if state not in STATES:
        raise BadInput("state", f"takes {', '.join(STATES)}, not {state[:40]!r}.")
    check_rows(rows)
    chosen = _alerts().filter(state__in=OPEN if state == "open" else (state,))
    return {"alerts": [_alert(each) for each in chosen.order_by("-fired_at", "-pk")[:rows]]}


@router.get(
    "/alerts/review",
    response=AlertReview,
    summary="What fired in a time, how long, and which actions had an effect",
)
def get_review(
    request: HttpRequest,
    since: Annotated[UtcTime | None, Query(alias="from")] = None,
    until: Annotated[UtcTime | None, Query(alias="to")] = None,
) -> dict[str, Any]:
    """The last 12 hours unless the request says otherwise; at most 31 days."""
    actor_for(request, "plant.view")
    end = until or timezone.now()
    begin = since or end - timedelta(hours=12)
    if not timedelta(0) < end - begin <= review.LONGEST:
        raise BadInput("from", f"takes a time before to, at most {review.LONGEST.days} days.")
    found = list(review.rows(begin, end))
    return {
        "from": begin,
        "to": end,
        "summary": review.summary(found, begin, end).document(),
        "alerts": [row.document() for row in found],
    }


@router.get(
    "/alerts/reported",
    response=ReportedList,
    summary="What Alertmanagers of others reported, newest first",
)
def list_reported(request: HttpRequest, rows: int = 100) -> dict[str, Any]:
    actor_for(request, "plant.view")
    check_rows(rows)
    return {"alerts": [_reported(each) for each in ReportedAlert.objects.order_by("-began_at", "-pk")[:rows]]}


@router.post(
    "/alerts/reported",
    response=ReportTaken,
    summary="Take an Alertmanager's webhook as evidence beside our alerts",
)
def report_alerts(request: HttpRequest, body: AlertmanagerReport) -> dict[str, Any]:
    """Its receiver is a `webhook_config` with this address, and a token of the action alert.report as
    `authorization`. At most 200 alerts (`max_alerts`). The same again changes nothing.
    """
    actor = actor_for(request, "alert.report")
    taken = alerts.report(actor, body.dict(), now=timezone.now())
    return {"stored": taken.stored, "own": taken.own}


@router.get(
    "/alerts/{alert_id}", response=AlertDetail, summary="One alert, what happened to it and what was tried"
)
def get_alert(request: HttpRequest, alert_id: Id) -> dict[str, Any]:
    actor_for(request, "plant.view")
    found = _one(alert_id)
    tried = history.response(found)
    events = found.events.select_related("by").order_by("at", "pk")
    return {
        **_alert(found),
        "situation": on_call.situation(found).sentence(),
        "notification": _notification(found),
        "tried": {
            "entries": [each.pk for each in tried.entries],
            "advice": [each.pk for each in tried.advice],
            "plans": [each.pk for each in tried.plans],
            "actions": tried.outcome.count,
            "effective": tried.outcome.effective,
            "words": tried.outcome.words,
        },
        "events": [_event(each) for each in events],
        "reported": [
            _reported(each) for each in reported.beside(found, *history.span(found), timezone.now())
        ],
    }


def _notification(alert: Alert) -> dict[str, Any]:
    found = notification_of(alert)
    rows = [vars(each) for each in found.notices]
    return {"nobody": found.nobody, "reasons": found.reasons, "receivers": rows}


@router.get("/alerts/{alert_id}/changes", response=IncidentChanges, summary="What changed before an incident")
def get_changes(request: HttpRequest, alert_id: Id) -> dict[str, Any]:
    """The changes of the 3 h before its onset, at its subject and upstream, the likeliest cause first."""
    actor = actor_for(request, "plant.view")
    found = _one(alert_id)
    kept = changes.changes_of(found) or changes.search_changes(found, settings.WEIR_DATA)
    return {
        "alert": found.pk,
        "onset": onset_of(found),
        "reach_seconds": REACH.total_seconds(),
        "changes": [
            {**each.change.document(), "url": each.url, "undo": each.undo.words if each.undo else ""}
            for each in shown_changes(kept[: changes.MOST_STORED], actor)
        ],
    }


@router.get(
    "/alerts/{alert_id}/incident", response=IncidentDetail, summary="An incident's timeline, roles and times"
)
def get_incident(request: HttpRequest, alert_id: Id) -> dict[str, Any]:
    actor_for(request, "plant.view")
    return _incident(_one(alert_id))


@router.post(
    "/alerts/{alert_id}/incident",
    response=IncidentDetail,
    summary="Severity and roles of an incident, that it is mitigated, and whether its data stay",
)
def change_incident(request: HttpRequest, alert_id: Id, body: IncidentFields) -> dict[str, Any]:
    """What is left out stays; a severity of "" is that of the rule, a role of "" is nobody's. retained:
    whether retention leaves what is recorded of its time.
    """
    actor = actor_for(request, "incident.change")
    acting.change(actor, alert_id, now=timezone.now(), **body.dict())
    return _incident(_one(alert_id))


@router.post(
    "/alerts/{alert_id}/follow-ups",
    response={201: FollowUpRow},
    summary="Note what is to be done after an incident",
)
def add_follow_up(request: HttpRequest, alert_id: Id, body: NewFollowUp) -> Status[Any]:
    actor = actor_for(request, "incident.change")
    made = acting.add_follow_up(actor, alert_id, now=timezone.now(), **body.dict())
    return Status(201, _follow_up(made))


@router.post(
    "/alerts/{alert_id}/follow-ups/{follow_up_id}",
    response=FollowUpRow,
    summary="A follow-up is done, or open",
)
def set_follow_up(request: HttpRequest, alert_id: Id, follow_up_id: Id, body: IsDone) -> dict[str, Any]:
    actor = actor_for(request, "incident.change")
    return _follow_up(acting.set_follow_up(actor, alert_id, follow_up_id, done=body.done, now=timezone.now()))


@router.get("/follow-ups", response=FollowUpList, summary="What is open after incidents")
def list_follow_ups(request: HttpRequest, rows: int = 100) -> dict[str, Any]:
    actor_for(request, "plant.view")
    check_rows(rows)
    return {"follow_ups": [_follow_up(each) for each in incidents.open_follow_ups()[:rows]]}


@router.get("/alerts/{alert_id}/review", response=IncidentReview, summary="The review of an incident")
def get_incident_review(request: HttpRequest, alert_id: Id) -> dict[str, Any]:
    """In Markdown: as somebody has edited it, else a draft from what is recorded."""
    actor_for(request, "plant.view")
    return _review(_one(alert_id))


@router.post("/alerts/{alert_id}/review", response=IncidentReview, summary="Edit the review of an incident")
def write_review(request: HttpRequest, alert_id: Id, body: EditedReview) -> dict[str, Any]:
    """An empty text gives the draft back. `revision`: of the review as it was read."""
    actor = actor_for(request, "incident.change")
    acting.write_review(actor, alert_id, now=timezone.now(), **body.dict())
    return _review(_one(alert_id))


@router.post(
    "/alerts/{alert_id}/acknowledge", response=AlertRow, summary="You have it, until its rule's time-out"
)
def acknowledge(request: HttpRequest, alert_id: Id, body: Note) -> dict[str, Any]:
    actor = actor_for(request, "alert.acknowledge")
    return _alert(alerts.acknowledge(actor, alert_id, note=body.note, now=timezone.now()))


@router.post("/alerts/{alert_id}/snooze", response=AlertRow, summary="Notify nobody for some minutes")
def snooze(request: HttpRequest, alert_id: Id, body: Minutes) -> dict[str, Any]:
    actor = actor_for(request, "alert.snooze")
    return _alert(alerts.snooze(actor, alert_id, minutes=body.minutes, now=timezone.now()))


@router.post("/alerts/{alert_id}/escalate", response=AlertRow, summary="Notify the next step at once")
def escalate(request: HttpRequest, alert_id: Id, body: Note) -> dict[str, Any]:
    actor = actor_for(request, "alert.escalate")
    return _alert(alerts.escalate(actor, alert_id, note=body.note, now=timezone.now()))


@router.post("/alerts/{alert_id}/notes", response=AlertHappening, summary="Words beside an alert")
def note(request: HttpRequest, alert_id: Id, body: Note) -> dict[str, Any]:
    actor = actor_for(request, "alert.note")
    return _event(alerts.note(actor, alert_id, text=body.note, now=timezone.now()))


@router.get("/silences", response=SilenceList, summary="Silences in force")
def list_silences(request: HttpRequest) -> dict[str, Any]:
    actor_for(request, "plant.view")
    return {"silences": [_silence(each) for each in in_force(timezone.now()).select_related("owner")]}


@router.post("/silences", response={201: SilenceRow}, summary="Silence what matches; it ends by itself")
def add_silence(request: HttpRequest, body: NewSilence) -> Status[Any]:
    actor = actor_for(request, "silence.set")
    made = alerts.silence(actor, now=timezone.now(), **body.dict())
    return Status(201, _silence(made))


@router.post(
    "/silences/preview", response=SilencePreview, summary="What a silence would hide; nothing is changed"
)
def preview_silence(request: HttpRequest, body: Matchers) -> dict[str, Any]:
    actor_for(request, "plant.view")
    found = silences.hidden(matching.read(body.matchers, least=1), timezone.now())
    return {**found, "open": [_alert(each) for each in found["open"]]}


@router.post("/silences/{silence_id}/end", response=SilenceEnd, summary="End a silence now")
def end_silence(request: HttpRequest, silence_id: Id) -> dict[str, Any]:
    actor = actor_for(request, "silence.end")
    found = Silence.objects.filter(pk=silence_id).first()
    if found is None:
        raise Http404(f"Silence {silence_id} is not known.")
    return {"ended": alerts.end_silence(actor, found, now=timezone.now())}


@router.get("/alert-rules", response=RuleList, summary="Every rule")
def list_rules(request: HttpRequest) -> dict[str, Any]:
    actor_for(request, "plant.view")
    return {"rules": [rules.document(each) for each in AlertRule.objects.order_by("name")]}


@router.get(
    "/alert-rules/{name}",
    response=RuleDetail,
    summary="One rule, and what it would have done in the last 24 h",
)
def get_rule(request: HttpRequest, name: str) -> dict[str, Any]:
    actor_for(request, "plant.view")
    found = AlertRule.objects.filter(name=name).first()
    if found is None:
        raise Http404(f"Rule {name} is not known.")
    return {**rules.document(found), "preview": _preview(found)}


@router.post("/alert-rules/{name}", response=RuleRow, summary="Make a rule, or change it")
def change_rule(request: HttpRequest, name: str, body: RuleFields) -> dict[str, Any]:
    actor = actor_for(request, "alert_rule.change")
    now = timezone.now()
    made = alerts.define_rule(actor, name, body.fields, reason=body.reason, now=now, revision=body.revision)
    return rules.document(made)


@router.post(
    "/alert-rules/{name}/preview",
    response=RulePreview,
    summary="What a rule would have done; nothing is changed",
)
def preview_rule(request: HttpRequest, name: str, body: RuleFields) -> dict[str, Any]:
    actor_for(request, "plant.view")
    known = AlertRule.objects.filter(name=name).first()
    fields = rules.checked(body.fields, {key: getattr(known, key) for key in rules.FIELDS} if known else None)
    return _preview(AlertRule(name=name, **fields))


@router.get("/receivers", response=ReceiverList, summary="Who is notified, and whether messages arrive")
def list_receivers(request: HttpRequest) -> dict[str, Any]:
    actor_for(request, "plant.view")
    found = Receiver.objects.order_by("name")
    watch = AlertWatch.objects.filter(pk=1).first() or AlertWatch()
    return {
        "receivers": [{**alerts.described(each), "messages": _messages(each)} for each in found],
        "dead_mans_switch": {"called_at": watch.alive_at, "error": watch.alive_error},
    }


@router.post("/receivers/{name}", response=ReceiverRow, summary="Make a receiver, or change it")
def change_receiver(request: HttpRequest, name: str, body: NewReceiver) -> dict[str, Any]:
    actor = actor_for(request, "receiver.change")
    return alerts.described(alerts.define_receiver(actor, name, **body.dict()))


@router.post(
    "/receivers/{name}/delete", response=ReceiverDeleted, summary="Take a receiver away that no rule names"
)
def delete_receiver(request: HttpRequest, name: str, body: Reason) -> dict[str, Any]:
    actor = actor_for(request, "receiver.change")
    alerts.delete_receiver(actor, _receiver(name), reason=body.reason)
    return {"deleted": name}


@router.post("/receivers/{name}/test", response=MessageRow, summary="Send a test message")
def test_receiver(request: HttpRequest, name: str) -> dict[str, Any]:
    actor = actor_for(request, "receiver.test")
    return _message(alerts.test_receiver(actor, _receiver(name), now=timezone.now()))


def _alerts() -> Any:
    fired = Alert.objects.filter(fired_at__isnull=False)
    return fired.select_related("rule", "silence__owner", "acknowledged_by", "snoozed_by")


def _one(alert_id: int) -> Alert:
    found: Alert | None = _alerts().select_related("incident").filter(pk=alert_id).first()
    if found is None:
        raise Http404(f"Alert {alert_id} is not known.")
    return found


def _incident(alert: Alert) -> dict[str, Any]:
    kept = incidents.incident_of(alert)
    rows = FollowUp.objects.filter(incident=alert.pk).order_by("pk")
    retained = acting.retained_data(alert.pk)
    return {
        "alert": alert.pk,
        "severity": incidents.severity_of(alert),
        "roles": kept.roles,
        "mitigated_at": kept.mitigated_at,
        "retained_since": retained and retained.since,
        "retained_until": retained and retained.until,
        **vars(incidents.times(alert)),
        "timeline": [vars(each) for each in timeline_of(alert, settings.WEIR_DATA)],
        "follow_ups": [_follow_up(each) for each in rows],
    }


def _follow_up(row: FollowUp) -> dict[str, Any]:
    names = ("id", "text", "owner", "due_on", "created_at", "done_at")
    return {"alert": row.incident_id, **{name: getattr(row, name) for name in names}}


def _review(alert: Alert) -> dict[str, Any]:
    kept = incidents.incident_of(alert)
    return {
        "alert": alert.pk,
        "text": review_of(alert, settings.WEIR_DATA),
        "is_draft": not kept.review,
        "revision": kept.review_revision,
    }


def _alert(alert: Alert) -> dict[str, Any]:
    more = {
        "impact": alert.impact,
        "worst": alert.worst,
        "threshold": alert.threshold,
        "came_back": alert.came_back,
        "resolved_at": _seconds(alert.resolved_at),
    }
    return {**document(alert), **more}


def _event(event: AlertEvent) -> dict[str, Any]:
    by = event.by.get_username() if event.by else None
    return {"at": event.at.timestamp(), "kind": event.kind, "by": by, "text": event.text}


def _silence(silence: Silence) -> dict[str, Any]:
    return {
        "id": silence.pk,
        "matchers": silence.matchers,
        "reason": silence.reason,
        "owner": silence.owner.get_username(),
        "expires_at": silence.expires_at.timestamp(),
    }


def _preview(rule: AlertRule) -> dict[str, Any]:
    found = preview.preview(rule, control(), settings.WEIR_DATA, timezone.now())
    fired = [{"labels": each.labels, "at": each.at, "until": each.until} for each in found.fired]
    return {"sentence": found.sentence(), "stored_seconds": found.stored_seconds, "fired": fired}


def _receiver(name: str) -> Receiver:
    found = Receiver.objects.filter(name=name).first()
    if found is None:
        raise Http404(f"Receiver {name} is not known.")
    return found


def _messages(receiver: Receiver) -> list[dict[str, Any]]:
    return [_message(each) for each in receiver.messages.order_by("-pk")[:5]]


def _message(message: Message) -> dict[str, Any]:
    return {
        "key": message.key,
        "state": message.state,
        "tries": message.tries,
        "title": message.content["title"],
        "created_at": message.created_at.timestamp(),
        "sent_at": _seconds(message.sent_at),
        "error": message.error,
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _reported(row: ReportedAlert) -> dict[str, Any]:
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
