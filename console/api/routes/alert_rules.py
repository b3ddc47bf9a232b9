"""Alert rules, silences, and receivers."""

from typing import Annotated, Any, NotRequired, TypedDict

from django.conf import settings
from django.http import Http404, HttpRequest
from django.utils import timezone

from common.stored_document import Instant, Seconds, Time, describe
from console.accounts.access import Actor
from console.actions import alerts
from console.api.request.answers import Created, Router, build_answer, convert, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import Reason, RequestBody
from console.api.routes.alerts import AlertRow, Severity, build_alert_document, convert_to_timestamp
from console.connections.control_server import control
from console.input.form_values import Id, digest_of
from workers.alerts.evaluation import preview
from workers.alerts.evaluation.preview import FiredEpisode
from workers.alerts.lifecycle.models import AlertRule, AlertWatch, Message, OnCallFeed, Receiver, Silence
from workers.alerts.lifecycle.routing import describe_steps, find_rule_steps
from workers.alerts.rules import rules, silences
from workers.alerts.rules.silences import list_active_silences

router = Router(tags=["alerts"])
_Comparing = TypedDict("_Comparing", {"is": Annotated[str, describe(values=("=", "!=", "~"))]})  # a Python keyword


class LabelMatcher(_Comparing):
    """A condition on a label."""

    label: str
    value: str


class SilenceRow(TypedDict):
    id: int
    matchers: Annotated[list[LabelMatcher], describe("An alert is silenced if it matches all matchers.")]
    reason: str
    owner: str
    expires_at: Instant


class SilenceList(TypedDict):
    silences: list[SilenceRow]


class SilencePreview(TypedDict):
    """The alerts that a silence would hide."""

    open: list[AlertRow]
    lately: Annotated[int, describe("Number of matching alerts in the last 7 days.")]
    of: Annotated[int, describe("Number of alerts in the last 7 days.")]


class SilenceEnd(TypedDict):
    ended: Annotated[bool, describe("false: already ended.")]


class NewSilence(RequestBody):
    """matchers: [{"label", "is": "=", "!=" or "~", "value"}], all of which must match."""

    matchers: list[dict[str, str]]
    reason: str
    minutes: float


class Matchers(RequestBody):
    matchers: list[dict[str, str]]


@router.get("/silences", summary="List active silences")
def list_silences(request: HttpRequest) -> SilenceList:
    actor_for(request, "plant.view")
    return {
        "silences": [
            _silence(active_silence) for active_silence in list_active_silences(timezone.now()).select_related("owner")
        ]
    }


@router.post("/silences", summary="Silence matching alerts")
def add_silence(request: HttpRequest, body: NewSilence) -> Created[SilenceRow]:
    actor = actor_for(request, "silence.set")
    made = alerts.silence(actor, now=timezone.now(), **body.dict())
    return _silence(made)


@router.post("/silences/preview", summary=("Preview a silence without creating it"))
def preview_silence(request: HttpRequest, body: Matchers) -> SilencePreview:
    actor = actor_for(request, "plant.view")
    preview = silences.preview_hidden_alerts(
        rules.read_matchers(body.matchers, least=1),
        timezone.now(),
        covers_integrity=alerts.may_silence_integrity(actor),
    )
    return {
        "open": [build_alert_document(alert) for alert in preview["open"]],
        "lately": preview["lately"],
        "of": preview["of"],
    }


@router.post("/silences/{silence_id}/end", summary="End a silence now")
def end_silence(request: HttpRequest, silence_id: Id) -> SilenceEnd:
    actor = actor_for(request, "silence.end")
    message = f"Silence {silence_id} is unknown. GET /api/v1/silences lists the silences."
    silence = get_or_404(Silence.objects.all(), message, pk=silence_id)
    return {"ended": alerts.end_silence(actor, silence, now=timezone.now())}


def _silence(silence: Silence) -> SilenceRow:
    owner, expires_at = silence.owner.get_username(), silence.expires_at.timestamp()
    return build_answer(SilenceRow, silence, owner=owner, expires_at=expires_at)


class EscalationStep(TypedDict):
    after_minutes: float
    receivers: list[str]


class RuleRow(TypedDict):
    """An alert rule."""

    name: str
    revision: Annotated[int, describe("Number of the rule's revision, which increases with each change.")]
    condition: str
    matchers: list[LabelMatcher]
    group_by: Annotated[list[str], describe("Alerts with equal values of these labels are sent in one message.")]
    escalation: Annotated[
        list[EscalationStep] | None, describe("The rule's own route; empty: nobody; null: the default route.")
    ]
    team: Annotated[str, describe("The team that the default route notifies; empty: none.")]
    enabled: bool
    title: str
    runbook: str
    severity: Severity
    threshold: Annotated[float, describe("Threshold in the unit of the condition.")]
    clear_threshold: float
    window_seconds: Seconds
    for_seconds: Seconds
    keep_seconds: Seconds
    acknowledge_minutes: float


