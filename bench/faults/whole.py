"""Whether a plant is whole: everything runs, and has moved on since a time. By direct evidence, not by what
the plant says of itself alone.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
import redis

from bench.faults.broken_plant import SERVERS, BrokenPlant
from bench.faults.load import QUEUE
from common.errors import WeirError
from queues.segments.segment import Segment

NODES = tuple(name for name in SERVERS if name != "control")
PIPELINE_QUEUE = "telemetry"
STARTED_SECONDS = 5.0  # the page answers, or it does not


@dataclass(frozen=True)
class Evidence:
    """How far everything was. seq: of the snapshot. entries: of the ledger. stored, handled: events of the
    load's queue. read: of the pipeline's. modes: of the loops.
    """

    seq: int
    entries: int
    stored: int
    handled: int
    read: int
    modes: dict[str, str]


def evidence(plant: BrokenPlant) -> Evidence:
    """Raises redis' errors, WeirError, SQLite's and OSError while something does not answer."""
    counters = {queue: _counters(plant, queue) for queue in (QUEUE, PIPELINE_QUEUE)}
    snapshot = plant.snapshot() or {}
    with closing(sqlite3.connect(f"file:{plant.data / 'weir.sqlite3'}?mode=ro", uri=True)) as database:
        modes = dict(database.execute("SELECT name, mode FROM workers_loop"))
        (entries,) = database.execute("SELECT coalesce(max(id), 0) FROM workers_ledgerentry").fetchone()
    return Evidence(
        snapshot.get("seq", 0), entries, counters[QUEUE][0], counters[QUEUE][1], counters[PIPELINE_QUEUE][1], modes
    )


def _counters(plant: BrokenPlant, queue: str) -> tuple[int, int]:
    inserted = removed = 0
    for name in NODES:
        with plant.server(name) as node:
            counters = Segment(node, queue).get_counters()
        inserted += counters["inserted_events"]
        removed += counters["removed_events"]
    return inserted, removed


def list_missing(plant: BrokenPlant, since: Evidence) -> list[str]:
    """What does not run, or has not moved on since; empty when the plant is whole."""
    try:
        found = [f"{name} is {row['statename']}" for name, row in plant.rows().items() if not _runs_or_is_done(row)]
        now, snapshot = evidence(plant), plant.snapshot() or {}
    except (redis.RedisError, WeirError, OSError, sqlite3.Error) as error:
        return [f"it does not answer: {error}"]
    checks = {
        "no snapshot": now.seq > since.seq,
        "no decision": now.entries > since.entries,
        "events that were stored before wait": now.handled >= since.stored,
        "the pipeline reads nothing": now.read > since.read,
        "the pipeline does not run": snapshot.get("pipeline", {}).get("state") == "running",
        # A plant that is just being made gets its loops one after another.
        "a loop is in another mode": now.modes.items() >= since.modes.items(),
        "the page does not answer": _page_answers(plant),
    }
    for name, row in snapshot.get("nodes", {}).items():
        checks[f"{name} is not heard"] = row["state"] not in (None, "OFFLINE")
    return found + [what for what, holds in checks.items() if not holds]


def _runs_or_is_done(row: dict[str, Any]) -> bool:
    """Return whether a process runs, or has ended as expected: some processes are idle most of the time."""
    return bool(row["statename"] == "RUNNING" or (row["statename"] == "EXITED" and row["exitstatus"] == 0))


def _page_answers(plant: BrokenPlant) -> bool:
    try:
        return httpx.get(f"{plant.url}/login/", timeout=STARTED_SECONDS).status_code == 200
    except httpx.HTTPError:
        return False
