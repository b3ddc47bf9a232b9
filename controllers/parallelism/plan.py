"""When to change tasks in the windows to come, and to how many: a change has to pay for its pause.

A plan cuts the windows into stretches; in each all operators together have at least what its worst window
needs, and one of the levels of capacity. A stretch costs its tasks (task-seconds), what comes too late in it
(`parallelism_fluid`), its pause included, and `change_cost`. The present tasks may be kept for as long as
they do. Cheapest from the last window backwards, O(windows² levels).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ParallelismPlan:
    """Tasks of each operator now, the window in which they change next, and the cost in task-seconds."""

    tasks: Ints
    changes_at: int | None
    cost: float


@dataclass(frozen=True)
class Stretches:
    """What may be chosen: needs are windows by operators, levels by operators; `waiting` is what comes too
    late from the begin of a window to the end of another with each level."""

    needs: Ints
    levels: Ints
    waiting: Floats
    window_seconds: float
    change_cost: float

    def best(self, begin: int, follows: Sequence[float]) -> tuple[float, int, Ints]:
        """The cheapest stretch that begins there, with what follows it: cost, end, tasks."""
        needed, found = self.needs[begin], list[tuple[float, int, Ints]]()
        for end in range(begin + 1, len(self.needs) + 1):
            needed = np.maximum(needed, self.needs[end - 1])
            tasks = np.maximum(self.levels, needed)
            costs = tasks.sum(axis=1) * self.window_seconds * (end - begin) + self.waiting[begin, end - 1]
            level = int(costs.argmin())
            found.append((float(costs[level]) + self.change_cost + follows[end], -end, tasks[level]))
        cost, end, tasks = min(found, key=lambda each: each[:2])
        return cost, -end, tasks


def cheapest_plan(
    current: Ints, keeps: Sequence[bool], waiting_now: Sequence[float], stretches: Stretches
) -> ParallelismPlan:
    """The cheapest plan. `keeps`: whether the present tasks do in a window; `waiting_now`: what comes too
    late with them until the end of each."""
    count = len(stretches.needs)
    # What follows from each window on when tasks change at its begin.
    follows, first = [0.0] * (count + 1), (0.0, count, current)
    for begin in range(count - 1, -1, -1):
        first = stretches.best(begin, follows)
        follows[begin] = first[0]
    kept = next((at for at, does in enumerate(keeps) if not does), count)
    window_cost = float(current.sum()) * stretches.window_seconds
    costs = [
        (window_cost * stays + (waiting_now[stays - 1] if stays else 0.0) + follows[stays], -stays)
        for stays in range(kept + 1)
    ]
    cost, until = min(costs)
    if until == 0:
        return ParallelismPlan(first[2], first[1] if first[1] < count else None, cost)
    return ParallelismPlan(current, -until if -until < count else None, cost)
