"""Managers that tick on a plant in memory, on a real database and control server; run with its settings."""

import json
import sys
import time
from datetime import timedelta

from django.utils import timezone

from console.connections.control_server import control
from queues.models import Container, Node, Queue
from queues.projection import project
from workers.control.engine import tick_law
from workers.control.loops import ensure_loops
from workers.control.parts.present import Present
from workers.models import LedgerEntry
from workers.plants.memory import MemoryPlant

QUEUES, NODES, EVENTS_A_ROUND = 10, 4, 700


def measure(seconds: float) -> None:
    """Prints seconds a tick, ticks and loops as JSON."""
    containers = _seed()
    loops = ensure_loops(Present(project(control()), control()), ("worker_rate",))
    clock = timezone.now()
    plant = MemoryPlant(lambda: clock.timestamp(), containers)
    rounds, took = 0, 0.0
    while took < seconds or rounds < 3:
        clock += timedelta(seconds=2)
        for number, (queue, node) in enumerate(containers):
            plant.put(queue, node, EVENTS_A_ROUND * (1 + number % 3))
        started = time.perf_counter()
        tick_law("worker_rate", plant, clock, control())
        took += time.perf_counter() - started
        for queue, node in containers:
            plant.run(queue, node, 1_000)
        rounds += 1
    ticks = LedgerEntry.objects.filter(loop__law="worker_rate").count()
    found = {
        "tick_seconds": took / max(1, ticks),
        "ticks_per_second": ticks / took,
        "ticks": ticks,
        "loops": len(loops),
    }
    sys.stdout.write(json.dumps(found))


def _seed() -> list[tuple[str, str]]:
    nodes = [Node.objects.create(name=f"n{number}", url="redis://127.0.0.1:1/0") for number in range(NODES)]
    for number in range(QUEUES):
        queue = Queue.objects.create(
            name=f"queue{number}", kind="jobs", handler="noop", events_per_worker=1_000
        )
        for node in nodes:
            Container.objects.create(queue=queue, node=node, points=1_000 // NODES)
    return [(f"queue{number}", node.name) for number in range(QUEUES) for node in nodes]
