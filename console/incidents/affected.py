"""The effects of an incident: its queues, their limits, and what is left of their error budgets."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from workers.alerts.lifecycle.models import Alert, AlertRule
from workers.documents.objectives import ObjectiveStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectFinding, SubjectState
from workers.objectives.models import Objective

LIMIT_SECONDS = 30.0  # without a rule
WAIT_CONDITION = re.compile(r"wait_seconds <=? ([\d.]+)")
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """The rest of an objective's error budget, in seconds or events (`unit`).

    promise: the objective in words; used_up_at: when the budget is used up at the present rate (Unix time).
    """

    name: str
    promise: str
    left_share: float | None
    left: float
    whole: float | None
    unit: str
    used_up_at: float | None


@dataclass(frozen=True, kw_only=True)
class AffectedQueue:
    """A queue of an incident. share: its wait, of the longest wait of all affected queues."""

    name: str
    state: SubjectState | None
    wait_seconds: float | None
    waiting_events: int | None
    limit_seconds: float
    share: float
    budget: BudgetLeft | None

    @property
    def is_late(self) -> bool:
        return (self.wait_seconds or 0.0) > self.limit_seconds


def list_affected_queues(
    alerts: Iterable[Alert], finding: SubjectFinding | None, snapshot: Snapshot
) -> list[AffectedQueue]:
    """Return the queues of an incident's finding and alerts, the longest wait first."""
    subjects = [finding.subject, *finding.affected] if finding else []
    named = [subject.removeprefix("queue/") for subject in subjects if subject.startswith("queue/")]
    named += [alert.labels["queue"] for alert in alerts if "queue" in alert.labels]
    queues = [name for name in dict.fromkeys(named) if name in snapshot.queues]
    limit, objectives = find_wait_limit(), list(Objective.objects.filter(kind=Objective.Kind.QUEUE))
    longest = max([limit, *(snapshot.queues[name].wait_seconds or 0.0 for name in queues)])
    rows = [_build_row(name, limit, longest, objectives, snapshot) for name in queues]
    return sorted(rows, key=lambda row: -(row.wait_seconds or 0.0))


def list_names(finding: SubjectFinding) -> list[str]:
    """Return the names of the queues, nodes, and worker hosts that a finding is about."""
    subjects = (subject.partition("/") for subject in (finding.subject, *finding.affected))
    return list(dict.fromkeys(name for kind, _, name in subjects if kind in ("queue", "node", "host")))


def find_wait_limit() -> float:
    """Return the lowest threshold of the rules for the oldest event of a queue, s."""
    thresholds = AlertRule.objects.filter(condition="queue_wait", enabled=True).values_list("threshold", flat=True)
    return min(thresholds, default=LIMIT_SECONDS)


def _build_row(
    name: str, limit: float, longest: float, objectives: list[Objective], snapshot: Snapshot
) -> AffectedQueue:
    row, state = snapshot.queues[name], snapshot.states.get(f"queue/{name}")
    own = [
        objective
        for objective in objectives
        if objective.subject in ("", name) and objective.name in snapshot.objectives
    ]
    best = min(own, key=lambda objective: objective.subject == "", default=None)
    return AffectedQueue(
        name=name,
        state=state,
        wait_seconds=row.wait_seconds,
        waiting_events=row.waiting_events,
        limit_seconds=limit,
        share=(row.wait_seconds or 0.0) / longest,
        budget=build_budget(best, snapshot.objectives[best.name], snapshot.at or 0.0) if best else None,
    )


def build_budget(objective: Objective, status: ObjectiveStatus, now: float) -> BudgetLeft:
    """Return what is left of a budget, and when it is used up at the present rate."""
    left = (status.window_budget or 0.0) - status.bad
    seconds = left / status.bad_per_second if status.bad_per_second and left > 0 else None
    ends = seconds is not None and seconds < status.window_days * DAY_SECONDS
    return BudgetLeft(
        name=objective.name,
        promise=f"{100 * objective.target:g} % {describe_promise(objective)}",
        left_share=status.window_left_share,
        left=max(0.0, left),
        whole=status.window_budget,
        unit=status.unit,
        used_up_at=now + seconds if ends and seconds is not None else None,
    )


def describe_promise(objective: Objective) -> str:
    """Return the condition of an objective in words: "within 30 s"."""
    wait = WAIT_CONDITION.fullmatch(objective.condition.strip())
    return f"within {float(wait[1]):g} s" if wait else objective.condition or f"without {objective.lost}"
