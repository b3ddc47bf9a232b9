"""The recorded arrivals of one container, processed again by its worker law or by a baseline.

The plant is that of the lab's scenario `manager`. It responds to the decisions, so the loop is closed. An event waits
too long after more than max_wait_seconds and two evaluations, one to see the event and one until its worker runs. Runs
include those for the events left at the end. Shape: one count of events per second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from controllers.simulation.manager import (
    THESIS,
    THESIS_INTERVAL_SECONDS,
    ManagedPool,
    ShippedManager,
    StaticWorkers,
    compute_event_ages,
    simulate,
)
from controllers.simulation.scenario import Floats
from controllers.worker_rate.shared import WorkerRateParameters

AFTER_REST_SECONDS = 2.0  # Events that arrive at an empty queue are seen within this time.
OURS, BASELINES = "worker_rate", ("thesis", "static")
Seconds = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ReplayedTimeRange:
    """The result of a load.

    runs: of workers. late_seconds: seconds in which the oldest event waits too long. over_limit_seconds: seconds in
    which more than upper_limit wait.
    """

    runs: float
    late_seconds: float
    over_limit_seconds: float


def replay(
    values: WorkerRateParameters, inflow: Floats, who: str = OURS, hold_seconds: Seconds | None = None
) -> ReplayedTimeRange:
    """Return the result of a load with the law and all of its parameters, or with one of BASELINES.

    These are `thesis`, the thesis' method, and `static`, the workers of the load's greatest second, known in advance.
    hold_seconds: the seconds without decisions.
    """
    interval = max(1, round(values.interval_seconds))
    manager = _create_manager(values, inflow, interval, who)
    done = simulate(
        manager if hold_seconds is None else _InterruptedManager(manager, hold_seconds),
        inflow,
        values.events_per_worker,
    )
    late = compute_event_ages(inflow, done.waiting) > values.max_wait_seconds + 2 * interval
    over = done.waiting > values.upper_limit
    return ReplayedTimeRange(float(done.ran.sum()) + done.left, float(late.sum()), float(over.sum()))


def _create_manager(values: WorkerRateParameters, inflow: Floats, interval: int, who: str) -> ManagedPool:
    if who == "static":
        return StaticWorkers(float(inflow.max(initial=0.0)), values.events_per_worker)
    if who == "thesis":
        lead = float(THESIS_INTERVAL_SECONDS)
        values = replace(values, **THESIS, lead_seconds=lead, interval_seconds=lead)
        return ShippedManager(THESIS_INTERVAL_SECONDS, values)
    # The model's worker runs at the evaluation after the one that starts it.
    return ShippedManager(interval, replace(values, lead_seconds=float(interval)))


class _InterruptedManager:
    """A manager that makes no decisions in some seconds; its state doesn't change in them."""

    def __init__(self, manager: ManagedPool, hold_seconds: Seconds) -> None:
        self._manager, self._held = manager, hold_seconds
        self.interval_seconds, self.under_way = manager.interval_seconds, manager.under_way
        self._second = 0

    def start(self, length: float, removed: float, ran: int) -> int:
        self._second += self.interval_seconds
        if self._held[min(self._second, len(self._held)) - 1]:
            return 0
        return self._manager.start(length, removed, ran)


def compute_arrivals(at_seconds: Sequence[float], lengths: Sequence[float], removed: Sequence[float]) -> Floats:
    """Return the arrivals of each second, from queue lengths and removed events at some times.

    Between two times, arrivals are spread evenly. After an empty queue they are in the last AFTER_REST_SECONDS, because
    an idle manager is not recorded until something waits. The result is empty for fewer than two times.
    """
    if len(at_seconds) < 2:
        return np.zeros(0)
    came = np.maximum(0.0, np.diff(lengths) + np.asarray(removed[1:], dtype=float))
    at, total = np.asarray(at_seconds, dtype=float), np.concatenate([[0.0], np.cumsum(came)])
    rested = (np.asarray(lengths[:-1]) == 0) & (np.diff(at) > AFTER_REST_SECONDS)
    more_at = at[1:][rested] - AFTER_REST_SECONDS
    more = total[:-1][rested]
    order = np.argsort(at_all := np.concatenate([at, more_at]), kind="stable")
    at, total = at_all[order], np.concatenate([total, more])[order]
    seconds = np.arange(math.floor(at[0]), math.floor(at[-1]) + 1, dtype=float)
    return np.diff(np.interp(seconds, at, total))
