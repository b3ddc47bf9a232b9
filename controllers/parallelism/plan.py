"""Waiting and lateness when a capacity meets an offered load.

Events are a fluid: a step of dt seconds that starts with a backlog B and a remaining pause r ends with

    B' = max(0, B + X dt - C (dt - min(r, dt)))   and   r' = max(0, r - dt)

An arriving event waits w = r + B / C. That costs its work times `missed_cost` if w is the deadline, and before that the
square of w / deadline of it, because the exact end of a wait is unknown: min(1, (w / deadline)²). Within a step w
changes linearly, and is 0 once the backlog is gone. Events left at the end still have to be processed, and wait as they
do then.

An event that waits beyond the deadline fails and returns one deadline after its arrival, while its first attempt still
takes its turn. So next to the forecast there is a return rate, with L the rate of late arrivals,

    R' = R + (min(L, F) - R) min(1, dt / deadline)

starting with R = F, the present failure rate: the next decision sees and corrects new failures of a plan. A capacity
that does not bring the wait below the deadline never ends it. Until a large present backlog is worked off, first
arrivals are at least as many as now.

The plan: when to change tasks in future windows, and to how many. A change has to pay for its pause.

A plan cuts the windows into ranges; within a range all operators have at least what its worst window needs, at one of
the levels of capacity. A range costs its tasks (task-seconds), its late events (`fluid_backlog`) including its pause,
and `change_cost`. The current tasks may stay for as long as they suffice. Computed backwards from the last window,
O(windows² levels).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Demand:
    """Offered load at the source, events/s: scenarios by steps, each scenario with its probability."""

    rates: Floats
    chances: Floats
    step_seconds: float
    present_per_second: float  # first arrivals
    backlog_events: float
    again_per_second: float = 0.0  # failed events that return now


@dataclass(frozen=True)
class Lateness:
    """Cost of an event by its wait: a deadline, its work (task-seconds), and the cost factor."""

    deadline_seconds: float
    work_seconds: float
    missed_cost: float

    def compute(self, first: Floats, last: Floats, falls_per_second: Floats, step_seconds: float) -> Floats:
        until = np.where(last > 0, 1.0, first / np.maximum(falls_per_second * step_seconds, 1e-12))
        squares = np.minimum(1.0, until) * (first**2 + first * last + last**2) / 3
        return np.asarray(self.work_seconds * self.missed_cost * self._share(squares))

    def compute_at_end(self, backlog: Floats, wait: Floats) -> Floats:
        return np.asarray(backlog * self.work_seconds * (1 + self.missed_cost * self._share(wait**2)))

    def compute_failing_share(self, first: Floats, last: Floats) -> Floats:
        """Return the share of a step that waits beyond the deadline."""
        over, under = np.maximum(first, last), np.minimum(first, last)
        beyond = (over - self.deadline_seconds) / np.maximum(over - under, 1e-12)
        return np.where(under >= self.deadline_seconds, 1.0, np.clip(beyond, 0.0, 1.0))

    def _share(self, squares: Floats) -> Floats:
        return np.asarray(np.minimum(1.0, squares / self.deadline_seconds**2))


def compute_waiting_cost(
    demand: Demand, lateness: Lateness, capacities: Floats, begins: npt.NDArray[np.int64], pause_seconds: float
) -> tuple[Floats, Floats]:
    """Return the expected task-seconds, starts by steps by capacities (events/s).

    They count the late events until the end of each step, and the rest. A row starts with its step and a pause. The
    first row also starts with the present backlog.
    """
    fluid = _Fluid(demand, lateness, capacities, begins[:, None], pause_seconds)
    steps = [fluid.step(step) for step in range(demand.rates.shape[1])]
    late, left = (np.stack(step_row, axis=1) for step_row in zip(*steps, strict=True))
    return np.cumsum(late, axis=1), left


class _Fluid:
    def __init__(
        self,
        demand: Demand,
        lateness: Lateness,
        capacities: Floats,
        begins: npt.NDArray[np.int64],
        pause_seconds: float,
    ) -> None:
        self._demand, self._lateness, self._capacities = demand, lateness, capacities
        self._begins, self._pause_seconds = begins, pause_seconds
        shape = (demand.rates.shape[0], begins.size, capacities.size)
        self._backlog = np.where(begins == 0, demand.backlog_events, np.zeros(shape))
        self._rest = np.zeros((begins.size, 1))
        self._again = np.where(begins == 0, demand.again_per_second, np.zeros(shape))
        # The present backlog passes within a second, so nothing of it is late.
        self._is_late = (begins == 0) & (demand.backlog_events > demand.present_per_second)

    def step(self, step: int) -> tuple[Floats, Floats]:
        dt, capacities = self._demand.step_seconds, self._capacities
        runs = self._begins <= step
        self._rest = np.where(self._begins == step, self._pause_seconds, self._rest)
        first = np.where(runs, self._rest + self._backlog / capacities, 0.0)
        forecast = self._demand.rates[:, step, None, None]
        goes_on = self._is_late & (first > 0)
        new = np.where(goes_on, np.maximum(forecast, self._demand.present_per_second), forecast)
        offered = new + self._again
        passed = capacities * (dt - np.minimum(self._rest, dt))
        self._backlog = np.where(runs, np.maximum(0.0, self._backlog + offered * dt - passed), 0.0)
        self._rest = np.maximum(0.0, self._rest - dt)
        last = self._rest + self._backlog / capacities
        falls = np.maximum(1e-12, 1 - offered / capacities)
        late = offered * dt * self._lateness.compute(first, last, falls, dt)
        failed = np.minimum(offered * self._lateness.compute_failing_share(first, last), self._demand.again_per_second)
        self._again = self._again + (failed - self._again) * min(1.0, dt / self._lateness.deadline_seconds)
        return self._integrate(late), self._integrate(self._lateness.compute_at_end(self._backlog, last))

    def _integrate(self, of: Floats) -> Floats:
        return np.asarray(np.einsum("s,sbc->bc", self._demand.chances, of))


Ints = npt.NDArray[np.int64]


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
