"""What recorded arrivals at one container would have cost with other parameters of its worker law.

The plant is that of the lab's scenario `manager`: it answers to what is decided, so this is closed-loop. Of
each stretch, with n seconds,

    cost = (runs - fewest) / fewest + 10·(seconds with more than upper_limit waiting) / n
                                    + 10·(seconds whose oldest waits too long) / n

runs: of workers, with those that what is left needs. fewest: events / events_per_worker, rounded up. Too
long: more than max_wait_seconds and two evaluations, one to see the event and one until its worker runs. The
limits are what people wish and the price of missing them: a tenth of the time late costs as much as twice the
workers. Shape: one count of events a second.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from controllers.framework.law import Values
from controllers.simulation.manager import ShippedManager, ages_seconds, simulate
from controllers.simulation.model.scenario import Floats

PRICE = 10.0
# What a worker's start and its evaluation are worth is judged; what people want of it is not.
TUNED = ("fill_share", "trend_gain", "caution")


def cost(values: Values, stretches: Sequence[Floats]) -> float:
    """The mean cost of some stretches of arrivals with all of the law's parameters."""
    return float(np.mean([_cost(values, inflow) for inflow in stretches]))


def _cost(values: Mapping[str, Any], inflow: Floats) -> float:
    interval = max(1, round(values["interval_seconds"]))
    size, limit = int(values["events_per_worker"]), float(values["upper_limit"])
    # The model's worker runs at the evaluation after the one that starts it.
    manager = ShippedManager(values, interval, {**values, "lead_seconds": float(interval)})
    done = simulate(manager, inflow, size)
    fewest = math.ceil(inflow.sum() / size)
    late = ages_seconds(inflow, done.waiting) > values["max_wait_seconds"] + 2 * interval
    runs = float(done.ran.sum()) + done.left
    missed = float((done.waiting > limit).mean()) + float(late.mean())
    return float((runs - fewest) / max(1, fewest) + PRICE * missed)


def arrivals(at_seconds: Sequence[float], lengths: Sequence[float], removed: Sequence[float]) -> Floats:
    """Events that came in each second, from what was observed at some times: what waits, and what was removed
    since the time before. Between two times they came evenly. Empty for fewer than two times.
    """
    if len(at_seconds) < 2:
        return np.zeros(0)
    came = np.maximum(0.0, np.diff(lengths) + np.asarray(removed[1:], dtype=float))
    at, total = np.asarray(at_seconds, dtype=float), np.concatenate([[0.0], np.cumsum(came)])
    seconds = np.arange(math.floor(at[0]), math.floor(at[-1]) + 1, dtype=float)
    return np.diff(np.interp(seconds, at, total))
