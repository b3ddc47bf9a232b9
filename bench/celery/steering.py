"""Attaches to Celery apps and steers their pools, as the observer and the ticks of a plant do; run with a
plant's settings, until it is ended.
"""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import redis

from console.connections.control_server import control
from queues.stored_document import changed
from queues.topology import Topology
from workers.control.engine import tick_due
from workers.control.loops import ensure_loops
from workers.control.parts.present import Present
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.adapters import check
from workers.plants.foreign.watch import PlantWatch
from workers.plants.models import RegisteredPlant
from workers.plants.steered import SteeredPlant

LAW = "parallelism_joint"
CYCLE_SECONDS = 0.5
# What an owner who wants tasks begun within .8 s sets; the rest is as an attached app begins with.
PARAMETERS = {"bound_seconds": 0.4, "deadline_seconds": 0.8, "minimum": 3, "maximum": 24}


class Watched(SteeredPlant):
    """What the watch saw last."""

    def __init__(self, server: redis.Redis, watch: PlantWatch) -> None:
        super().__init__(server, time.time)
        self._watch = watch

    def observe(self) -> Snapshot:
        return changed(NOTHING_SEEN, plant="main", at=time.time(), plants=self._watch.rows())


def steer(plants: Mapping[str, str], notes: str) -> None:
    """Register, put the loop on auto, and tick; each decision that acts is a line of `notes`."""
    registered_at = time.monotonic()
    for name, url in plants.items():
        row = RegisteredPlant(name=name, kind="celery", url=url)
        check(row)
        row.save()
    for loop in ensure_loops(Present(Topology(0, {}, {}), control()), (LAW,)):
        parameters = {**loop.parameters, **PARAMETERS}
        Loop.objects.filter(pk=loop.pk).update(mode=Loop.Mode.AUTO, parameters=parameters)
    watched, decided = Watched(control(), PlantWatch()), set[str]()
    while True:
        for entry in tick_due(watched, datetime.now(UTC), control(), laws=(LAW,)):
            _note(entry, decided, time.monotonic() - registered_at, Path(notes))
        time.sleep(CYCLE_SECONDS)


def _note(entry: LedgerEntry, decided: set[str], since_seconds: float, notes: Path) -> None:
    plant = entry.loop.target["plant"]
    document = {"plant": plant, "at": entry.at.timestamp(), "reason": entry.reason}
    if entry.error:
        document["error"] = entry.error
    if "tasks_before" in entry.terms and plant not in decided:
        decided.add(plant)
        document["decided_seconds"] = round(since_seconds, 2)
    with notes.open("a") as file:
        file.write(json.dumps(document) + "\n")
