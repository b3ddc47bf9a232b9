"""Rules as people define them, and those that a plant starts with: read, checked, stored.

Matchers narrow a rule or a silence: [{"label": "queue", "is": "=", "value": "alert"}], all of which must match. `=` the
value, `!=` anything else (also a missing label), `~` a pattern with * and ?. Errors name their field; nothing was
changed then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from common import checks
from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.reason import capitalize
from workers.alerts.conditions.catalog import CONDITIONS, get_condition
from workers.alerts.conditions.condition import describe_loop
from workers.alerts.conditions.gatherer import MAX_WINDOW_SECONDS
from workers.alerts.lifecycle.automaton import Terms, Thresholds
from workers.alerts.lifecycle.models import AlertRule, Receiver

OPERATORS = ("=", "!=", "~")
LABELS = tuple(
    dict.fromkeys(
        (
            *("rule", "severity", "queue", "node", "loop", "law", "producer", "host", "pipeline", "plan", "task"),
            *("receiver", "override", "what"),  # what: of an override, its name and scope
            *("plant", "plant_queue", "group", "sensor", "objective"),
            *(condition.label for condition in CONDITIONS.values() if condition.label),
        )
    )
)
MAX_MATCHERS, MAX_VALUE = 10, 200
MATCHER_KEYS = {"label", "is", "value"}
Matcher = Mapping[str, str]

MAX_STEPS, MAX_DELAY_MINUTES = 5, 24 * 60
MAX_TITLE, MAX_RUNBOOK, MAX_TEAM = 120, 500, 40
# The numbers of a rule, with the help texts of their fields.
NUMBERS = (
    Parameter("threshold", "unit of the condition", "Fires at this value or beyond.", 1.0, -1e9, 1e9),
    Parameter(
        "clear_threshold", "unit of the condition",
        "Resolves past this value. Between the thresholds, the alert keeps its state.", None, -1e9, 1e9,
    ),
    Parameter("window_seconds", "s", "Time range for counting.", 600.0, 10.0, MAX_WINDOW_SECONDS),
    Parameter("for_seconds", "s", "Fires after the condition is true for this time.", 0.0, 0.0, 86_400.0),
    Parameter(
        "keep_seconds", "s", "Resolves after the condition is false for this time.", 30.0, 0.0, 86_400.0,
    ),
    Parameter(
        "acknowledge_minutes", "min", "An acknowledged alert fires again after this time.", 60.0, 1.0,
        1_440.0,
    ),
)  # fmt: skip
TEXTS = ("title", "runbook", "severity")
ROUTING = ("group_by", "escalation", "team")
FIELDS = ("condition", "matchers", *ROUTING, "enabled", *TEXTS, *(number.name for number in NUMBERS))
CONSOLES = "consoles"
HELP_PATH = "/help/operate/alerts/"
# Conditions whose page in Help is that of another condition.
DESCRIBED_WITH = {"sensor_above": "sensor_silent", "sensor_below": "sensor_silent", "task_failing": "failure_group_new"}


def matches(matchers: Sequence[Matcher], labels: Mapping[str, str]) -> bool:
    """Return whether all matchers match; without matchers, everything does."""

    def holds(matcher: Matcher) -> bool:
        value, wanted = labels.get(matcher["label"]), matcher["value"]
        if matcher["is"] == "!=" or value is None:
            return matcher["is"] == "!=" and value != wanted
        return value == wanted if matcher["is"] == "=" else fnmatchcase(value, wanted)

    return all(map(holds, matchers))


def read_matchers(matchers: object, field: str = "matchers", least: int = 0) -> list[dict[str, str]]:
    """Return the checked matchers of a request. Raises `BadInput` naming the wrong one."""
    if not isinstance(matchers, list) or not least <= len(matchers) <= MAX_MATCHERS:
        raise BadInput(field, f"must have {least} to {MAX_MATCHERS} matchers of label, is, and value.")
    checked = []
    for at, matcher in enumerate(matchers):
        where = f"{field}[{at}]"
        if not isinstance(matcher, Mapping) or set(matcher) != MATCHER_KEYS:
            raise BadInput(where, "must have label, is, and value.")
        label, operator, value = (matcher[key] for key in ("label", "is", "value"))
        checks.accept_choice(LABELS).validate(label, f"{where}.label", end=".")
        checks.accept_choice(OPERATORS, f"one of {' '.join(OPERATORS)}").validate(operator, f"{where}.is", end=".")
        text = checks.accept_non_empty_text(MAX_VALUE).validate(value, f"{where}.value", end=".")
        checked.append({"label": label, "is": operator, "value": text})
    return checked


def format_matchers(matchers: Sequence[Matcher]) -> str:
    """Return queue = alert and severity != critical; every alert if there are none."""
    return " and ".join(f"{m['label']} {m['is']} {m['value']}" for m in matchers) or "every alert"


def build_terms(rule: AlertRule) -> Terms:
    return Terms(rule.for_seconds, rule.keep_seconds, 60 * rule.acknowledge_minutes)


def build_thresholds(rule: AlertRule) -> Thresholds:
    return Thresholds(rule.threshold, rule.clear_threshold, CONDITIONS[rule.condition].above)


def document(rule: AlertRule) -> dict[str, Any]:
    """Return the rule as `define` reads it."""
    return {"name": rule.name, "revision": rule.revision, **{name: getattr(rule, name) for name in FIELDS}}


@transaction.atomic
def define(name: str, fields: Mapping[str, Any], now: datetime, revision: int | None = None) -> AlertRule:
    """Create a rule, or change the one of that name; omitted fields stay (or have their defaults).

    `revision`: the revision that was edited; if somebody else has changed the rule meanwhile, the change is
    refused. None overwrites. Raises `BadInput`.
    """
    checks.accept_name().validate(name, "name", end=".")
    existing = AlertRule.objects.select_for_update().filter(name=name).first()
    if existing is not None and revision is not None and existing.revision != revision:
        raise BadInput("revision", "is outdated: another user changed the rule. Reload the page.")
    rule = existing or AlertRule(name=name, revision=0)
    for field, value in validate_fields(fields, None if existing is None else document(existing)).items():
        setattr(rule, field, value)
    rule.revision, rule.changed_at = rule.revision + 1, now
    rule.save()
    return rule


def validate_fields(fields: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all fields of a rule, the given ones in place of those before. Raises `BadInput`."""
    checks.refuse_unknown(fields, FIELDS, "", message="is not a field of a rule. The fields are {known}.")
    given = {**(before or {}), **fields}
    watched = get_condition(given.get("condition", ""))
    numbers: dict[str, Any] = {}
    for number in NUMBERS:
        value = given.get(number.name, number.default)
        try:
            is_omitted = value is None and number.name == "clear_threshold"
            numbers[number.name] = numbers["threshold"] if is_omitted else number.check(value, "")
        except BadInput as error:
            raise BadInput(number.name, error.message) from None
    threshold, clear = numbers["threshold"], numbers["clear_threshold"]
    if (clear > threshold) if watched.above else (clear < threshold):
        side = "at most" if watched.above else "at least"
        raise BadInput("clear_threshold", f"must be {side} the threshold ({threshold:g}), not {clear:g}.")
    title = checks.accept_non_empty_text(MAX_TITLE).validate(given.get("title", watched.help), "title", end=".")
    severities = checks.accept_choice(AlertRule.Severity.values)
    labels = checks.list_of(checks.accept_choice(LABELS), f"a list of labels from {', '.join(LABELS)}")
    return {
        "condition": watched.name,
        "title": title,
        "runbook": _validate_runbook(given.get("runbook", "")),
        "severity": severities.validate(given.get("severity", "warning"), "severity", end="."),
        "matchers": read_matchers(given.get("matchers", [])),
        "group_by": list(dict.fromkeys(labels.validate(given.get("group_by", ["rule"]), "group_by", end="."))),
        "escalation": _validate_escalation(given.get("escalation")),
        "team": validate_team(given.get("team", "")),
        "enabled": checks.FLAG.validate(given.get("enabled", True), "enabled", end="."),
        **numbers,
    }