class RuleRoute(TypedDict):
    """The receivers of a rule's alerts."""

    rule: str
    own: Annotated[bool, describe("Whether the rule has a route of its own; false: the default route.")]
    words: str
    steps: list[EscalationStep]


class RuleList(TypedDict):
    rules: list[RuleRow]


class RulePreview(TypedDict):
    """The alerts that a rule would have raised in the last 24 h."""

    sentence: str
    stored_seconds: Annotated[Seconds, describe("Length of the history that the preview uses, s.")]
    fired: list[FiredEpisode]


class RuleDetail(RuleRow):
    preview: RulePreview


class RuleFields(RequestBody):
    """Fields of a rule; omitted fields keep their values. `revision`: of the rule as it was read."""

    fields: dict[str, Any]
    reason: str = ""
    revision: int | None = None


@router.get("/alert-rules", summary="List alert rules")
def list_rules(request: HttpRequest) -> RuleList:
    actor_for(request, "plant.view")
    return {"rules": [_build_rule_row(alert_rule) for alert_rule in AlertRule.objects.order_by("name")]}


@router.get("/alert-rules/{name}", summary="Get an alert rule, and when it would have fired in the last 24 h")
def get_rule(request: HttpRequest, name: str) -> RuleDetail:
    actor_for(request, "plant.view")
    rule = AlertRule.objects.filter(name=name).first()
    if rule is None:
        raise Http404(f"Rule {name} is unknown. GET /api/v1/alert-rules lists the rules.")
    return {**_build_rule_row(rule), "preview": _preview(rule)}


@router.get("/alert-rules/{name}/route", summary="Get the receivers of a rule's alerts")
def get_route(request: HttpRequest, name: str, severity: str = "") -> RuleRoute:
    """Return the route. severity: instead of the rule's own."""
    actor_for(request, "plant.view")
    rule = get_or_404(AlertRule.objects.all(), f"Rule {name} is unknown.", name=name)
    steps = find_rule_steps(rule, severity or rule.severity)
    listed = [EscalationStep(after_minutes=step["after_minutes"], receivers=step["receivers"]) for step in steps]
    return {"rule": name, "own": rule.escalation is not None, "words": describe_steps(steps), "steps": listed}


@router.post("/alert-rules/{name}", summary="Create or change an alert rule")
def change_rule(request: HttpRequest, name: str, body: RuleFields) -> RuleRow:
    actor = actor_for(request, "alert_rule.change")
    now = timezone.now()
    made = alerts.define_rule(actor, name, body.fields, reason=body.reason, now=now, revision=body.revision)
    return _build_rule_row(made)


@router.post("/alert-rules/{name}/preview", summary="Preview an alert rule without changing it")
def preview_rule(request: HttpRequest, name: str, body: RuleFields) -> RulePreview:
    actor_for(request, "plant.view")
    known = AlertRule.objects.filter(name=name).first()
    fields = rules.validate_fields(body.fields, {key: getattr(known, key) for key in rules.FIELDS} if known else None)
    return _preview(AlertRule(name=name, **fields))


def _build_rule_row(rule: AlertRule) -> RuleRow:
    return convert(RuleRow, rules.document(rule))


def _preview(rule: AlertRule) -> RulePreview:
    previewed = preview.preview(rule, control(), settings.WEIR_DATA, timezone.now())
    return {
        "sentence": previewed.format_sentence(),
        "stored_seconds": previewed.stored_seconds,
        "fired": list(previewed.fired),
    }


class MessageRow(TypedDict):
    """One message to one receiver."""

    key: Annotated[str, describe("Idempotency key; the same for all attempts.")]
    state: Annotated[str, describe(values=Message.State.values)]
    tries: int
    title: str
    created_at: Instant
    sent_at: Instant | None
    error: str


