"""200,000 events at once on an empty queue of a running plant: is the pool used, and who else has to wait?

A real plant (./run), its own telemetry going on. The capacity of the pool is measured in the same run, on the same
workers: the events that a slot handled per second of its workers' own time, times the slots.

    capacity   = events / Σ workers' seconds · slots                                          [events/s]
    share      = events handled / (seconds from the first worker's begin until no container fills a worker)
                 / capacity
    runs       = workers that began / ⌈events / events per worker⌉

What is left then, less than a worker in each container, may wait for more, as the law has it: a pool that handles the
burst within an interval of the loops would else be measured by how long that rest waits.

The lag of a queue is the age of its oldest waiting event; the greatest seen from the drop on until the queue is empty
again, beside the same queue's greatest in some time before the drop.

Twice: with the queue's own handler, which has its events stored within a second, and with one that takes 0.1 ms an
event, so that others have long to wait if they have to.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import redis

from bench.plant.running_plant import RunningPlant
from queues import keys
from queues.publishing.client import Client
from queues.topology import Topology

QUEUE = "alert"
EVENTS = 200_000
LIMITS = {"pool_share": 0.9, "runs_to_minimum": 1.1, "others_lag_seconds": 5.0}
CHECK_SECONDS = 0.05
DRAIN_SECONDS = 240.0
CALM_SECONDS, QUIET_SECONDS = 15.0, 5.0
SLOW_HANDLER = "emulate"
SET_HANDLER = """
from console.connections.control_server import control
from queues import projection
from queues.models import Queue
Queue.objects.filter(name={queue!r}).update(handler={handler!r})
projection.project(control())
"""


@dataclass
class Watch:
    """What is seen of a plant while it handles a burst; `lags_seconds`: the greatest of each queue."""

    plant: RunningPlant
    topology: Topology = field(init=False)
    lags_seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topology = Topology.from_json(self.plant.control.get(keys.TOPOLOGY))
        spec = self.topology.queue(QUEUE)
        self.events_per_worker = spec.events_per_worker
        self.segments = {
            name: redis.Redis.from_url(self.topology.get_node(name).url, decode_responses=True) for name in spec.points
        }

    def close(self) -> None:
        for client in self.segments.values():
            client.close()

    def count_waiting(self) -> list[int]:
        """Events in each container now, by the nodes' own counters."""
        counts = [
            client.hmget(keys.COUNTERS.build(QUEUE), "inserted_events", "removed_events")
            for client in self.segments.values()
        ]
        return [int(inserted or 0) - int(removed or 0) for inserted, removed in counts]

    def count_waiting_events(self) -> int:
        """In the queue now."""
        return sum(self.count_waiting())

    def work(self, name: str) -> int:
        """A count of the queue's workers, over all containers."""
        return sum(int(self.plant.control.hget(keys.WORK.build(QUEUE, node), name) or 0) for node in self.segments)

    def note_lags(self) -> None:
        """Keep the greatest lag of each queue in the newest snapshot."""
        snapshot = self.plant.snapshot() or {"queues": {}}
        for name, row in snapshot["queues"].items():
            seen = row["oldest_seconds"] or 0.0
            self.lags_seconds[name] = max(self.lags_seconds.get(name, 0.0), seen)

    def lags_over(self, seconds: float) -> dict[str, float]:
        """The greatest lag of each queue within the next seconds."""
        self.lags_seconds = {}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.note_lags()
            time.sleep(CHECK_SECONDS)
        return self.lags_seconds


def events_of(count: int) -> pa.Table:
    """Events of one host, as columns."""
    numbers = np.arange(count)
    now_us = int(time.time() * 1e6)
    return pa.table(
        {
            "time": pa.array(np.full(count, now_us), pa.timestamp("us", "UTC")),
            "type": pa.array(["burst"] * count),
            "source": pa.array(["bench"] * count),
            "key": pa.array(numbers.astype("U")),
            "value": numbers / 7,
        }
    )


@contextmanager
def use_handler(plant: RunningPlant, handler: str) -> Iterator[None]:
    """The queue has another handler for a while."""
    topology = Topology.from_json(plant.control.get(keys.TOPOLOGY))
    try:
        _set_handler(plant, handler)
        yield
    finally:
        _set_handler(plant, topology.queue(QUEUE).handler)


def _set_handler(plant: RunningPlant, handler: str) -> None:
    done = plant.manage("shell", "-c", SET_HANDLER.format(queue=QUEUE, handler=handler))
    if done.returncode:
        raise AssertionError(done.stderr)