def format_title(title: str, labels: Mapping[str, str]) -> str:
    """Return a title with its labels filled in; labels that this subject lacks are left out."""
    begins_with_loop = title.startswith("{loop}")
    for label in LABELS:
        value = labels.get(label, "")
        title = title.replace(f"{{{label}}}", describe_loop(value) if label == "loop" else value)
    return (capitalize(title) if begins_with_loop else title)[:200]


def _validate_runbook(link: object) -> str:
    """Return a web address, or "": a link that runs a script is none."""
    text = link.strip() if isinstance(link, str) else ""
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets around something that is no IPv6 address
        parts = urlsplit("")
    if text and not (parts.scheme in ("http", "https") and parts.netloc):
        raise BadInput("runbook", "must be a URL that starts with https:// or http://, or empty.")
    if len(text) > MAX_RUNBOOK:
        raise BadInput("runbook", f"must have at most {MAX_RUNBOOK} characters.")
    return text


def validate_team(team: object) -> str:
    """Return the name of a team, "" for none. Raises `BadInput` naming team."""
    text = team.strip() if isinstance(team, str) else None
    if text is None or len(text) > MAX_TEAM:
        raise BadInput("team", f"must be the name of a team with at most {MAX_TEAM} characters, or empty.")
    return text


def _validate_escalation(steps: object) -> list[dict[str, Any]] | None:
    """Return the rule's own route; None for the default route."""
    if steps is None:
        return None
    if not isinstance(steps, list) or len(steps) > MAX_STEPS:
        raise BadInput("escalation", f"must have at most {MAX_STEPS} steps of after_minutes and receivers.")
    known = set(Receiver.objects.values_list("name", flat=True)) if steps else set()
    names = checks.list_of(checks.accept_choice(known), "a list of names")
    minutes = checks.accept_number(0, MAX_DELAY_MINUTES, "a number of minutes")
    escalation = []
    for at, step in enumerate(steps):
        where = f"escalation[{at}]"
        if not isinstance(step, Mapping) or set(step) != {"after_minutes", "receivers"}:
            raise BadInput(where, "must have after_minutes and receivers.")
        minutes.validate(step["after_minutes"], f"{where}.after_minutes", end=".")
        if not step["receivers"] or not names.accepts(step["receivers"]):
            listed = ", ".join(sorted(known)) or "none exist yet"
            raise BadInput(f"{where}.receivers", f"must be one or more receivers ({listed}).")
        receivers = list(dict.fromkeys(step["receivers"]))
        escalation.append({"after_minutes": step["after_minutes"], "receivers": receivers})
    delays = [step["after_minutes"] for step in escalation]
    if delays != sorted(set(delays)):
        raise BadInput("escalation", "must have delays that increase from step to step.")
    return escalation


