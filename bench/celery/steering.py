"""Attaches to Celery apps and steers their pools, as the observer and the ticks of a plant do; run with a
plant's settings, until it is ended.
"""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis

from common.stored_document import replace_fields
from console.connections.control_server import control
from queues.topology import Topology
from workers.control.engine import tick_due
from workers.control.loops import ensure_loops
from workers.control.parts.kind import PlantInventory
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.adapters import check
from workers.plants.foreign.watch import PlantWatch
from workers.plants.models import RegisteredPlant
from workers.plants.steered import SteeredPlant

JOINT, CONCURRENCY, WORKER_RATE = "parallelism_joint", "concurrency", "worker_rate"
CYCLE_SECONDS, ENSURED_SECONDS = 0.5, 5.0
# What an owner sets, of the joint law one who wants tasks begun within .8 s; the rest is as an attached app
# begins with.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    JOINT: {"bound_seconds": 0.4, "deadline_seconds": 0.8, "minimum": 3, "maximum": 24},
    CONCURRENCY: {"maximum": 8, "initial_samples": 6},
    WORKER_RATE: {},
}
# A term of a decision on what was measured.
DECIDED = {JOINT: "tasks_before", CONCURRENCY: "measured_threads", WORKER_RATE: "workers"}


class Watched(SteeredPlant):
    """What the watch saw last."""

    def __init__(self, server: redis.Redis, watch: PlantWatch) -> None:
        super().__init__(server, time.time)
        self._watch = watch

    def observe(self) -> Snapshot:
        return replace_fields(NOTHING_SEEN, plant="main", at=time.time(), plants=self._watch.collect_rows())


def steer(plants: Mapping[str, str], notes: str, law: str = JOINT) -> None:
    """Register, put the loops of a law on auto, and tick; each decision is a line of `notes`."""
    registered_at = time.monotonic()
    for name, url in plants.items():
        row = RegisteredPlant(name=name, kind="celery", url=url)
        check(row)
        row.save()
    watched, decided, ensured_at = Watched(control(), PlantWatch()), set[str](), -ENSURED_SECONDS
    while True:
        if time.monotonic() - ensured_at >= ENSURED_SECONDS:
            ensured_at = time.monotonic()
            _put_on_auto(watched, law)
        for entry in tick_due(watched, datetime.now(UTC), control()):
            _note(entry, decided, time.monotonic() - registered_at, Path(notes))
        time.sleep(CYCLE_SECONDS)


def _put_on_auto(watched: Watched, law: str) -> None:
    """Those that there are now: a pool has one once it is seen."""
    present = PlantInventory(Topology(0, {}, {}), control(), watched.observe())
    for loop in ensure_loops(present, (law,)):
        if loop.mode != Loop.Mode.AUTO:
            parameters = {**loop.parameters, **PARAMETERS[law]}
            Loop.objects.filter(pk=loop.pk).update(mode=Loop.Mode.AUTO, parameters=parameters)


def _note(entry: LedgerEntry, decided: set[str], since_seconds: float, notes: Path) -> None:
    plant = entry.loop.target["plant"]
    document = {"plant": plant, "at": entry.at.timestamp(), "reason": entry.reason}
    if entry.error:
        document["error"] = entry.error
    if entry.terms.get(DECIDED[entry.loop.law]) is not None and plant not in decided:
        decided.add(plant)
        document["decided_seconds"] = round(since_seconds, 2)
    with notes.open("a") as file:
        file.write(json.dumps(document) + "\n")
