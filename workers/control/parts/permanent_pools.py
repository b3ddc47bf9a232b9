"""A pool of an attached plant as the worker rate law sees it: permanent workers.

See `controllers.worker_rate.permanent_pool`. Arrivals are known as a rate there, and the backlog follows from its wait
(Little's law); departures between two observations are not counted. The removed events are therefore the arrivals at
that rate in an interval, less the growth of the queue.
"""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement
from controllers.worker_rate.permanent_pool import PERMANENT
from workers.control.parts import attached_pools
from workers.control.parts.operators import BOUND_SECONDS, OTHERS_MAXIMUM, forecast_arrivals, forecast_of
from workers.documents.snapshot import Snapshot
from workers.history.expected_load import explain_unused
from workers.history.forecasts import WINDOW_SECONDS
from workers.plants.foreign.kind import PlantPace

# the interval at which a pool of Celery forks
INTERVAL_SECONDS = 5.0
# A change takes effect within the next windows of the forecast.
AHEAD_WINDOWS = 2
# for plants that a change stops
RARE_CHANGES: Mapping[str, Any] = {"cooldown_seconds": 60.0}
Target = Mapping[str, Any]


def observe_pool(
    law: str, target: Target, snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Measurement:
    """Return {queue_length, removed, running} of one pool.

    Where known, it also has {service_seconds, oldest_seconds, expected_per_second}. running: processes that exist or
    were ordered and are still to start.
    """
    pool = attached_pools.find_pool(target, snapshot)
    measured = attached_pools.check_measurement(law, target, snapshot, now_seconds)
    rate = pool.rate_per_second if pool else None
    if pool is None or rate is None:
        if measured.invalid is None:
            measured = ObservationQuality(
                measured.age_seconds, idle=f"the arrivals of {target['operator']} are not measured"
            )
        return Measurement({"queue_length": 0, "removed": 0}, measured, {})
    waiting = round(pool.waiting_events, 3)
    grown = waiting - (before or {}).get("queue_length", waiting)
    horizon = AHEAD_WINDOWS * WINDOW_SECONDS
    is_known = explain_unused(forecast_of(target, snapshot), horizon, now_seconds) is None
    expected = forecast_arrivals(target, snapshot, rate) if is_known else None
    known = {
        "service_seconds": pool.service_seconds,
        "oldest_seconds": pool.wait_seconds,
        "expected_per_second": round(max(expected[0][:AHEAD_WINDOWS]), 3) if expected else None,
    }
    observation = {
        "queue_length": waiting,
        "removed": round(max(0.0, rate * INTERVAL_SECONDS - grown), 3),
        "running": pool.coming,
        **{name: value for name, value in known.items() if value is not None},
    }
    return Measurement(observation, measured, {"queue_length": waiting})


def is_permanent(observation: Mapping[str, Any]) -> bool:
    """Return whether the observation is of a pool. For a container's workers, those that wait to run are counted."""
    return "running" in observation and "waiting_to_run" not in observation


def collect_readings(target: Target, snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the backlog and the tasks."""
    pool = attached_pools.find_pool(target, snapshot)
    if pool is None:
        return None
    return {"queue_length": pool.waiting_events, "tasks": pool.tasks, "node_state": None}


def is_at_rest(target: Target, snapshot: Snapshot) -> bool:
    """Return whether nothing arrives or waits and the pool has its minimum size."""
    pool = attached_pools.find_pool(target, snapshot)
    if pool is None or pool.coming > max(1, pool.operator.minimum):
        return False
    return pool.rate_per_second == 0 and not pool.wait_seconds


def build_start_values(pace: PlantPace | None, pool: attached_pools.ObservedPool | None) -> dict[str, Any]:
    """Return the parameters and guard that the loop of a pool starts with.

    A worker counts as full when nearly empty, since the pool is permanent. Arrivals are expected to continue at their
    rate: it is already an average over some time, a trend of it would overshoot, and no correction is subtracted.
    """
    bound = BOUND_SECONDS if pace is None else pace.bound_seconds
    least, most = attached_pools.compute_task_limits(pool, OTHERS_MAXIMUM if pace is None else pace.maximum)
    parameters = {
        "workers": PERMANENT,
        "interval_seconds": INTERVAL_SECONDS,
        "life_seconds": max(INTERVAL_SECONDS, bound),
        "max_wait_seconds": bound,
        "upper_limit": 1,
        "fill_share": 0.1,
        "caution": 0.0,
        "trend_gain": 0.0,
    }
    calm = RARE_CHANGES if pace is None else {}
    return {"parameters": parameters, "guard": {"minimum": float(least), "maximum": float(most), **calm}}
