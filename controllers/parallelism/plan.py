"""The plan: when to change tasks in future windows, and to how many. A change has to pay for its pause.

A plan cuts the windows into ranges; within a range all operators have at least what its worst window needs, at one of
the levels of capacity. A range costs its tasks (task-seconds), its late events (`fluid_backlog`) including its pause,
and `change_cost`. The current tasks may stay for as long as they suffice. Computed backwards from the last window,
O(windows² levels).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ParallelismPlan:
    tasks: Ints
    changes_at: int | None
    cost: float


@dataclass(frozen=True)
class PlanRanges:
    """The choices of a plan.

    Needs are windows by operators, and levels have a number of tasks for each operator. `waiting` is the late events
    from the start of one window to the end of another at each level.
    """

    needs: Ints
    levels: Ints
    waiting: Floats
    window_seconds: float
    change_cost: float

    def find_cheapest(self, begin: int, follows: Sequence[float]) -> tuple[float, int, Ints]:
        """Return the cheapest range that starts there, with what follows: cost, end, tasks."""
        needed, stretches = self.needs[begin], list[tuple[float, int, Ints]]()
        for end in range(begin + 1, len(self.needs) + 1):
            needed = np.maximum(needed, self.needs[end - 1])
            tasks = np.maximum(self.levels, needed)
            costs = tasks.sum(axis=1) * self.window_seconds * (end - begin) + self.waiting[begin, end - 1]
            level = int(costs.argmin())
            stretches.append((float(costs[level]) + self.change_cost + follows[end], -end, tasks[level]))
        cost, end, tasks = min(stretches, key=lambda stretch: stretch[:2])
        return cost, -end, tasks


def find_cheapest_plan(
    current: Ints, keeps: Sequence[bool], waiting_now: Sequence[float], stretches: PlanRanges
) -> ParallelismPlan:
    """Return the cheapest plan.

    `keeps` tells whether the current tasks suffice in a window; `waiting_now` is the late events with them until the
    end of each.
    """
    count = len(stretches.needs)
    # The rest from each window on, if tasks change at its start.
    follows, first = [0.0] * (count + 1), (0.0, count, current)
    for begin in range(count - 1, -1, -1):
        first = stretches.find_cheapest(begin, follows)
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
