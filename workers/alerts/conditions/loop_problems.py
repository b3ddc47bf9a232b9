"""The problems during which a loop acted.

The actions of a loop during a problem belong to this problem. They no longer count when the problem is over.
"""

import math
from collections.abc import Iterable

from workers.alerts.conditions.evidence import LedgerTick, LoopFacts
from workers.documents.snapshot import Snapshot
from workers.documents.states import Problem

# Actions shortly before a problem is detected, and shortly after it, while its backlog is processed, belong to it.
EARLY_SECONDS, LATE_SECONDS = 60.0, 120.0
SHARED = ("queue", "node", "plant", "pipeline")  # what a loop of the whole plant measures


def list_problems(loop: LoopFacts, snapshot: Snapshot) -> list[Problem]:
    """Return the problems that concern what a loop measures, current problems first, then the earliest first."""
    subjects = _list_subjects(loop, snapshot)
    concerning = [problem for problem in snapshot.problems if _concerns(problem, loop, subjects)]
    return sorted(concerning, key=lambda problem: (problem.ended_at is not None, problem.began_at))


def find_problem(tick: LedgerTick, problems: Iterable[Problem]) -> Problem | None:
    """Return the first problem during which a tick occurred."""
    for problem in problems:
        ended = math.inf if problem.ended_at is None else problem.ended_at
        if problem.began_at - EARLY_SECONDS <= tick.at <= ended + LATE_SECONDS:
            return problem
    return None


def exclude_ended(ticks: Iterable[LedgerTick], problems: list[Problem]) -> list[LedgerTick]:
    """Return the ticks without those that belong to a problem that is over."""
    rows = [(tick, find_problem(tick, problems)) for tick in ticks]
    return [tick for tick, problem in rows if problem is None or problem.ended_at is None]


def _concerns(problem: Problem, loop: LoopFacts, subjects: set[str]) -> bool:
    if not loop.target:
        return problem.subject.partition("/")[0] in SHARED
    return not subjects.isdisjoint((problem.subject, *problem.affected))


def _list_subjects(loop: LoopFacts, snapshot: Snapshot) -> set[str]:
    """Return the subjects that a loop measures; the slots of a pool are measured by what its queues do."""
    target = loop.target
    subjects = {f"loop/{loop.name}"}
    if "plant" in target:
        return subjects
    subjects |= {f"{kind}/{target[kind]}" for kind in ("queue", "node", "host", "application") if kind in target}
    if "host" in target:
        jobs = {f"queue/{name}" for name, row in snapshot.queues.items() if row.kind == "jobs"}
        subjects |= {"plant/workers", *jobs}
    application = snapshot.pipeline.applications.get(target.get("application", ""))
    if application is not None:
        subjects |= {"pipeline/main", *(f"queue/{name}" for name in application.queues)}
    return subjects
