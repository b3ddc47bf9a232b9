"""Managers that tick on a plant in memory, on a real database and control server; run with its settings.

Many of them tick in several processes, as in a control worker (WEIR_TICK_PROCESSES). Workers that the other processes
start are started here after the tick, and are not measured.
"""

import json
import sys
import time
from datetime import timedelta
from functools import lru_cache

import redis
from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from console.connections.control_server import control
from queues import keys
from queues.models import Container, Node, Queue
from queues.projection import project
from workers.control.engine import tick_due
from workers.control.kinds.worker_rate import INTERVAL_SECONDS
from workers.control.loops import ensure_loops
from workers.control.parallel_ticks import TickProcesses
from workers.control.parts.kind import PlantInventory
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry
from workers.plants.memory import MemoryPlant
from workers.plants.steered import open_published_plant

EVENTS_A_ROUND = 700
MIN_ROUNDS = 4


OPENER = "bench.laws.ticking_loops:open_plant"


class PublishedMemory(MemoryPlant):
    """The plant in another process. It keeps its own actions, and observes the snapshot that this process published."""

    def __init__(self, control: redis.Redis, containers: list[tuple[str, str]]) -> None:
        super().__init__(lambda: 0.0, containers)
        self._published = open_published_plant(control)

    def observe(self) -> Snapshot:
        return self._published.observe()


@lru_cache(maxsize=1)
def open_plant(control: redis.Redis) -> MemoryPlant:
    return PublishedMemory(control, list(Container.objects.values_list("queue__name", "node__name")))


def measure(queues: int, nodes: int, seconds: float) -> None:
    """Prints, as JSON, the seconds that all loops take for a tick: where each has nothing to do, and where
    each sends workers (medians of the rounds; most of those with nothing to do are at rest); and how many loops there
    are.
    """
    containers = _seed(queues, nodes)
    loops = ensure_loops(PlantInventory(project(control()), control()), ("worker_rate",))
    figures = {"loops": len(loops), "idle_seconds": _median(containers, seconds / 2, events=0)}
    figures["acting_seconds"] = _median(containers, seconds / 2, EVENTS_A_ROUND)
    sys.stdout.write(json.dumps(figures))


def _median(containers: list[tuple[str, str]], seconds: float, events: int) -> float:
    """The first round, in which everything is read for the first time, does not count."""
    clock = timezone.now() + timedelta(hours=bool(events))  # later than what was measured before
    plant = MemoryPlant(lambda: clock.timestamp(), containers)
    processes = TickProcesses(settings.WEIR_TICK_PROCESSES, [OPENER])
    took: list[float] = []
    while sum(took) < seconds or len(took) < MIN_ROUNDS:
        clock += timedelta(seconds=INTERVAL_SECONDS + sum(took[-1:]))
        for number, (queue, node) in enumerate(containers if events else ()):
            plant.put(queue, node, events * (1 + number % 3))
        control().set(keys.SNAPSHOT, plant.observe().to_json())
        last = LedgerEntry.objects.aggregate(last=Max("pk"))["last"] or 0
        started = time.perf_counter()
        tick_due(plant, clock, control(), processes=processes)
        took.append(time.perf_counter() - started)
        ticked = LedgerEntry.objects.filter(pk__gt=last).select_related("loop").only("action", "loop__target")
        for entry in ticked:
            count = int((entry.action or {}).get("start", 0))
            ids = [f"e{entry.pk}-{number}" for number in range(count)]
            plant.start_workers(entry.loop.target["queue"], entry.loop.target["node"], count, ids)
        assert len(ticked) == len(containers) or not events, "a loop was not ticked"
        for queue, node in containers if events else ():
            plant.run(queue, node, 1_000)
    processes.end()
    return sorted(took[1:])[len(took[1:]) // 2]


def _seed(queues: int, nodes: int) -> list[tuple[str, str]]:
    made = Node.objects.bulk_create(Node(name=f"n{number}", url="redis://127.0.0.1:1/0") for number in range(nodes))
    shares = [1_000 // nodes + (place < 1_000 % nodes) for place in range(nodes)]
    for number in range(queues):
        queue = Queue.objects.create(name=f"queue{number}", kind="jobs", handler="noop", events_per_worker=1_000)
        Container.objects.bulk_create(
            Container(queue=queue, node=node, points=points) for node, points in zip(made, shares, strict=True)
        )
    return [(f"queue{number}", node.name) for number in range(queues) for node in made]
