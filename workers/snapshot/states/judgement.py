"""Faults of one subject, and the resulting state."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from controllers.framework.reason import capitalize
from queues.nodes.node_state import BUSY, NORMAL, STATES, TOOBUSY
from workers.alerts.evaluation.impact import describe_first_step
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectFinding, SubjectState
from workers.snapshot.states.limits import Limits, RuleLimit

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


def _is_better(sign: str, severity: Severity) -> bool:
    """Return whether a sign looks better than the severity."""
    least = SIGNS[severity]
    return severity in ("warning", "critical") and least is not None and STATES.index(sign) < STATES.index(least)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. rules: of the alerts that report it, too."""

    severity: Severity
    sentence: str
    step: str = ""
    rules: tuple[str, ...] = ()


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
        return [Fault(severity, sentence, describe_first_step(condition, consumers), rules)]

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
        if sign is None or _is_better(sign, severity):
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
                )
                for fault in ordered[1:]
            ],
            step=ordered[0].step if ordered else "",
            within=within,
            rules=sorted({rule for fault in ordered for rule in fault.rules}),
        )
