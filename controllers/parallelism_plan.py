"""When to change tasks in the windows to come: a change stops the chain, so it has to pay for its pause.

A plan cuts the windows into stretches; in each all operators together have what its worst window needs. It
costs its tasks (task-seconds) and `change_cost` for each change; the present tasks may be kept, for nothing,
for as long as they do. Cheapest from the last window backwards, O(windows²).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """Tasks of each operator now, the window in which they change next, and the cost in task-seconds."""

    tasks: Ints
    changes_at: int | None
    cost: float


def cheapest_plan(
    current: Ints,
    needs: Ints,
    after_change: Ints,
    keeps: Sequence[bool],
    window_seconds: float,
    change_cost: float,
) -> Plan:
    """The cheapest plan; `needs` and `after_change` are windows by operators, the latter for a window that
    begins with a pause. `keeps`: whether the present tasks do in a window."""
    count = len(needs)
    # What follows from each window on when tasks change at its begin, and where the next change is.
    follows, ends = [0.0] * (count + 1), [count] * (count + 1)
    for begin in range(count - 1, -1, -1):
        follows[begin], ends[begin] = _stretch(begin, needs, after_change, window_seconds, follows)
        follows[begin] += change_cost
    kept = next((at for at, does in enumerate(keeps) if not does), count)
    present = float(current.sum()) * window_seconds
    cost, until = min((present * stays + follows[stays], -stays) for stays in range(kept + 1))
    if until == 0:
        return Plan(_worst(0, ends[0], needs, after_change), ends[0] if ends[0] < count else None, cost)
    return Plan(current, -until if -until < count else None, cost)


def _stretch(
    begin: int, needs: Ints, after_change: Ints, window_seconds: float, follows: Sequence[float]
) -> tuple[float, int]:
    costs = [
        (
            float(_worst(begin, end, needs, after_change).sum()) * window_seconds * (end - begin)
            + follows[end],
            -end,
        )
        for end in range(begin + 1, len(needs) + 1)
    ]
    cost, end = min(costs)
    return cost, -end


def _worst(begin: int, end: int, needs: Ints, after_change: Ints) -> Ints:
    worst = np.maximum(after_change[begin], needs[begin:end].max(axis=0))
    return np.asarray(worst, dtype=np.int64)
