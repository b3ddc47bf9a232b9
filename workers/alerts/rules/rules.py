"""Rules as people define them: read, checked, stored. Errors name their field; nothing was changed then."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction

from common import checks
from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.reason import capitalize
from workers.alerts.conditions.catalog import CONDITIONS, get_condition
from workers.alerts.conditions.evidence import MAX_WINDOW_SECONDS
from workers.alerts.conditions.loop_words import describe_loop
from workers.alerts.lifecycle.automaton import Terms, Thresholds
from workers.alerts.lifecycle.models import AlertRule, Receiver
from workers.alerts.rules import matching

MAX_STEPS = 5
MAX_DELAY_MINUTES = 24 * 60
MAX_TITLE, MAX_RUNBOOK = 120, 500
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
FIELDS = ("condition", "matchers", "group_by", "escalation", "enabled", *TEXTS, *(number.name for number in NUMBERS))


def build_terms(rule: AlertRule) -> Terms:
    return Terms(rule.for_seconds, rule.keep_seconds, 60 * rule.acknowledge_minutes)


def build_thresholds(rule: AlertRule) -> Thresholds:
    return Thresholds(rule.threshold, rule.clear_threshold, CONDITIONS[rule.condition].above)


def list_delays_seconds(rule: AlertRule) -> list[float]:
    """Return the delay of each step of the escalation."""
    return [60.0 * step["after_minutes"] for step in rule.escalation]


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
    existing_rule = AlertRule.objects.select_for_update().filter(name=name).first()
    if existing_rule is not None and revision is not None and existing_rule.revision != revision:
        raise BadInput("revision", "is outdated: another user changed the rule. Reload the page.")
    rule = existing_rule or AlertRule(name=name)
    for field, value in validate_fields(fields, None if existing_rule is None else document(existing_rule)).items():
        setattr(rule, field, value)
    rule.revision = 1 if existing_rule is None else existing_rule.revision + 1
    rule.changed_at = now
    rule.save()
    return rule


def validate_fields(fields: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all fields of a rule, the given ones in place of those before. Raises `BadInput`."""
    checks.refuse_unknown(fields, FIELDS, "", message="is not a field of a rule; the fields are {known}.")
    given = {**(before or {}), **fields}
    watched = get_condition(given.get("condition", ""))
    numbers = {number_field.name: _validate_number(number_field, given) for number_field in NUMBERS}
    if numbers["clear_threshold"] is None:
        numbers["clear_threshold"] = numbers["threshold"]
    _check_order(numbers["threshold"], numbers["clear_threshold"], watched.above)
    return {
        "condition": watched.name,
        "title": _validate_title(given.get("title", watched.help)),
        "runbook": _validate_runbook(given.get("runbook", "")),
        "severity": _severity(given.get("severity", "warning")),
        "matchers": matching.read(given.get("matchers", [])),
        "group_by": _validate_labels(given.get("group_by", ["rule"])),
        "escalation": _validate_escalation(given.get("escalation", [])),
        "enabled": _flag(given.get("enabled", True)),
        **numbers,
    }


def _validate_number(declared: Parameter, given: Mapping[str, Any]) -> Any:
    value = given.get(declared.name, declared.default)
    if value is None and declared.name == "clear_threshold":
        return None
    try:
        return declared.check(value, "")
    except BadInput as error:
        raise BadInput(declared.name, error.message) from None


def _check_order(threshold: float, clear: float, above: bool) -> None:
    if (clear > threshold) if above else (clear < threshold):
        side = "at most" if above else "at least"
        raise BadInput("clear_threshold", f"must be {side} the threshold ({threshold:g}), not {clear:g}.")


def _validate_title(title: Any) -> str:
    return str(checks.accept_non_empty_text(MAX_TITLE).validate(title, "title", end="."))


def format_title(title: str, labels: Mapping[str, str]) -> str:
    """Return a title with its labels filled in; labels that this subject lacks are left out."""
    begins_with_loop = title.startswith("{loop}")
    for label in matching.LABELS:
        value = labels.get(label, "")
        title = title.replace(f"{{{label}}}", describe_loop(value) if label == "loop" else value)
    return (capitalize(title) if begins_with_loop else title)[:200]


def _validate_runbook(link: Any) -> str:
    """Return a web address, or "": a link that runs a script is none."""
    text = link.strip() if isinstance(link, str) else ""
    if text and not _is_of_the_web(text):
        raise BadInput("runbook", "must be a URL that starts with https:// or http://, or empty.")
    if len(text) > MAX_RUNBOOK:
        raise BadInput("runbook", f"must have at most {MAX_RUNBOOK} characters.")
    return text


def _is_of_the_web(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets around something that is no IPv6 address
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _severity(severity: Any) -> str:
    known = AlertRule.Severity.values
    return str(checks.accept_choice(known).validate(severity, "severity", end="."))


def _flag(value: Any) -> bool:
    return bool(checks.FLAG.validate(value, "enabled", end="."))


def _validate_labels(labels: Any) -> list[str]:
    known = checks.list_of(checks.accept_choice(matching.LABELS), f"a list of labels from {', '.join(matching.LABELS)}")
    known.validate(labels, "group_by", end=".")
    return list(dict.fromkeys(labels))


def _validate_escalation(steps: Any) -> list[dict[str, Any]]:
    if not isinstance(steps, list) or len(steps) > MAX_STEPS:
        raise BadInput("escalation", f"must have at most {MAX_STEPS} steps of after_minutes and receivers.")
    escalation = [_step(each, f"escalation[{at}]") for at, each in enumerate(steps)]
    delays = [step["after_minutes"] for step in escalation]
    if delays != sorted(set(delays)):
        raise BadInput("escalation", "must have delays that increase from step to step.")
    return escalation


def _step(step: Any, where: str) -> dict[str, Any]:
    if not isinstance(step, Mapping) or set(step) != {"after_minutes", "receivers"}:
        raise BadInput(where, "must have after_minutes and receivers.")
    minutes, names = step["after_minutes"], step["receivers"]
    checks.accept_number(0, MAX_DELAY_MINUTES, "a number of minutes").validate(
        minutes, f"{where}.after_minutes", end="."
    )
    return {"after_minutes": minutes, "receivers": _validate_receivers(names, f"{where}.receivers")}


def _validate_receivers(names: Any, where: str) -> list[str]:
    known = set(Receiver.objects.values_list("name", flat=True))
    given = checks.list_of(checks.accept_choice(known), "a list of names")
    if not names or not given.accepts(names):
        raise BadInput(where, f"must be one or more receivers ({', '.join(sorted(known)) or 'none exist yet'}).")
    return list(dict.fromkeys(names))
