"""A pool of an attached plant as the worker rate's law sees it: workers that stay
(`controllers.worker_rate.permanent_pool`).

There what comes is a rate, and what waits follows from how long it does (Little's law): nothing counts what
leaves from one observation to the next. So what was removed is what came at that rate in an interval, less
what the queue grew by.
"""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed
from controllers.worker_rate.permanent_pool import PERMANENT
from workers.control.parts import attached_pools
from workers.control.parts.operators import BOUND_SECONDS, OTHERS_MAXIMUM
from workers.documents.snapshot import Snapshot
from workers.plants.foreign.kind import PlantPace

# As often as a pool of Celery forks.
INTERVAL_SECONDS = 5.0
# Where a change stops the plant.
RARE_CHANGES: Mapping[str, Any] = {"cooldown_seconds": 60.0}
NOTHING: Mapping[str, Any] = {"queue_length": 0, "removed": 0}
Target = Mapping[str, Any]


def observe_pool(
    law: str, target: Target, snapshot: Snapshot, before: Counters | None, now_seconds: float
) -> Sensed:
    """{queue_length, removed, running} of one pool, and where they are known {service_seconds,
    oldest_seconds}. running: processes that are there, or ordered and still to come.
    """
    pool = attached_pools.find_pool(target, snapshot)
    measured = attached_pools.check_measurement(law, target, snapshot, now_seconds)
    rate = pool.rate_per_second if pool else None
    if pool is None or rate is None:
        if measured.invalid is None:
            measured = Measured(
                measured.age_seconds, idle=f"what comes to {target['operator']} is not measured"
            )
        return Sensed(dict(NOTHING), measured, {})
    waiting = round(pool.waiting_events, 3)
    grown = waiting - (before or {}).get("queue_length", waiting)
    known = {"service_seconds": pool.service_seconds, "oldest_seconds": pool.wait_seconds}
    observation = {
        "queue_length": waiting,
        "removed": round(max(0.0, rate * INTERVAL_SECONDS - grown), 3),
        "running": pool.coming,
        **{name: value for name, value in known.items() if value is not None},
    }
    return Sensed(observation, measured, {"queue_length": waiting})


def is_permanent(observation: Mapping[str, Any]) -> bool:
    """Whether it is of a pool: of workers of a container those that wait to run are counted."""
    return "running" in observation and "waiting_to_run" not in observation


def readings(target: Target, snapshot: Snapshot) -> dict[str, Any] | None:
    """What waits, and the tasks."""
    pool = attached_pools.find_pool(target, snapshot)
    if pool is None:
        return None
    return {"queue_length": pool.waiting_events, "tasks": pool.tasks, "node_state": None}


def is_at_rest(target: Target, snapshot: Snapshot) -> bool:
    """Whether nothing comes or waits, and the pool is as small as it gets."""
    pool = attached_pools.find_pool(target, snapshot)
    if pool is None or pool.coming > max(1, pool.operator.minimum):
        return False
    return pool.rate_per_second == 0 and not pool.wait_seconds


def values(pace: PlantPace | None, pool: attached_pools.SeenPool | None) -> dict[str, Any]:
    """Parameters and guard that the loop of a pool begins with. A worker counts as full nearly empty, since
    the pool stays. What comes is expected to go on as it does: its rate is measured over some time already, a
    trend of it would overshoot, and nothing is taken off.
    """
    bound = BOUND_SECONDS if pace is None else pace.bound_seconds
    least, most = attached_pools.limits(pool, OTHERS_MAXIMUM if pace is None else pace.maximum)
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