def burst(plant: RunningPlant, count: int = EVENTS, calm_seconds: float = CALM_SECONDS) -> dict[str, float]:
    """Drop `count` events on the queue once it is empty, and watch until the last is handled."""
    watch = Watch(plant)
    plant.wait_until(lambda snapshot: watch.count_waiting_events() == 0, DRAIN_SECONDS, f"{QUEUE} is empty")
    try:
        return _figures(plant, watch, count, calm_seconds)
    finally:
        watch.close()


def _figures(plant: RunningPlant, watch: Watch, count: int, calm_seconds: float) -> dict[str, float]:
    slots = (plant.snapshot() or {})["totals"]["worker_slots"]
    calm = watch.lags_over(calm_seconds)
    before = {name: watch.work(name) for name in ("started", "busy_ms", "events")}
    with Client(plant.control_url(), producer="bench") as client:
        table = events_of(count)
        watch.lags_seconds = {}
        dropped = time.monotonic()
        client.publish(QUEUE, table)
    acknowledged = time.monotonic()
    began, ended, left = _follow(watch, before["started"])
    emptied = _wait_until_empty(watch)
    after = _wait_until_settled(watch, before["started"])
    runs, busy_seconds = after["started"] - before["started"], (after["busy_ms"] - before["busy_ms"]) / 1e3
    events = after["events"] - before["events"]
    capacity = events / busy_seconds * slots
    others = {name: lag for name, lag in watch.lags_seconds.items() if name != QUEUE}
    handled = (events - left) / (ended - began)
    return {
        "events": events,
        "seconds_to_publish": acknowledged - dropped,
        "seconds_to_first_worker": began - acknowledged,
        "seconds_to_empty": emptied - acknowledged,
        "handled_per_second": handled,
        "pool_capacity_per_second": capacity,
        "pool_share": handled / capacity,
        "worker_runs": runs,
        "minimum_runs": float(np.ceil(events / watch.events_per_worker)),
        "runs_to_minimum": runs / np.ceil(events / watch.events_per_worker),
        "others_lag_seconds": max(others.values()),
        "calm_lag_seconds": max(calm.get(name, 0.0) for name in others),
        **{f"lag_seconds_{name}": lag for name, lag in others.items()},
        **{f"calm_lag_seconds_{name}": calm.get(name, 0.0) for name in others},
    }


def _follow(watch: Watch, started_before: int) -> tuple[float, float, int]:
    """When the first worker began, when no container filled one any more, and how many events were left."""
    began = None
    until = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < until:
        now = time.monotonic()
        if began is None and watch.work("started") > started_before:
            began = now
        waiting = watch.count_waiting()
        if began is not None and max(waiting) < watch.events_per_worker:
            return began, now, sum(waiting)
        watch.note_lags()
        time.sleep(CHECK_SECONDS)
    raise AssertionError(f"{watch.count_waiting_events():,} events still wait after {DRAIN_SECONDS:.0f} s")


def _wait_until_empty(watch: Watch) -> float:
    """When the last event was handled."""
    until = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < until:
        if watch.count_waiting_events() == 0:
            return time.monotonic()
        watch.note_lags()
        time.sleep(CHECK_SECONDS)
    raise AssertionError(f"{watch.count_waiting_events():,} events still wait after {DRAIN_SECONDS:.0f} s")


def _wait_until_settled(watch: Watch, started_before: int) -> dict[str, int]:
    """The counts when every worker has ended, those that found nothing left included."""
    until, quiet_since, started = time.monotonic() + 60.0, time.monotonic(), -1
    while time.monotonic() < until:
        watch.note_lags()
        if watch.work("started") != started or watch.work("finished") != started:
            started, quiet_since = watch.work("started"), time.monotonic()
        elif time.monotonic() - quiet_since > QUIET_SECONDS:
            break
        time.sleep(CHECK_SECONDS)
    return {name: watch.work(name) for name in ("started", "busy_ms", "events")}


def run(seconds: float) -> dict[str, Any]:
    """A burst with each handler; the worse of each figure counts."""
    with RunningPlant() as plant:
        plant.wait_until(lambda s: (s["pipeline"] or {}).get("state") == "running", 120, "the pipeline runs")
        time.sleep(max(15.0, seconds))  # the start is over: compilers warm, first batches done
        own = burst(plant)
        with use_handler(plant, SLOW_HANDLER):
            slow = burst(plant)
    figures = {
        **{f"own_{name}": value for name, value in own.items()},
        **{f"slow_{name}": value for name, value in slow.items()},
        "pool_share": min(own["pool_share"], slow["pool_share"]),
        "runs_to_minimum": max(own["runs_to_minimum"], slow["runs_to_minimum"]),
        "others_lag_seconds": max(own["others_lag_seconds"], slow["others_lag_seconds"]),
    }
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items()},
        "at_least": ["pool_share"],
    }
