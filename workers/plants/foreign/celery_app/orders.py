"""The number of processes that was last ordered for a pool.

Celery executes `pool_grow` only at its next pool maintenance, every five seconds. Until then the pool looks as if it
had no order. A process that orders again in that time must count from the ordered size, or the pool would get twice as
many processes.
"""

import json
from typing import Protocol

import redis

from queues import keys

SETTLES_SECONDS = 7.0


class PoolOrders(Protocol):
    """The orders of one plant: the latest for each worker, for SETTLES_SECONDS."""

    def count_pending(self, worker: str, pid: int | None) -> int | None:
        """Return the ordered size that this life of the worker may not have reached yet, or None."""
        ...

    def note(self, worker: str, pid: int | None, processes: int) -> None: ...


class SharedOrders:
    """Orders that are stored on the control server, where every process of Weir sees them."""

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
