"""The loops behind the levels of a queue's remedy ladder: what they can still do, and the request to decide at once.

In auto, these loops act independently of the ladder's level. This module reports to the ladder whether they can help.
Enabling their level makes them decide at once: their next decision is due, and a cool-down is waived once. In
advise or on hold a loop only helps if a person approves its advice, which the ladder therefore names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controllers import catalog
from controllers.shedding.ladder import LEVELS
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.placement.plans import BEING_EXECUTED
from workers.steering import scope

RANKED_LAWS = catalog.list_ranked_laws()
LOOP_LEVELS = ("rebalance", "workers", "nodes")
PLACEMENT_LEVELS = ("rebalance", "nodes")
# The decision of a loop is evidence that it can't help if it is at most this old. Enabling its level gets a new one.
FRESH_SECONDS = 10.0


@dataclass(frozen=True)
class LevelStatus:
    """The possible effect of a level on a queue.

    exhausted: its loops can do no more. unavailable: why it can't help at all, else "". advice: what its loops would do
    if a person approved it, else "".
    """

    exhausted: bool = False
    unavailable: str = ""
    advice: str = ""


def assess_level(level: str, queue: str, snapshot: Snapshot) -> LevelStatus:
    """Return what the loops of a level can still do for a queue."""
    totals, loops = snapshot.totals, find_helping_loops(level, queue, snapshot)
    if level in PLACEMENT_LEVELS and totals.nodes == 1:
        return LevelStatus(unavailable="the plant has a single node")
    if not loops:
        return LevelStatus(unavailable=f"no loop for {level} can help {queue}")
    if level == "nodes" and totals.nodes_in_use == totals.nodes:
        return LevelStatus(exhausted=True)
    if level == "workers":
        # More workers need a free slot, and more processes of a host give one.
        from_hosts = (snapshot.totals.workers_busy or 0) >= (snapshot.totals.worker_slots or 0)
        loops = {
            name: row
            for name, row in loops.items()
            if "application" in row.target or from_hosts == ("host" in row.target)
        }
    advising = {name: row for name, row in loops.items() if row.mode in (Loop.Mode.ADVISE, Loop.Mode.HOLD)}
    helpful = [row for row in advising.values() if row.relief and not _has_owner(row, loops)]
    advice = "; ".join(_describe_advice(row) for row in helpful)
    acts = any(_acts(row, snapshot) for name, row in loops.items() if name not in advising)
    is_known = all(_has_decided(row, level, queue, snapshot) for row in loops.values())
    return LevelStatus(exhausted=is_known and not acts and not advice, advice="" if acts else advice)


def find_helping_loops(level: str, queue: str, snapshot: Snapshot) -> Mapping[str, LoopStatus]:
    """Return the loops of a level that can help a queue, by name."""
    return {name: row for name, row in snapshot.loops.items() if _is_of(row, level) and _helps(row, queue, snapshot)}


def _is_of(row: LoopStatus, level: str) -> bool:
    remedy = catalog.find_remedy_by_name(row.law)
    return remedy is not None and remedy.level == level


def _helps(row: LoopStatus, queue: str, snapshot: Snapshot) -> bool:
    """Return whether a loop's target can help: the plant, the queue, its applications, or the hosts of its workers."""
    target, status = row.target, snapshot.queues.get(queue)
    if "plant" in target:
        return False
    if status is not None and status.kind == "pipeline" and target:
        application = snapshot.pipeline.applications.get(target.get("application", ""))
        return application is not None and queue in application.queues
    return not target or "host" in target or target.get("queue") == queue


def _acts(row: LoopStatus, snapshot: Snapshot) -> bool:
    """Return whether a loop has just added capacity, or waits for the effect of its action."""
    if row.mode != Loop.Mode.AUTO:
        return False
    adds = bool(row.relief) and _is_fresh(row, snapshot)
    remedy = catalog.find_remedy_by_name(row.law)
    if remedy is not None and remedy.lasts:
        checked = any(
            action.law == row.law and action.verdict == LedgerEntry.Verdict.CHECKING for action in snapshot.deeds
        )
        return checked or adds
    moves = remedy is not None and remedy.level in PLACEMENT_LEVELS
    return adds or (moves and any(plan.state in BEING_EXECUTED for plan in snapshot.plans))


def _has_decided(row: LoopStatus, level: str, queue: str, snapshot: Snapshot) -> bool:
    """Return whether a loop has decided recently, or since an acting ladder has enabled its level."""
    ladder = scope.find_ladder(queue, snapshot)
    if ladder is None or ladder.mode != Loop.Mode.AUTO:
        return True
    if LEVELS.index(level) < (scope.find_active_level(queue, snapshot) or 0):
        return True
    return _is_fresh(row, snapshot)


def _is_fresh(row: LoopStatus, snapshot: Snapshot) -> bool:
    return row.at is not None and abs((snapshot.at or 0.0) - row.at) <= FRESH_SECONDS


def _has_owner(row: LoopStatus, loops: Mapping[str, LoopStatus]) -> bool:
    """Return whether another loop already acts on the target, so that this loop's advice is not needed."""
    if row.law not in RANKED_LAWS:
        return False
    others = [other for other in loops.values() if other.law in RANKED_LAWS and other.target == row.target]
    return any(other.mode in Loop.ACTING for other in others)


def _describe_advice(row: LoopStatus) -> str:
    would = f"{row.law.replace('_', ' ')} would {row.relief}, but is"
    if row.mode == Loop.Mode.HOLD:
        return f"{would} on hold: end the hold"
    remedy = catalog.find_remedy_by_name(row.law)
    is_planned = remedy is not None and remedy.level in PLACEMENT_LEVELS
    return f"{would} in advise: {'approve its plan' if is_planned else 'set it to auto'}"
