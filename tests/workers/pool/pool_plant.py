"""A plant of worker hosts whose pools do as they are asked, and whose reports say what such pools would."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import redis

from common.stored_document import encode_document
from queues import keys
from tests.console.conftest import sample_snapshot
from tests.workers.loops import ensured
from workers.control.engine import tick_due
from workers.models import LedgerEntry, Loop
from workers.plants.steered import PublishedPlant
from workers.pool.hosts import PoolOrder
from workers.snapshot.control_record import control_record

NOW = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)
HOST = "jobs@here"
RATE = 40.0  # of one process


def host_report(slots: int = 2, **values: Any) -> dict[str, Any]:
    """A host of role jobs as the snapshot has it, and as it reports itself."""
    done = {"seq": 0, "recent_seconds": [], "full_seconds": 0.0, "per_second": None}
    row = {"role": "jobs", "slots": slots, "busy": 0, "pid": 7, "resizable": True, "started_with": 2}
    return {**row, "trouble": "", "done": done, "age_seconds": 0.5, "at": NOW.timestamp(), **values}


class Plant:
    """A published plant with worker hosts, whose reports the test writes as their pools would."""

    def __init__(self, control: redis.Redis, *hosts: str, most: int = 1_000, now: datetime = NOW) -> None:
        self.control, self.now, self.most, self.wait_seconds = control, now, most, 0.4
        self.rows = {host: host_report() for host in hosts or (HOST,)}
        for host, row in self.rows.items():
            control.hset(keys.HOSTS, host, orjson.dumps(row))
        ensured(control, ["concurrency"])

    def mode(self, mode: str) -> None:
        Loop.objects.update(mode=mode)

    def put_on_auto(self, rate_of: Callable[[int], float]) -> None:
        """Once it has been seen at work."""
        self.work(rate_of)
        self.tick()
        self.mode("auto")

    def work(self, rate_of: Callable[[int], float], samples: int = 40) -> None:
        """Five seconds in which all processes have work; orders are followed first."""
        for host, row in self.rows.items():
            order = PoolOrder.read(self.control.get(keys.POOL.build(host)))
            wanted = min(row["started_with"] if order is None else order.threads, self.most)
            if wanted != row["slots"]:
                row["slots"], row["done"]["recent_seconds"] = wanted, []
            gaps = [1 / rate_of(row["slots"])] * samples
            row["done"]["recent_seconds"] = (row["done"]["recent_seconds"] + gaps)[-64:]
            row["done"]["seq"] += samples
            row["done"]["full_seconds"] += 5.0

    def tick(self, seconds: float = 5.0) -> list[LedgerEntry]:
        self.now += timedelta(seconds=seconds)
        snapshot = sample_snapshot()
        snapshot |= {"at": self.now.timestamp(), "hosts": self.rows}
        snapshot["queues"]["alert"]["wait_seconds"] = self.wait_seconds
        snapshot["loops"] = control_record(self.now).loops
        self.control.set(keys.SNAPSHOT, encode_document(snapshot))
        plant = PublishedPlant(self.control, self.now.timestamp)
        return tick_due(plant, self.now, self.control, laws=("concurrency",))

    def order(self, host: str = HOST) -> PoolOrder | None:
        return PoolOrder.read(self.control.get(keys.POOL.build(host)))


def station(capacity: int) -> Callable[[int], float]:
    """Events per second by processes, where so many are served at once."""
    return lambda threads: RATE * min(threads, capacity)
