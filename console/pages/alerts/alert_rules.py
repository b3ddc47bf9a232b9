"""Alert rules: the condition, when it fires, and who is notified. A change is previewed on the last day."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from django.conf import settings
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from common.errors import BadInput
from console.accounts.access import actor_of, requires
from console.actions import alerts
from console.connections.control_server import control
from console.input.form_values import parse_number, parse_row_id
from console.pages.alerts.silences import MatcherRow, build_matcher_rows, read_matchers
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
    text_of,
)
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.condition import Condition
from workers.alerts.evaluation import preview as previews
from workers.alerts.lifecycle.models import AlertRule, Receiver
from workers.alerts.lifecycle.open_alerts import OPEN
from workers.alerts.lifecycle.routing import build_default_steps, describe_steps
from workers.alerts.rules import rules

STEPS = 3
DEFAULT, OWN = "default", "own"  # routes
MAX_SHOWN = 8


@dataclass(frozen=True)
class ListedRule:
    """A rule with the number of its `open` alerts, its alerts of the last `week`, and its sentence."""

    rule: AlertRule
    words: str


@dataclass(frozen=True)
class EscalationRow:
    """A receiver and the delay after which it is notified; `at` is the position of the step."""

    at: int
    after_minutes: float | str
    receivers: Collection[str]


@dataclass(frozen=True, kw_only=True)
class RuleNumber:
    """A number in a rule's form: a threshold or a time."""

    name: str
    unit: str
    help: str
    value: float | None


@dataclass(frozen=True, kw_only=True)
class AlertRuleForm:
    """Values and choices of a rule's form."""

    numbers: list[RuleNumber]
    conditions: Collection[Condition]
    has_condition: bool  # including the rule's own
    severities: Collection[str]
    steps: list[EscalationRow]
    receivers: list[str]
    route: str
    default_route: str  # in words
    teams: list[str]
    rows: list[MatcherRow]
    labels: Collection[str]
    operators: Collection[str]
    words: str


@dataclass(frozen=True, kw_only=True)
class AlertRulesPage(FormPage):
    """All rules, and the open rule with its form."""

    TEMPLATE, NAME = "alerts/alert_rules.html", "alert-rules"

    rules: list[ListedRule]  # sorted by severity and name
    rule: AlertRule | None
    form: AlertRuleForm | None


@declare_page("plant.view")
def rules_page(request: HttpRequest, name: str = "") -> HttpResponse:
    rejected = get_rejected_form(request)
    typed, errors = rejected.submitted, rejected.errors
    name = name or typed.get("name", "")
    fired = Q(alerts__fired_at__gte=timezone.now() - timedelta(days=7))
    counted = AlertRule.objects.annotate(
        open=Count("alerts", filter=Q(alerts__state__in=OPEN)), week=Count("alerts", filter=fired)
    )
    rows = sorted(counted, key=lambda rule: (list(AlertRule.Severity.values).index(rule.severity), rule.name))
    opened = None
    if name == "new" or (errors and not typed.get("revision", "").strip()):
        blank = rules.validate_fields({"condition": "queue_wait", "title": "Long wait in queue {queue}"})
        opened = AlertRule(name="", **{**blank, **(_readable(request) if errors else {})})
    elif name:
        opened = get_object_or_404(AlertRule, name=name)
    page = AlertRulesPage(
        rules=[ListedRule(row, format_rule(row)) for row in rows],
        rule=opened,
        form=_build_form(opened) if opened else None,
    )
    return render_page(request, page, "frame")


def list_teams() -> list[str]:
    """Return the teams that rules and receivers name."""
    named = {*AlertRule.objects.values_list("team", flat=True), *Receiver.objects.values_list("team", flat=True)}
    return sorted(named - {""})


def format_rule(rule: AlertRule) -> str:
    """Return a rule as a sentence: "queue wait ≥ 30 s for 60 s; clear below 15"."""
    condition = CONDITIONS.get(rule.condition)
    if condition is None:
        return "a condition that this version does not support"
    sign, side = ("≥", "below") if condition.above else ("≤", "above")
    held = f" for {rule.for_seconds:g} s" if rule.for_seconds else ""
    clear = f"; clear {side} {rule.clear_threshold:g}" if rule.clear_threshold != rule.threshold else ""
    where = f" where {rules.format_matchers(rule.matchers)}" if rule.matchers else ""
    unit = f" {condition.unit}" if condition.unit else ""
    return f"{rule.condition.replace('_', ' ')} {sign} {rule.threshold:g}{unit}{held}{where}{clear}"


