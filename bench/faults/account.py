"""What came of every event and of every decision, by what the handler and the loops have written."""

import json
import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass

import numpy as np

from bench.faults.broken_plant import BrokenPlant
from bench.faults.load import QUEUE, TYPE, Load
from bench.faults.whole import NODES
from queues import keys
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment

ROWS = 100_000  # read at a time


@dataclass(frozen=True)
class Account:
    """lost: acknowledged, and neither handled nor a dead letter. destroyed: how many of these the faults have cut off a
    server's file, or damaged there, at most. doubled: with more than one effect. open:
    decisions that were to be applied, and neither were nor say why; the newest of a loop may still be.
    overtaken: decisions under a number that was not greater than the one before (the ledger takes none).

    repeated: workers that began though no decision ordered them. unstarted: workers that a confirmed decision ordered,
    and that never began; those of the newest decisions may still, and a fault takes some with it. Workers are all that
    can be counted: each claims an id of its decision (for an hour). Not counted are an order that was given twice under
    the same ids, since its workers begin once all the same, and actions that set a value, such as shares, limits and
    tables, which are the same when they are set again.
    """

    acknowledged: int
    lost: int
    doubled: int
    dead: int
    decisions: int
    overtaken: int
    open: int
    repeated: int
    unstarted: int
    destroyed: int

    def __add__(self, other: "Account") -> "Account":
        return Account(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


def account(plant: BrokenPlant, load: Load) -> Account:
    """Of a load that has ended, when its queue is empty."""
    effects, dead = np.zeros(load.tried, np.int32), np.zeros(load.tried, bool)
    with closing(sqlite3.connect(plant.data / "handled.sqlite3", timeout=30)) as database:
        rows = database.execute("SELECT CAST(key AS INTEGER) FROM handled WHERE queue = ? AND type = ?", (QUEUE, TYPE))
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
    decisions, overtaken, left_open = _decisions(plant)
    repeated, unstarted = compare(_list_ordered(plant), _list_started(plant))
    return Account(
        acknowledged=int(acknowledged.sum()),
        lost=int((acknowledged & (effects == 0) & ~dead).sum()),
        doubled=int((effects > 1).sum()),
        dead=int(dead.sum()),
        decisions=decisions,
        overtaken=overtaken,
        open=left_open,
        repeated=repeated,
        unstarted=unstarted,
        destroyed=plant.destroyed_events,
    )


def _decisions(plant: BrokenPlant) -> tuple[int, int, int]:
    fences: dict[int, int] = {}
    is_open: dict[int, bool] = {}
    decisions = overtaken = left_open = 0
    with closing(sqlite3.connect(plant.data / "weir.sqlite3", timeout=30)) as database:
        for loop, fence, is_left in database.execute(
            "SELECT loop_id, fence, action IS NOT NULL AND mode IN ('auto', 'manual') AND NOT applied "
            "AND error = '' FROM workers_ledgerentry ORDER BY id"
        ):
            decisions += 1
            overtaken += fence <= fences.get(loop, 0)
            left_open += is_open.get(loop, False)
            fences[loop], is_open[loop] = fence, bool(is_left)
    return decisions, overtaken, left_open


@dataclass(frozen=True)
class Order:
    """Of workers, by a decision. confirmed: that they were handed on; where not, they may have been."""

    entry: int
    workers: int
    confirmed: bool

    def ids(self) -> set[str]:
        """As `workers.control.kinds.worker_rate` names them."""
        return {f"e{self.entry}-{place}" for place in range(self.workers)}


def compare(orders: Iterable[Order], begun: Collection[str]) -> tuple[int, int]:
    """(workers that began and were not ordered, workers of confirmed orders that did not begin)."""
    ordered: set[str] = set()
    confirmed: set[str] = set()
    for order in orders:
        ordered |= order.ids()
        confirmed |= order.ids() if order.confirmed else set()
    return len(set(begun) - ordered), len(confirmed - set(begun))


def _list_ordered(plant: BrokenPlant) -> list[Order]:
    with closing(sqlite3.connect(plant.data / "weir.sqlite3", timeout=30)) as database:
        rows = database.execute(
            "SELECT entry.id, entry.action, entry.applied FROM workers_ledgerentry entry "
            "JOIN workers_loop loop ON loop.id = entry.loop_id WHERE loop.law = 'worker_rate' "
            "AND entry.action IS NOT NULL AND entry.mode IN ('auto', 'manual')"
        ).fetchall()
    return [Order(number, int(json.loads(action)["start"]), bool(applied)) for number, action, applied in rows]


def _list_started(plant: BrokenPlant) -> set[str]:
    """The ids that workers have claimed."""
    with plant.server("control") as control:
        found = control.scan_iter(match=keys.WORKER.pattern, count=ROWS)
        return {key.decode().rpartition(":")[2] for key in found}
