"""Matchers of labels: [{"label": "queue", "is": "=", "value": "alert"}], all of which must match.

`=` the value, `!=` anything else (also a missing label), `~` a pattern with * and ?.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from common import checks
from common.errors import BadInput

OPERATORS = ("=", "!=", "~")
LABELS = (
    "rule",
    "severity",
    "queue",
    "node",
    "loop",
    "law",
    "producer",
    "host",
    "pipeline",
    "plan",
    "task",
    "receiver",
    "override",
    "what",  # of an override: its name and scope
    "plant",
    "plant_queue",
    "group",
    "sensor",
    "objective",
)
MAX_MATCHERS = 10
MAX_VALUE = 200
KEYS = {"label", "is", "value"}
Matcher = Mapping[str, str]


def matches(matchers: Sequence[Matcher], labels: Mapping[str, str]) -> bool:
    """Return whether all matchers match; without matchers, everything does."""
    return all(_holds(matcher, labels.get(matcher["label"])) for matcher in matchers)


def _holds(matcher: Matcher, value: str | None) -> bool:
    if matcher["is"] == "!=":
        return value != matcher["value"]
    if value is None:
        return False
    return value == matcher["value"] if matcher["is"] == "=" else fnmatchcase(value, matcher["value"])


def read(matchers: Any, field: str = "matchers", least: int = 0) -> list[dict[str, str]]:
    """Return the checked matchers of a request. Raises `BadInput` naming the wrong one."""
    if not isinstance(matchers, list) or not least <= len(matchers) <= MAX_MATCHERS:
        raise BadInput(field, f"must have {least} to {MAX_MATCHERS} matchers of label, is, and value.")
    return [_read(each, f"{field}[{at}]") for at, each in enumerate(matchers)]


def _read(matcher: Any, where: str) -> dict[str, str]:
    if not isinstance(matcher, Mapping) or set(matcher) != KEYS:
        raise BadInput(where, "must have label, is, and value.")
    label, operator, value = (matcher[key] for key in ("label", "is", "value"))
    checks.accept_choice(LABELS).validate(label, f"{where}.label", end=".")
    checks.accept_choice(OPERATORS, f"one of {' '.join(OPERATORS)}").validate(operator, f"{where}.is", end=".")
    text = checks.accept_non_empty_text(MAX_VALUE).validate(value, f"{where}.value", end=".")
    return {"label": label, "is": operator, "value": text}


def format_matchers(matchers: Sequence[Matcher]) -> str:
    """Return queue = alert and severity != critical; every alert if there are none."""
    return " and ".join(f"{m['label']} {m['is']} {m['value']}" for m in matchers) or "every alert"
