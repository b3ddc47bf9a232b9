"""Run by itself, with a console's environment: its database gets two hosts whose loops have explored.

Their pools do as they are asked, the decisions are the law's own, the last minutes are history.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import django

from common.stored_document import encode_document
from queues import keys

django.setup()

import orjson  # noqa: E402
import redis  # noqa: E402

from console.connections.control_server import control  # noqa: E402
from tests.workers.pool.pool_plant import Plant  # noqa: E402
from tests.workers.snapshots import snapshot_of  # noqa: E402
from workers.history import metrics  # noqa: E402
from workers.models import Loop  # noqa: E402
from workers.snapshot.control_record import control_record  # noqa: E402

TICKS = 64
CAPACITIES = (9, 6)  # of the service that the handlers call, before and after half of the time


def noisy(capacity: int, chance: random.Random) -> Callable[[int], float]:
    """Some 3 % about a station's throughput, a little of which is lost by each that waits."""
    return lambda threads: 52.0 * min(threads, capacity) / (1 + 0.004 * threads) * chance.uniform(0.98, 1.02)


def write_history(server: redis.Redis, snapshot: dict, at: datetime) -> None:
    """The snapshot's row, under its own time."""
    server.xadd(keys.METRICS, metrics.build_stream_entry(snapshot_of(snapshot)), id=f"{int(at.timestamp() * 1000)}-0")


def main() -> None:
    server, chance = control(), random.Random(7)
    server.delete(keys.METRICS)
    began = datetime.now(UTC) - timedelta(seconds=5 * TICKS + 5)
    plant = Plant(server, "jobs@plant-1", "jobs@plant-2", now=began)
    for tick in range(TICKS):
        plant.work(noisy(CAPACITIES[tick > TICKS // 2], chance))
        plant.tick()
        if tick == 2:
            Loop.objects.filter(name="concurrency/jobs@plant-1").update(mode="auto")
        snapshot = orjson.loads(server.get(keys.SNAPSHOT))
        for row in snapshot["hosts"].values():
            row["busy"] = row["slots"]
            row["done"]["per_second"] = 1 / row["done"]["recent_seconds"][-1]
        write_history(server, snapshot, plant.now)
    snapshot["loops"] = control_record(plant.now).loops
    server.set(keys.SNAPSHOT, encode_document(snapshot))


if __name__ == "__main__":
    main()
