"""The loops of the worker hosts that handle events: how many processes each has
(`controllers.concurrency.law`).

They begin in advise. An exploration takes workers away before it adds any, at a time nobody chose, and each
process takes memory of its host: that is for people to allow, host by host, in a range that they know. Until
then the loop measures at the size there is.
"""

from typing import Any

import orjson
import redis

from workers.control import loops as target_loops
from workers.control.kinds.concurrency import ROLE
from workers.control.schedule import CONCURRENCY_TICK_SECONDS
from workers.models import Loop
from workers.pool.hosts import KEY

LAWS = ("concurrency",)
# A process of a worker takes some 50 MB of its own. Who calls slow services may want more, and says so.
MOST_PROCESSES = 32
# Hosts report each second, and what they report is looked at each second.
STALE_SECONDS = 5.0
# A sample is the mean of several completions (`workers.pool.departures`): fewer of them tell as much. Points
# that are known to 2 % show a step's 14 % well, and a pool is not at a size that is only tried for longer.
INITIAL_SAMPLES, PROBE_ERROR = 16, 0.02


def ensure_pool_loops(control: redis.Redis) -> list[Loop]:
    """A loop for each worker host of role jobs that reports; those of vanished ones are retired."""
    reports = {name.decode(): orjson.loads(stored) for name, stored in control.hgetall(KEY).items()}
    hosts = {name: report for name, report in reports.items() if report["role"] == ROLE}
    wanted = {f"concurrency/{name}": made(name, report["slots"]) for name, report in hosts.items()}
    return target_loops.ensure(LAWS, wanted, "its worker host does not report")


def made(host: str, slots: int) -> dict[str, Any]:
    """How the loop of a host begins: from the size it was started with."""
    most = max(MOST_PROCESSES, slots)
    return {
        "law": "concurrency",
        "target": {"host": host},
        "mode": Loop.Mode.ADVISE,
        "interval_seconds": float(CONCURRENCY_TICK_SECONDS),
        "parameters": {
            "method": "explorer",
            "start": slots,
            "minimum": 1,
            "maximum": most,
            "initial_samples": INITIAL_SAMPLES,
            "probe_error": PROBE_ERROR,
        },
        "guard": {"minimum": 1.0, "maximum": float(most), "stale_seconds": STALE_SECONDS},
    }
