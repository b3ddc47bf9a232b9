"""What came of every event and of every decision, by what the handler and the loops have written."""

import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass

import numpy as np

from bench.faults.broken_plant import BrokenPlant
from bench.faults.load import QUEUE, TYPE, Load
from bench.faults.whole import NODES
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment

ROWS = 100_000  # read at a time


@dataclass(frozen=True)
class Account:
    """lost: acknowledged, and neither handled nor a dead letter. doubled: with more than one effect.
    repeated: decisions under a number that was not greater than the one before. open: decisions that were to
    be applied, and neither were nor say why; the newest of a loop may still be.
    """

    acknowledged: int
    lost: int
    doubled: int
    dead: int
    decisions: int
    repeated: int
    open: int

    def __add__(self, other: "Account") -> "Account":
        return Account(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


def account(plant: BrokenPlant, load: Load) -> Account:
    """Of a load that has ended, when its queue is empty."""
    effects, dead = np.zeros(load.tried, np.int32), np.zeros(load.tried, bool)
    with closing(sqlite3.connect(plant.data / "handled.sqlite3", timeout=30)) as database:
        rows = database.execute(
            "SELECT CAST(key AS INTEGER) FROM handled WHERE queue = ? AND type = ?", (QUEUE, TYPE)
        )
        while piece := rows.fetchmany(ROWS):
            # An event has a row for each of its effects: its id follows from its block, not from its key.
            effects += np.bincount(np.array(piece).ravel(), minlength=load.tried).astype(np.int32)
    for name in NODES:
        with plant.server(name) as node:
            for letter in DeadLetters(Segment(node, QUEUE)).read(1_000_000):
                keys = [key for key in letter.batch.column("key").to_pylist() if key and key.isdigit()]
                dead[[int(key) for key in keys if int(key) < load.tried]] = True
    acknowledged = np.zeros(load.tried, bool)
    for first, count in load.acknowledged:
        acknowledged[first : first + count] = True
    decisions, repeated, left_open = _decisions(plant)
    return Account(
        acknowledged=int(acknowledged.sum()),
        lost=int((acknowledged & (effects == 0) & ~dead).sum()),
        doubled=int((effects > 1).sum()),
        dead=int(dead.sum()),
        decisions=decisions,
        repeated=repeated,
        open=left_open,
    )


def _decisions(plant: BrokenPlant) -> tuple[int, int, int]:
    fences: dict[int, int] = {}
    is_open: dict[int, bool] = {}
    decisions = repeated = left_open = 0
    with closing(sqlite3.connect(plant.data / "weir.sqlite3", timeout=30)) as database:
        for loop, fence, is_left in database.execute(
            "SELECT loop_id, fence, action IS NOT NULL AND mode IN ('auto', 'manual') AND NOT applied "
            "AND error = '' FROM workers_ledgerentry ORDER BY id"
        ):
            decisions += 1
            repeated += fence <= fences.get(loop, 0)
            left_open += is_open.get(loop, False)
            fences[loop], is_open[loop] = fence, bool(is_left)
    return decisions, repeated, left_open
