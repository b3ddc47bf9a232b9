"""Receivers: who is notified and how, whether messages arrive, and a test of each receiver."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor, actor_of
from console.actions import alerts
from console.input.form_values import digest_of, fill_form, parse_number
from console.pages.alerts.alert_rules import list_teams
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
    text_of,
)
from workers.alerts.delivery import alertmanager, apprise, schedule, webhook
from workers.alerts.delivery import receivers as kept
from workers.alerts.delivery.schedule_feed import VALID_FOR, list_people_on_call
from workers.alerts.delivery.webhook import derive_secret
from workers.alerts.lifecycle.models import AlertRule, AlertWatch, Message, OnCallFeed, Receiver, Silence
from workers.alerts.lifecycle.routing import build_default_steps, describe_steps, find_rule_steps
from workers.alerts.rules import rules
from workers.alerts.rules.silences import list_active_silences

MAX_MESSAGES = 30
SETUP_ERRORS: Mapping[str, Callable[[Receiver], str]] = {
    Receiver.Channel.WEBHOOK: webhook.setup_error,
    Receiver.Channel.ALERTMANAGER: alertmanager.setup_error,
    Receiver.Channel.APPRISE: apprise.setup_error,
}


@dataclass(frozen=True, kw_only=True)
class OnCall:
    """The person on call now, until when if known, and whether the calendar feed can be read."""

    people: list[str]
    until: datetime | None
    read_at: datetime | None
    error: str
    broken: list[str]  # events that can't be read
    holds_until: datetime | None  # while the feed fails


@dataclass(frozen=True, kw_only=True)
class ListedReceiver:
    """A receiver.

    last: its newest message; failing: the message with the most failed attempts; secret: for administrators who have
    recently confirmed their identity; address: of a webhook or Alertmanager, as far as the reader may see it.
    """

    receiver: Receiver
    address: str
    used_by: list[str]
    last: Message | None
    failing: Message | None
    secret: str
    setup_error: str
    feed: "OnCall | None"


@dataclass(frozen=True, kw_only=True)
class ReceiverForm:
    """The form of a receiver: addresses one a line; fields of other channels are empty."""

    name: str
    channel: str
    addresses: str
    url: str
    secret_environment: str
    answers_environment: str
    otherwise: str
    tells_resolved: bool
    gets_reports: bool
    enabled: bool
    critical: bool
    warning: bool
    notice: bool
    team: str
    route_minutes: str


@dataclass(frozen=True, kw_only=True)
class RouteBranch:
    """A branch of the default route: alerts of a severity, of one team or (team "") of all. words: who is notified."""

    severity: str
    team: str
    words: str


@dataclass(frozen=True, kw_only=True)
class OwnRoute:
    """A rule that overrides the default route. words: who is notified."""

    rule: AlertRule
    words: str


@dataclass(frozen=True, kw_only=True)
class WhoIsNotified:
    """The answer for one rule and subject. silence: a silence that hides such an alert now."""

    rule: AlertRule
    words: str
    is_own: bool
    silence: Silence | None


@dataclass(frozen=True, kw_only=True)
class ReceiversPage(FormPage):
    """All receivers, and the latest messages."""

    TEMPLATE, NAME = "alerts/receivers.html", "alert-rules"

    receivers: list[ListedReceiver]
    hides_secrets: bool
    editing: Receiver | None  # the receiver that `?edit=` names
    digest: str  # of the receiver as it is
    form: ReceiverForm
    channels: Collection[str]
    messages_sent: QuerySet[Message]
    mail_host: str
    watch: AlertWatch | None  # of the dead man's switch
    branches: list[RouteBranch]
    own_routes: list[OwnRoute]
    default_rules: int  # rules that follow the default route
    rule_names: QuerySet[AlertRule, str]
    labels: Collection[str]
    asked: Mapping[str, str]
    who: WhoIsNotified | None
    teams: list[str]
    fallbacks: list[str]  # receivers that a schedule may name for when nobody is on call


@declare_page("plant.view")
def receivers_page(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    shows_secrets = actor.may("receiver.change") and actor.is_confirmed()
    rows = [_build_row(actor, receiver, shows_secrets) for receiver in Receiver.objects.order_by("name")]
    editing = Receiver.objects.filter(name=request.GET.get("edit", "")).first()
    page = ReceiversPage(
        receivers=rows,
        hides_secrets=actor.may("receiver.change") and not shows_secrets,
        editing=editing,
        digest=digest_of(alerts.describe_receiver(editing)) if editing else "",
        form=_build_form(editing, get_rejected_form(request).submitted),
        channels=Receiver.Channel.values,
        messages_sent=Message.objects.select_related("receiver").order_by("-pk")[:MAX_MESSAGES],
        mail_host=settings.EMAIL_HOST,
        watch=AlertWatch.objects.filter(pk=1).first(),
        branches=list(_iterate_branches()),
        own_routes=[
            OwnRoute(rule=rule, words=describe_steps(rule.escalation or []))
            for rule in AlertRule.objects.filter(escalation__isnull=False).order_by("name")
        ],
        default_rules=AlertRule.objects.filter(escalation__isnull=True).count(),
        rule_names=AlertRule.objects.order_by("name").values_list("name", flat=True),
        labels=rules.LABELS,
        asked=request.GET.dict(),
        who=_find_who_is_notified(request.GET),
        teams=list_teams(),
        fallbacks=[
            receiver.name
            for receiver in Receiver.objects.filter(enabled=True).order_by("name")
            if receiver.channel != Receiver.Channel.SCHEDULE
        ],
    )
    return render_page(request, page, "frame")


def _iterate_branches() -> Iterator[RouteBranch]:
    """Return the default route as a tree: by severity, then by team where a team gets more than all others."""
    enabled = list(Receiver.objects.filter(enabled=True))
    for severity in AlertRule.Severity.values:
        for_all = build_default_steps(enabled, severity, "")
        yield RouteBranch(severity=severity, team="", words=describe_steps(for_all))
        for team in list_teams():
            steps = build_default_steps(enabled, severity, team)
            if steps != for_all:
                yield RouteBranch(severity=severity, team=team, words=describe_steps(steps))


def _find_who_is_notified(asked: QueryDict) -> WhoIsNotified | None:
    """Return the answer for `rule`, and `label` and `value` of a subject if they are given."""
    rule = AlertRule.objects.filter(name=asked.get("rule", "")).first()
    if rule is None:
        return None
    labels = {"rule": rule.name, "severity": rule.severity, asked.get("label", ""): asked.get("value", "").strip()}
    silences = list_active_silences(timezone.now()).select_related("owner")
    hiding = next((silence for silence in silences if rules.matches(silence.matchers, labels)), None)
    words = describe_steps(find_rule_steps(rule, rule.severity))
    return WhoIsNotified(rule=rule, words=words, is_own=rule.escalation is not None, silence=hiding)


def _build_form(editing: Receiver | None, submitted: QueryDict) -> ReceiverForm:
    """Return what was typed and rejected, or else the receiver being edited."""
    if submitted:
        return fill_form(ReceiverForm, submitted)
    if editing is None:
        routed = dict.fromkeys(kept.ROUTED, True)
        return fill_form(ReceiverForm, {"tells_resolved": True, "enabled": True, "route_minutes": "0", **routed})
    lines = "\n".join(editing.settings.get("addresses", ()))
    flags = {name: getattr(editing, name) for name in ("tells_resolved", "gets_reports", "enabled")}
    flags |= {severity: severity in editing.severities for severity in AlertRule.Severity.values}
    named = {"name": editing.name, "channel": editing.channel, "team": editing.team}
    named["route_minutes"] = f"{editing.route_minutes:g}"
    return fill_form(ReceiverForm, {**named, **editing.settings, "addresses": lines, **flags})


def _build_row(actor: Actor, receiver: Receiver, shows_secrets: bool) -> ListedReceiver:
    derived = receiver.channel == Receiver.Channel.WEBHOOK and not receiver.settings.get("secret_environment")
    waiting = receiver.messages.filter(state=Message.State.WAITING, tries__gt=0)
    return ListedReceiver(
        receiver=receiver,
        address=alerts.describe_receiver_for(actor, receiver).get("url", ""),
        used_by=kept.list_rules_using(receiver),
        last=receiver.messages.order_by("-pk").first(),
        failing=waiting.order_by("-tries").first(),
        secret=derive_secret(receiver) if derived and shows_secrets else "",
        setup_error=SETUP_ERRORS[receiver.channel](receiver) if receiver.channel in SETUP_ERRORS else "",
        feed=_on_call(receiver, timezone.now()),
    )


def _on_call(receiver: Receiver, now: datetime) -> OnCall | None:
    if receiver.channel != Receiver.Channel.SCHEDULE:
        return None
    feed = OnCallFeed.objects.filter(receiver=receiver).first() or OnCallFeed(receiver=receiver)
    shifts = [schedule.shift_of(shift) for shift in feed.shifts]
    return OnCall(
        people=list_people_on_call(feed, now),
        until=schedule.find_next_change(shifts, now),
        read_at=feed.read_at,
        error=feed.error,
        broken=feed.broken,
        holds_until=feed.read_at + VALID_FOR if feed.read_at else None,
    )


@declare_action("receiver.change", receivers_page)
def change(request: HttpRequest) -> ActionResult:
    """Create or change a receiver.

    Posted: name, channel, addresses (one a line, or separated by commas), url, secret_environment, answers_environment,
    tells_resolved, enabled, a severity (critical, warning, notice) for each that it takes by the default route, team,
    route_minutes, reason; digest (of the receiver as shown; empty for a new one).
    """
    posted = request.POST
    digest = posted.get("digest", "")
    if not digest and Receiver.objects.filter(name=posted.get("name", "").strip()).exists():
        raise BadInput("name", "is already taken by another receiver. Choose another name.")
    name, channel = text_of(request, "name", "Enter a name"), posted.get("channel", "")
    addresses = [part.strip() for part in posted.get("addresses", "").replace("\n", ",").split(",") if part.strip()]
    reached = {key: posted.get(key, "").strip() for key in kept.REACHED}
    given: dict[str, dict[str, Any]] = {
        "email": {"addresses": addresses},
        "webhook": reached,
        "alertmanager": reached,
        "apprise": {
            "secret_environment": reached["secret_environment"],
            "answers_environment": posted.get("answers_environment", "").strip(),
        },
        "schedule": {
            "secret_environment": reached["secret_environment"],
            "otherwise": posted.get("otherwise", "").strip(),
        },
    }
    made = alerts.define_receiver(
        actor_of(request),
        name,
        channel,
        given.get(channel, {}),
        reason=posted.get("reason", ""),
        digest=digest,
        tells_resolved="tells_resolved" in posted,
        gets_reports="gets_reports" in posted,
        enabled="enabled" in posted,
        severities=[severity for severity in AlertRule.Severity.values if severity in posted],
        team=posted.get("team", ""),
        route_minutes=parse_number(posted.get("route_minutes", "").strip() or "0", "route_minutes"),
    )
    return ActionResult(
        (f"{made.name} saved. Send a test message to check it."), reverse("receivers"), {"go": reverse("receivers")}
    )


@declare_action("receiver.change", receivers_page)
def delete(request: HttpRequest, receiver_id: int) -> ActionResult:
    """Delete a receiver. Posted: reason."""
    receiver = get_object_or_404(Receiver, pk=receiver_id)
    alerts.delete_receiver(actor_of(request), receiver, reason=request.POST.get("reason", ""))
    return ActionResult(f"{receiver.name} was deleted.", reverse("receivers"), {"go": reverse("receivers")})


@declare_action("receiver.test", receivers_page)
def test(request: HttpRequest, receiver_id: int) -> ActionResult:
    """Send a test message like any other; the page shows whether it arrives. Nothing is posted."""
    receiver = get_object_or_404(Receiver, pk=receiver_id)
    alerts.test_receiver(actor_of(request), receiver, now=timezone.now())
    return ActionResult(
        (f"A test message was sent to {receiver.name}. Its delivery status appears below."), reverse("receivers")
    )
