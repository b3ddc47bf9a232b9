"""How many processes a pool was last asked to have.

Celery does what `pool_grow` says only when it next maintains its pool, each five seconds; until then the
pool seems to have had no order. Whoever asks again in that time, this process or another, must count from
what was ordered, or the pool would get twice as many.
"""

import json
from typing import Protocol

import redis

from queues import keys

SETTLES_SECONDS = 7.0


class PoolOrders(Protocol):
    """Of one plant; the latest of each worker, for SETTLES_SECONDS."""

    def count_pending(self, worker: str, pid: int | None) -> int | None:
        """Processes that this life of the worker may not have yet; None: nothing is under way."""
        ...

    def note(self, worker: str, pid: int | None, processes: int) -> None: ...


class SharedOrders:
    """On the control server: every process of ours sees them."""

    def __init__(self, control: redis.Redis, plant: str) -> None:
        self._control, self._plant = control, plant

    def count_pending(self, worker: str, pid: int | None) -> int | None:
        stored = self._control.get(keys.POOL_ORDER.build(self._plant, worker))
        order = json.loads(stored) if stored else None
        return int(order["processes"]) if order and order["pid"] == pid else None

    def note(self, worker: str, pid: int | None, processes: int) -> None:
        key = keys.POOL_ORDER.build(self._plant, worker)
        document = json.dumps({"pid": pid, "processes": processes})
        self._control.set(key, document, px=round(SETTLES_SECONDS * 1_000))
