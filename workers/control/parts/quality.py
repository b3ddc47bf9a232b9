"""How good a tick's observation is, beyond what its sensor says: whether a part that it needs is still
starting, how late the tick is, and what is the cause where there is no valid measurement.

A loop whose part is starting has nothing to decide: that is no failure of the loop. The cause of an invalid
measurement is one word, the same for all loops that suffer from it, so that alerts can be grouped by it:

    host        the tick or the snapshot is late, or most nodes are: this host has no time for its processes
    node NAME   the node is silent
    pipeline, workers.jobs, workers.control   the part is silent or has failed
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from controllers.framework.guard import STALE_SECONDS, Measured
from workers.documents import parts
from workers.documents.snapshot import Snapshot

# A tick counts as late from so much of its interval on, and so many seconds.
LATE_SHARE, LATE_SECONDS = 1.0, 2.0
HOST = "host"
Target = Mapping[str, Any]


def list_needed_parts(target: Target, snapshot: Snapshot) -> Iterator[str]:
    """The parts that a loop on this target needs."""
    if "application" in target:
        yield parts.CONSUMERS["pipeline"]
    if "host" in target:
        yield parts.CONSUMERS["jobs"]
    if "queue" in target:
        queue = snapshot.queues.get(target["queue"])
        yield from (
            parts.CONSUMERS[kind] for kind in (queue.kind if queue else None,) if kind in parts.CONSUMERS
        )
    if "node" in target:
        yield parts.node_part(target["node"])
    if not {"application", "host", "queue", "plant"} & set(target):
        yield from (parts.node_part(name) for name in snapshot.nodes)


def excuse_start(measured: Measured, target: Target, snapshot: Snapshot, now: float) -> Measured:
    """The same; idle where it is invalid because a part is still starting."""
    if measured.invalid is None and measured.age_seconds is not None:
        return measured
    name = parts.find_starting(snapshot.parts, list_needed_parts(target, snapshot))
    if name is None or snapshot.at is None:
        return measured
    age = round(abs(now - snapshot.at), 3)  # of what says that it is starting
    return replace(measured, age_seconds=age, invalid=None, idle=f"{name} is starting")


def late_seconds(since_last: float | None, interval_seconds: float, rest_seconds: float = 0.0) -> float:
    """How much later a tick comes than it should; 0 for what is usual, and for the first. rest_seconds: how
    long it may have been at rest since the last that is known.
    """
    if since_last is None:
        return 0.0
    late = since_last - interval_seconds - rest_seconds
    return round(late, 1) if late > max(LATE_SECONDS, LATE_SHARE * interval_seconds) else 0.0


def cause(
    measured: Measured, stale_seconds: float, late: float, target: Target, snapshot: Snapshot, now: float
) -> str | None:
    """Why there is no valid measurement; None where there is one, or nobody knows."""
    is_old = measured.age_seconds is None or measured.age_seconds > stale_seconds
    if measured.invalid is None and (measured.idle is not None or not is_old):
        return None
    if late or snapshot.at is None or abs(now - snapshot.at) > STALE_SECONDS or most_nodes_are_late(snapshot):
        return HOST
    silent = (name for name in list_needed_parts(target, snapshot) if _is_down(snapshot, name))
    return next(silent, None)


def most_nodes_are_late(snapshot: Snapshot) -> bool:
    """More than one, and more than half: that is rather this host than the nodes."""
    stale = sum(row.stale for row in snapshot.nodes.values())
    return stale > 1 and 2 * stale > len(snapshot.nodes)


def _is_down(snapshot: Snapshot, name: str) -> bool:
    return name in snapshot.parts and snapshot.parts[name].state != "running"
