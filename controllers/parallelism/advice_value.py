"""Value of advice that nobody followed: tasks and waiting, as they were and as advised.

A tick of a loop in advise mode records, for each operator, its tasks (N), the advised tasks (A), the arrivals (λ,
events/s), the service time of an event in a task (s), and the waiting events (B). It stands for dt seconds. Tasks are
plain sums in task-hours: Σ N dt and Σ A dt. The waiting that occurred is Σ B dt in event-seconds, and Σ B dt / Σ λ dt
per event. The waiting under the advice is **estimated**, one operator at a time:

    q(n)  = u^√(2 (n + 1)) v / (1 - u)
                                      random waiting, by Sakasegawa (Annals of the Institute of Statistical
                                      Mathematics 29, 1977); u = min(λ s / n, 0.95), v the variability
    b     = max(0, B - q(N))          backlog; the rest of B is random waiting
    X     = max(λ dt, b' - b)         arrivals, at least the growth of the backlog
    c N   = X - (b' - b)              work done by N tasks: c per task; if no backlog is left (b' = 0), they
    could
                                      have done N dt / s, if that is more
    a'    = max(0, a + X - c A)       backlog as advised, starting with a = b
    W     = a + max(0, B - b + q(A) - q(N))

With A = N this gives what happened: a = b and W = B. With more tasks it is never more. Assumptions: arrivals do not
change (none waits for an earlier operator), a task keeps its speed, and a change of tasks stops nothing. A gap (a tick
without a measurement, or a late one) ends a period; the next starts with a = b.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_UTILISATION = 0.95  # utilization limit of random waiting: closer to 1, it would take longer than the ticks cover
HOUR_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class AdvisedOperator:
    """An operator's tasks and advised tasks. `waiting_events` is None if not measured."""

    tasks: int
    advised: int
    rate_per_second: float = 0.0
    service_seconds: float = 0.0
    waiting_events: float | None = None
    variability: float = 1.0


@dataclass(frozen=True, kw_only=True)
class AdvisedTick:
    """`at` is in seconds since 1970. `operators` is empty if nothing valid was measured."""

    at: float
    operators: Mapping[str, AdvisedOperator]


@dataclass(frozen=True, kw_only=True)
class AdviceValue:
    """The measured figures of a period.

    `measured_seconds`: the period. `waiting`: event-seconds, None if not measured. `events`: arrivals at
    operators. `changes`: changes of the advised tasks.
    """

    measured_seconds: float = 0.0
    task_hours: float = 0.0
    advised_task_hours: float = 0.0
    events: float = 0.0
    waiting_event_seconds: float | None = None
    advised_waiting_event_seconds: float | None = None
    changes: int = 0


def compute_advice_value(ticks: Sequence[AdvisedTick], longest_seconds: float) -> AdviceValue:
    """Compute the value over ticks in order; a tick stands until the next within `longest_seconds`."""
    pairs = [
        (first, second)
        for first, second in pairwise(ticks)
        if first.operators and 0 < second.at - first.at <= longest_seconds
    ]
    operators = [(operator, after.at - tick.at) for tick, after in pairs for operator in tick.operators.values()]
    waiting = [_compute_waiting(stretch) for stretch in _split_at_gaps(pairs)]
    measured = bool(waiting) and all(operator.waiting_events is not None for operator, _ in operators)
    return AdviceValue(
        measured_seconds=sum(after.at - tick.at for tick, after in pairs),
        task_hours=sum(operator.tasks * dt for operator, dt in operators) / HOUR_SECONDS,
        advised_task_hours=sum(operator.advised * dt for operator, dt in operators) / HOUR_SECONDS,
        events=sum(operator.rate_per_second * dt for operator, dt in operators),
        waiting_event_seconds=sum(was for was, _ in waiting) if measured else None,
        advised_waiting_event_seconds=sum(advised for _, advised in waiting) if measured else None,
        changes=_count_changes(ticks),
    )


def _count_changes(ticks: Sequence[AdvisedTick]) -> int:
    """Count how often the advice differs from the previous tick's; the first advice counts, too."""
    advised = [
        {name: operator.advised for name, operator in tick.operators.items()} for tick in ticks if tick.operators
    ]
    if not advised:
        return 0
    first = next(tick.operators for tick in ticks if tick.operators)
    began = any(first_tasks.tasks != first_tasks.advised for first_tasks in first.values())
    return int(began) + sum(before != after for before, after in pairwise(advised))


Step = tuple[AdvisedOperator, AdvisedOperator | None, float]  # a tick, the next one of the period, seconds


def _split_at_gaps(pairs: Sequence[tuple[AdvisedTick, AdvisedTick]]) -> Iterator[list[Step]]:
    """Return each operator's ticks, split at gaps."""
    open_stretches: dict[str, list[Step]] = {}
    last: AdvisedTick | None = None
    for tick, after in pairs:
        follows = tick is last
        gone = [name for name in open_stretches if not follows or name not in tick.operators]
        yield from (open_stretches.pop(name) for name in gone)
        last = after
        for name, operator in tick.operators.items():
            step = operator, after.operators.get(name), after.at - tick.at
            open_stretches.setdefault(name, []).append(step)
            if step[1] is None:
                yield open_stretches.pop(name)
    yield from open_stretches.values()


def _compute_waiting(steps: Sequence[Step]) -> tuple[float, float]:
    was = advised = 0.0
    piled_up: float | None = None
    for operator, after, seconds in steps:
        waits, at_random = operator.waiting_events or 0.0, _compute_random_wait(operator, operator.tasks)
        before = max(0.0, waits - at_random)
        piled_up = before if piled_up is None else piled_up
        rest = max(0.0, waits - before + _compute_random_wait(operator, operator.advised) - at_random)
        was += waits * seconds
        advised += (piled_up + rest) * seconds
        if after is not None:
            left = max(0.0, (after.waiting_events or 0.0) - _compute_random_wait(after, after.tasks))
            came = max(operator.rate_per_second * seconds, left - before)
            worked_off = came - (left - before)
            if left == 0 and operator.service_seconds > 0:
                worked_off = max(worked_off, operator.tasks * seconds / operator.service_seconds)
            piled_up = max(0.0, piled_up + came - worked_off * operator.advised / max(1, operator.tasks))
    return was, advised


def _compute_random_wait(operator: AdvisedOperator, tasks: int) -> float:
    work = operator.rate_per_second * operator.service_seconds
    if work <= 0:
        return 0.0
    use = min(work / tasks, MAX_UTILISATION)
    return float(use ** math.sqrt(2 * (tasks + 1))) / (1 - use) * operator.variability