def _build_form(rule: AlertRule) -> AlertRuleForm:
    names = list(Receiver.objects.order_by("name").values_list("name", flat=True))
    own = rule.escalation or []
    steps = [*own, *[{"after_minutes": "", "receivers": []}] * (STEPS - len(own))]
    condition = CONDITIONS.get(rule.condition)  # Another version may have had other conditions.
    unit = (condition.unit if condition else "") or "of 1"
    return AlertRuleForm(
        numbers=[
            RuleNumber(
                name=number.name,
                unit=unit if "condition" in number.unit else number.unit,
                help=number.help,
                value=getattr(rule, number.name),
            )
            for number in rules.NUMBERS
        ],
        conditions=CONDITIONS.values(),
        has_condition=condition is not None,
        severities=AlertRule.Severity.values,
        steps=[EscalationRow(at, step["after_minutes"], step["receivers"]) for at, step in enumerate(steps)],
        receivers=names,
        route=DEFAULT if rule.escalation is None else OWN,
        default_route=describe_steps(build_default_steps(Receiver.objects.all(), rule.severity, rule.team)),
        teams=list_teams(),
        rows=build_matcher_rows(rule.matchers),
        labels=rules.LABELS,
        operators=rules.OPERATORS,
        words=format_rule(rule),
    )


def _fields(request: HttpRequest) -> dict[str, Any]:
    """Return the rule as it was posted."""
    posted = request.POST
    numbers = {
        number.name: parse_number(posted[number.name], number.name)
        for number in rules.NUMBERS
        if posted.get(number.name, "").strip()
    }
    return {
        "condition": posted.get("condition", ""),
        "title": posted.get("title", ""),
        "runbook": posted.get("runbook", ""),
        "severity": posted.get("severity", ""),
        "enabled": "enabled" in posted,
        "matchers": read_matchers(posted),
        "group_by": posted.getlist("group_by"),
        "escalation": _steps(request),
        "team": posted.get("team", ""),
        **numbers,
    }


def _readable(request: HttpRequest) -> dict[str, Any]:
    """Return the readable fields of a rejected rule, so that the user need not type them again."""
    posted = request.POST
    values: dict[str, Any] = {
        "enabled": "enabled" in posted,
        "matchers": read_matchers(posted),
        "group_by": posted.getlist("group_by"),
        **{name: posted[name] for name in ("title", "runbook", "severity", "team") if name in posted},
    }
    if posted.get("condition") in CONDITIONS:
        values["condition"] = posted["condition"]
    for number in rules.NUMBERS:
        with suppress(BadInput):
            values[number.name] = parse_number(posted.get(number.name, ""), number.name)
    with suppress(BadInput):
        values["escalation"] = _steps(request)
    return values


def _steps(request: HttpRequest) -> list[dict[str, Any]] | None:
    """Return the escalation steps that notify a receiver; None for the default route."""
    if request.POST.get("route") == DEFAULT:
        if any(request.POST.getlist(f"receivers-{at}") for at in range(rules.MAX_STEPS)):
            raise BadInput(
                "route", "is the default route, but steps are selected. Choose the steps as the route, or clear them."
            )
        return None
    steps = []
    for at in range(rules.MAX_STEPS):
        receivers = request.POST.getlist(f"receivers-{at}")
        if receivers:
            minutes = parse_number(request.POST.get(f"after-{at}", "").strip() or "0", f"after-{at}")
            steps.append({"after_minutes": minutes, "receivers": receivers})
    return steps


def _as_posted(request: HttpRequest) -> AlertRule:
    """Return the rule as it would be saved. Fields that the form leaves empty keep their value. Raises `BadInput`."""
    name = request.POST.get("name", "")
    known = AlertRule.objects.filter(name=name).first() if request.POST.get("revision") else None
    before = {field: getattr(known, field) for field in rules.FIELDS} if known else None
    return AlertRule(name=name or "new", **rules.validate_fields(_fields(request), before))


@require_POST
@requires("plant.view")
def preview(request: HttpRequest) -> HttpResponse:
    """Return what the posted rule would have done, as {"sentence", "rows"}; nothing is changed."""
    try:
        rule = _as_posted(request)
    except BadInput as error:
        said = f"{error.field.replace('_', ' ').capitalize()} {error.message}"
        return JsonResponse({"sentence": said, "rows": []})
    try:
        previewed = previews.preview(rule, control(), settings.WEIR_DATA, timezone.now())
    except redis.RedisError:
        return JsonResponse({"sentence": "The control server is not responding. Try again in a moment.", "rows": []})
    rows = [
        {
            "title": rules.format_title(rule.title, fired.labels),
            "at": fired.at,
            "note": "still firing" if fired.until is None else f"{max(1, round((fired.until - fired.at) / 60))} min",
        }
        for fired in previewed.fired[::-1][:MAX_SHOWN]
    ]
    return JsonResponse({"sentence": f"{format_rule(rule)}. {previewed.format_sentence()}", "rows": rows})


@declare_action("alert_rule.change", rules_page)
def change(request: HttpRequest) -> ActionResult:
    """Create or change a rule. Posted: name, the rule's fields, revision (as shown; empty: a new rule), reason."""
    name = text_of(request, "name", "Enter a name")
    revision = request.POST.get("revision", "").strip()
    known = AlertRule.objects.filter(name=name).exists()
    if not revision and known:
        raise BadInput("name", "is already taken by another rule. Choose another name.")
    made = alerts.define_rule(
        actor_of(request),
        name,
        _fields(request),
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        revision=parse_row_id(revision),
    )
    return ActionResult(
        f"Saved {made.name}: {format_rule(made)}.",
        reverse("alert-rule", args=[made.name]),
        {} if known else {"go": reverse("alert-rule", args=[made.name])},
    )
