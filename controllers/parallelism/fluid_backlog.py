"""What waits and what comes too late while some capacity meets what may be offered.

Events are a fluid: a step of dt seconds that begins with a backlog B and a rest r of a pause ends with

    B' = max(0, B + X dt - C (dt - min(r, dt)))   and   r' = max(0, r - dt)

An event that comes waits w = r + B / C. That costs its work times `missed_cost` where w is the deadline and,
as nobody knows exactly when a wait ends, the square of w / deadline of it before: min(1, (w / deadline)²).
Over a step w falls or rises in a straight line, and is 0 from where what piled up is gone. What is still
there at the end will have to be worked at, and waits as it does then.

What waits beyond the deadline fails and comes again a deadline after it came, while its old self still takes
its turn. So beside the forecast comes again, of L that came per second and were late,

    R' = R + (min(L, F) - R) min(1, dt / deadline)

from R = F on, what fails now: what a plan lets fail anew the next decision sees, and mends. A capacity that
does not bring the wait below the deadline never ends it. While what waits now, if it is much, is not worked
off, at least as much comes for the first time as does now.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Demand:
    """What may be offered at the source, events/s: scenarios by steps, each scenario with its chance."""

    rates: Floats
    chances: Floats
    step_seconds: float
    present_per_second: float  # for the first time
    backlog_events: float
    again_per_second: float = 0.0  # what failed and comes again now


@dataclass(frozen=True)
class Lateness:
    """What an event costs by its wait: a deadline, its work (task-seconds), and of how much of it."""

    deadline_seconds: float
    work_seconds: float
    missed_cost: float

    def of(self, first: Floats, last: Floats, falls_per_second: Floats, step_seconds: float) -> Floats:
        """Of an event on average, while the wait goes from `first` to `last` in a step."""
        until = np.where(last > 0, 1.0, first / np.maximum(falls_per_second * step_seconds, 1e-12))
        squares = np.minimum(1.0, until) * (first**2 + first * last + last**2) / 3
        return np.asarray(self.work_seconds * self.missed_cost * self._share(squares))

    def at_end(self, backlog: Floats, wait: Floats) -> Floats:
        """Of all that is left."""
        return np.asarray(backlog * self.work_seconds * (1 + self.missed_cost * self._share(wait**2)))

    def failing(self, first: Floats, last: Floats) -> Floats:
        """The share of a step that waits beyond the deadline."""
        over, under = np.maximum(first, last), np.minimum(first, last)
        beyond = (over - self.deadline_seconds) / np.maximum(over - under, 1e-12)
        return np.where(under >= self.deadline_seconds, 1.0, np.clip(beyond, 0.0, 1.0))

    def _share(self, squares: Floats) -> Floats:
        return np.asarray(np.minimum(1.0, squares / self.deadline_seconds**2))


def cost_of_waiting(
    demand: Demand,
    lateness: Lateness,
    capacities: Floats,
    begins: npt.NDArray[np.int64],
    pause_seconds: float,
) -> tuple[Floats, Floats]:
    """Task-seconds expected, begins by steps by capacities (events/s): what came too late until the end of
    each step, and what is left there. A row begins with its step, with a pause, and, where that is the first
    one, with what waits now."""
    fluid = _Fluid(demand, lateness, capacities, begins[:, None], pause_seconds)
    steps = [fluid.step(step) for step in range(demand.rates.shape[1])]
    late, left = (np.stack(each, axis=1) for each in zip(*steps, strict=True))
    return np.cumsum(late, axis=1), left


class _Fluid:
    """Arrays are scenarios by begins by capacities."""

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
        # What waits now is no more than what passes in a second: then nothing of it is late.
        self._is_late = (begins == 0) & (demand.backlog_events > demand.present_per_second)

    def step(self, step: int) -> tuple[Floats, Floats]:
        """What it costs that came in this step, and what is left at its end."""
        dt, capacities = self._demand.step_seconds, self._capacities
        runs = self._begins <= step
        self._rest = np.where(self._begins == step, self._pause_seconds, self._rest)
        first = np.where(runs, self._rest + self._backlog / capacities, 0.0)
        offered = self._first_time(step, first) + self._again
        passed = capacities * (dt - np.minimum(self._rest, dt))
        self._backlog = np.where(runs, np.maximum(0.0, self._backlog + offered * dt - passed), 0.0)
        self._rest = np.maximum(0.0, self._rest - dt)
        last = self._rest + self._backlog / capacities
        falls = np.maximum(1e-12, 1 - offered / capacities)
        late = offered * dt * self._lateness.of(first, last, falls, dt)
        self._fail(offered * self._lateness.failing(first, last))
        return self._expected(late), self._expected(self._lateness.at_end(self._backlog, last))

    def _first_time(self, step: int, wait: Floats) -> Floats:
        forecast = self._demand.rates[:, step, None, None]
        goes_on = self._is_late & (wait > 0)
        return np.asarray(np.where(goes_on, np.maximum(forecast, self._demand.present_per_second), forecast))

    def _fail(self, late_per_second: Floats) -> None:
        late = np.minimum(late_per_second, self._demand.again_per_second)
        share = min(1.0, self._demand.step_seconds / self._lateness.deadline_seconds)
        self._again = self._again + (late - self._again) * share

    def _expected(self, of: Floats) -> Floats:
        return np.asarray(np.einsum("s,sbc->bc", self._demand.chances, of))
