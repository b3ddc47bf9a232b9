"""Limits of values: the thresholds of the alert rules, which are the only ones.

A person who changes a rule also changes the state, and a new rule adds a level. Where every rule of a condition is
disabled, there are no notifications; the state still follows the condition's default rules.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.lifecycle.automaton import Thresholds
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules.rules import FIRST_RULES, Matcher, matches
from workers.documents.states import SEVERITIES, Severity


@dataclass(frozen=True, slots=True)
class RuleLimit:
    """The limit of one rule: its threshold, severity, and subjects."""

    rule: str
    thresholds: Thresholds
    severity: Severity
    matchers: Sequence[Matcher] = ()

    def is_beyond(self, value: float | None, was_beyond: bool) -> bool:
        """Return whether a value exceeds it.

        Between the thresholds, and while the value is unknown, the previous result stays.
        """
        signal = self.thresholds.compute_signal(value)
        return was_beyond if signal in ("between", "unknown") else signal == "on"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits by condition."""

    by_condition: Mapping[str, Sequence[RuleLimit]]

    def list_exceeded(
        self, condition: str, labels: Mapping[str, str], value: float | None, before: Collection[str]
    ) -> list[RuleLimit]:
        """Return the limits that a subject's value exceeds.

        before: the rules exceeded in the previous second.
        """
        limits = self.by_condition.get(condition, ())
        matching = [limit for limit in limits if matches(limit.matchers, labels)]
        return [
            matching_limit
            for matching_limit in matching
            if matching_limit.is_beyond(value, matching_limit.rule in before)
        ]

    def find_highest_severity(self, condition: str, labels: Mapping[str, str], otherwise: Severity) -> Severity:
        """Return the highest severity of a condition's rules for a subject.

        otherwise: the result where no rule is about it.
        """
        limits = self.by_condition.get(condition, ())
        severities = [limit.severity for limit in limits if matches(limit.matchers, labels)]
        return max(severities, key=SEVERITIES.index, default=otherwise)


def build_limits(rules: Iterable[AlertRule]) -> Limits:
    """Return the limits of the existing rules; conditions without an enabled rule have their defaults.

    A rule with a condition of another version of Weir is ignored, as the alerter does.
    """
    limits_by_condition: dict[str, list[RuleLimit]] = {}
    for rule in rules:
        if rule.enabled and rule.condition in CONDITIONS:
            limit = _limit(
                rule.name, rule.condition, rule.threshold, rule.clear_threshold, rule.severity, rule.matchers
            )
            limits_by_condition.setdefault(rule.condition, []).append(limit)
    return Limits({**SHIPPED.by_condition, **limits_by_condition})


def _limit(
    name: str, condition: str, threshold: float, clear: float, severity: Any, matchers: Sequence[Matcher]
) -> RuleLimit:
    return RuleLimit(name, Thresholds(threshold, clear, CONDITIONS[condition].above), severity, matchers)


def _load_shipped() -> Limits:
    limits_by_condition: dict[str, list[RuleLimit]] = {}
    for name, rule in FIRST_RULES.items():
        condition, severity = rule["condition"], rule.get("severity", "warning")
        limit = _limit(name, condition, rule["threshold"], rule["clear_threshold"], severity, rule.get("matchers", ()))
        limits_by_condition.setdefault(condition, []).append(limit)
    return Limits(limits_by_condition)


SHIPPED = _load_shipped()
