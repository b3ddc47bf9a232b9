"""Faults of one subject, and the resulting state."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.framework.reason import capitalize
from queues.nodes.node_state import BUSY, NORMAL, STATES, TOOBUSY
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.evaluation.impact import describe_first_step
from workers.alerts.lifecycle.automaton import Thresholds
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules.rules import FIRST_RULES, Matcher, matches
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectFinding, SubjectState

# Severity as node colors; a node has its own state from its agent.
SIGNS: Mapping[Severity, str | None] = {
    "well": NORMAL,
    "unknown": None,
    "notice": NORMAL,
    "warning": BUSY,
    "critical": TOOBUSY,
}
WORDS: Mapping[Severity, str] = {
    "well": "Normal",
    "unknown": "Unknown",
    "notice": "Notice",
    "warning": "Warning",
    "critical": "Critical",
}
MAX_CLOCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RuleLimit:
    """The limit of one rule: its threshold, severity, and subjects."""

    rule: str
    thresholds: Thresholds
    severity: Severity
    matchers: Sequence[Matcher] = ()

    def is_beyond(self, value: float | None, was_beyond: bool) -> bool:
        """Return whether a value exceeds it; between the thresholds, or if unknown, the previous result stays."""
        signal = self.thresholds.compute_signal(value)
        return was_beyond if signal in ("between", "unknown") else signal == "on"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits by condition."""

    by_condition: Mapping[str, Sequence[RuleLimit]]

    def list_exceeded(
        self, condition: str, labels: Mapping[str, str], value: float | None, before: Collection[str]
    ) -> list[RuleLimit]:
        """Return the limits that a subject's value exceeds. before: the rules exceeded in the previous second."""
        limits = self.by_condition.get(condition, ())
        matching = [limit for limit in limits if matches(limit.matchers, labels)]
        return [
            matching_limit
            for matching_limit in matching
            if matching_limit.is_beyond(value, matching_limit.rule in before)
        ]

    def find_threshold(self, condition: str, labels: Mapping[str, str]) -> float | None:
        """Return the threshold that a value of a subject exceeds first; None where no rule is about it."""
        limits = [limit.thresholds for limit in self.by_condition.get(condition, ()) if matches(limit.matchers, labels)]
        first = min(limits, key=lambda limit: limit.beyond if limit.above else -limit.beyond, default=None)
        return first.beyond if first else None

    def find_highest_severity(self, condition: str, labels: Mapping[str, str], otherwise: Severity) -> Severity:
        """Return the highest severity of a condition's rules for a subject. otherwise: the result without a rule."""
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


def is_better(sign: str, severity: Severity) -> bool:
    """Return whether a sign looks better than the severity."""
    least = SIGNS[severity]
    return severity in ("warning", "critical") and least is not None and STATES.index(sign) < STATES.index(least)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. rules: of the alerts that report it, too. impact: its figures. late: whether events wait too long."""

    severity: Severity
    sentence: str
    step: str = ""
    rules: tuple[str, ...] = ()
    impact: str = ""
    late: bool = False


@dataclass(frozen=True, slots=True)
class WatchedSnapshot:
    """A snapshot without states, the states before it, and the limits; at: s since 1970.

    listed: worker hosts that have reported and not reported their end; None: unknown.
    """

    snapshot: Snapshot
    before: Mapping[str, SubjectState]
    limits: Limits
    at: float
    listed: Collection[str] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def list_exceeded(
        self, kind: str, name: str, condition: str, value: float | None, labels: Mapping[str, str]
    ) -> list[RuleLimit]:
        """Return the limits that a value exceeds, with hysteresis."""
        before = self.before.get(f"{kind}/{name}")
        return self.limits.list_exceeded(condition, labels, value, before.rules if before else ())

    def find_faults(
        self,
        kind: str,
        name: str,
        condition: str,
        value: float | None,
        sentence: str,
        labels: Mapping[str, str] | None = None,
        *,
        impact: str = "",
        late: bool = False,
    ) -> list[Fault]:
        """Return the fault of a value that exceeds a limit, with the highest severity of these limits."""
        given = {kind: name} if labels is None else labels
        exceeded = self.list_exceeded(kind, name, condition, value, given)
        if not exceeded:
            return []
        severity = max((limit.severity for limit in exceeded), key=SEVERITIES.index)
        rules = tuple(limit.rule for limit in exceeded)
        queue = self.snapshot.queues.get(name) if kind == "queue" else None
        consumers = (queue.kind or "") if queue else ""
        return [Fault(severity, sentence, describe_first_step(condition, consumers), rules, impact, late)]

    def find_start(self, kind: str, name: str, severity: Severity, sign: str | None, stale: bool) -> float:
        """Return since when severity, sign, and staleness are as they are now."""
        before = self.before.get(f"{kind}/{name}")
        if before is None or before.since is None:
            return self.at
        unchanged = (before.severity, before.sign, before.stale) == (severity, sign, stale)
        return before.since if unchanged else self.at

    def get_state(
        self,
        kind: str,
        name: str,
        faults: Sequence[Fault] = (),
        *,
        sign: str | None = None,
        word: str = "",
        stale: bool = False,
        within: str | None = None,
        known: bool = True,
    ) -> SubjectState:
        """Return the state that results from these faults.

        sign, word: where the subject has its own, which a worse fault overrides: nothing faulty looks well.
        """
        ordered = sorted(faults, key=lambda fault: -SEVERITIES.index(fault.severity))
        severity: Severity = ordered[0].severity if ordered else "well" if known else "unknown"
        if sign is None or is_better(sign, severity):
            sign, word = SIGNS[severity], WORDS[severity] if sign else word
        return SubjectState(
            kind=kind,
            name=name,
            severity=severity,
            sign=sign,
            word=word or WORDS[severity],
            stale=stale,
            since=self.find_start(kind, name, severity, sign, stale),
            finding=capitalize(ordered[0].sentence) if ordered else "",
            also=[
                SubjectFinding(
                    subject=f"{kind}/{name}",
                    severity=fault.severity,
                    sign=SIGNS[fault.severity],
                    sentence=capitalize(fault.sentence),
                    step=fault.step,
                    impact=fault.impact,
                )
                for fault in ordered[1:]
            ],
            step=ordered[0].step if ordered else "",
            impact=ordered[0].impact if ordered else "",
            late=any(fault.late for fault in ordered),
            within=within,
            rules=sorted({rule for fault in ordered for rule in fault.rules}),
        )


def clock_fault(name: str, ahead_seconds: float) -> Iterator[Fault]:
    """Return the fault where it is off by more than a minute."""
    if abs(ahead_seconds) > MAX_CLOCK_SECONDS:
        side = "ahead of" if ahead_seconds > 0 else "behind"
        sentence = f"The clock of {name} is {abs(ahead_seconds):.0f} s {side} the control server's."
        yield Fault("warning", sentence, "Synchronize both hosts' clocks with NTP (chrony, timesyncd).")