def _list_first_rules() -> dict[str, dict[str, Any]]:
    """Return the fields of each rule that a plant starts with, by its name."""
    first: dict[str, dict[str, Any]] = {}
    for condition in CONDITIONS.values():
        if condition.rule is not None:
            fields = asdict(condition.rule)
            name = fields.pop("name")
            first[name] = {**fields, "condition": condition.name, "matchers": list(condition.rule.matchers)}
    return first


FIRST_RULES = _list_first_rules()


def ensure_rules(now: datetime) -> int:
    """Create the missing default rules and the first receiver; return how many rules were missing.

    People's changes stay. A rule is disabled, not deleted: a deleted one comes back.
    """
    first = {"channel": Receiver.Channel.BROWSER, "severities": ["critical", "warning"]}
    Receiver.objects.get_or_create(name=CONSOLES, defaults=first)
    known = set(AlertRule.objects.values_list("name", flat=True))
    missing = {name: fields for name, fields in FIRST_RULES.items() if name not in known}
    for name, fields in missing.items():
        define(name, fields, now)
    return len(missing)


def get_help_path(rule: AlertRule) -> str:
    """Return the rule's runbook: the one that it names, else the page in Help of its condition's default rule."""
    if rule.runbook:
        return rule.runbook
    name = DESCRIBED_WITH.get(rule.condition, rule.condition)
    shipped = CONDITIONS[name].rule if name in CONDITIONS else None
    return f"{HELP_PATH}{shipped.name}/" if shipped else HELP_PATH


def get_runbook_url(rule: AlertRule) -> str:
    """Return the absolute address for messages, which are read elsewhere."""
    return rule.runbook or f"{settings.WEIR_PUBLIC_URL}{get_help_path(rule)}"