class ReceiverRow(TypedDict):
    """A receiver; fields of other channels are absent."""

    name: str
    channel: Annotated[str, describe(values=Receiver.Channel.values)]
    addresses: NotRequired[Annotated[list[str], describe("Email addresses.")]]
    url: NotRequired[
        Annotated[str, describe("Address of a webhook or Alertmanager; only the host for callers who can't change it.")]
    ]
    secret_environment: NotRequired[
        Annotated[str, describe("Environment variable with the secret, the token, or the Apprise address.")]
    ]
    answers_environment: NotRequired[
        Annotated[str, describe("Environment variable with the secret that authenticates chat replies.")]
    ]
    otherwise: NotRequired[
        Annotated[str, describe("Receiver to notify while nobody is on call; on-call calendars only.")]
    ]
    broken_events: NotRequired[Annotated[list[str], describe("Calendar events that are skipped, and why.")]]
    tells_resolved: bool
    gets_reports: Annotated[bool, describe("Whether the receiver gets the weekly report.")]
    enabled: bool
    severities: Annotated[list[Severity], describe("Severities that it receives through the default route.")]
    team: Annotated[str, describe("Team whose alerts the receiver gets; empty: the alerts of all rules.")]
    route_minutes: Annotated[float, describe("Delay of the default route, minutes.")]
    digest: Annotated[str, describe("Digest of the current state. A change with an older digest is rejected.")]


class ReceiverWithMessages(ReceiverRow):
    messages: Annotated[list[MessageRow], describe("The last 5 messages.")]


class DeadMansSwitchStatus(TypedDict):
    """The last call of the dead man's switch address."""

    called_at: Annotated[
        Time | None, describe("Time of the last successful call; null: no address is set, or no call succeeded.")
    ]
    error: Annotated[str, describe("Why the last call failed; empty: it succeeded, or no address is set.")]


class ReceiverList(TypedDict):
    receivers: list[ReceiverWithMessages]
    dead_mans_switch: DeadMansSwitchStatus


class ReceiverDeletion(TypedDict):
    deleted: str


class NewReceiver(RequestBody):
    """A receiver.

    settings: email {"addresses"}, webhook and alertmanager {"url", "secret_environment"}, apprise
    {"secret_environment", "answers_environment"}, schedule {"secret_environment", "otherwise"}, browser {}. Omitted
    fields and null keep their values; a new receiver is notified of resolved alerts, gets no reports, is enabled, and
    receives critical alerts and warnings through the default route.
    digest: of the receiver as it was read; if it has changed since, the request is rejected.
    """

    channel: str
    settings: dict[str, Any] = {}
    tells_resolved: bool | None = None
    gets_reports: bool | None = None
    enabled: bool | None = None
    severities: list[str] | None = None
    team: str | None = None
    route_minutes: float | None = None
    digest: str = ""
    reason: str


@router.get("/receivers", summary="List receivers and their delivery status")
def list_receivers(request: HttpRequest) -> ReceiverList:
    actor = actor_for(request, "plant.view")
    receivers = Receiver.objects.order_by("name")
    watch = AlertWatch.objects.filter(pk=1).first() or AlertWatch()
    return {
        "receivers": [
            {
                **_build_receiver_row(actor, receiver),
                "messages": [_build_message_row(message) for message in receiver.messages.order_by("-pk")[:5]],
            }
            for receiver in receivers
        ],
        "dead_mans_switch": {"called_at": watch.alive_at, "error": watch.alive_error},
    }


@router.post("/receivers/{name}", summary="Create or change a receiver")
def change_receiver(request: HttpRequest, name: str, body: NewReceiver) -> ReceiverRow:
    actor = actor_for(request, "receiver.change")
    return _build_receiver_row(actor, alerts.define_receiver(actor, name, **body.dict()))


@router.post("/receivers/{name}/delete", summary="Delete a receiver that no rule uses")
def delete_receiver(request: HttpRequest, name: str, body: Reason) -> ReceiverDeletion:
    actor = actor_for(request, "receiver.change")
    alerts.delete_receiver(actor, _get_receiver_or_404(name), reason=body.reason)
    return {"deleted": name}


@router.post("/receivers/{name}/test", summary="Send a test message")
def test_receiver(request: HttpRequest, name: str) -> MessageRow:
    actor = actor_for(request, "receiver.test")
    return _build_message_row(alerts.test_receiver(actor, _get_receiver_or_404(name), now=timezone.now()))


def _build_receiver_row(actor: Actor, receiver: Receiver) -> ReceiverRow:
    row = {**alerts.describe_receiver_for(actor, receiver), "digest": digest_of(alerts.describe_receiver(receiver))}
    if receiver.channel == Receiver.Channel.SCHEDULE:
        feed = OnCallFeed.objects.filter(receiver=receiver).first()
        row["broken_events"] = feed.broken if feed else []
    return convert(ReceiverRow, row)


def _build_message_row(message: Message) -> MessageRow:
    return build_answer(
        MessageRow,
        message,
        title=message.content["title"],
        created_at=message.created_at.timestamp(),
        sent_at=convert_to_timestamp(message.sent_at),
    )


def _get_receiver_or_404(name: str) -> Receiver:
    message = f"Receiver {name} is unknown. GET /api/v1/receivers lists the receivers."
    return get_or_404(Receiver.objects.all(), message, name=name)
