"""Quality of a tick's observation, beyond what its sensor says.

It includes whether a required part is still starting, how late the tick is, and the cause of an invalid measurement. A
loop whose part is starting has nothing to decide; that is not a failure of the loop. The cause of an invalid
measurement is one word, the same for all loops that it affects, so that alerts can be grouped
by it:

    host        the tick or the snapshot is late, or most nodes are: this host's processes lack CPU time
    node NAME   the node is silent
    pipeline, workers.jobs, workers.control   the part is silent or has failed
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from controllers.framework.guard import STALE_SECONDS, ObservationQuality
from workers.documents import parts
from workers.documents.snapshot import Snapshot

# A tick counts as late from this fraction of its interval and this many seconds.
LATE_SHARE, LATE_SECONDS = 1.0, 2.0
HOST = "host"
Target = Mapping[str, Any]


def list_needed_parts(target: Target, snapshot: Snapshot) -> Iterator[str]:
    """List the parts that a loop on this target requires."""
    if "application" in target:
        yield parts.CONSUMERS["pipeline"]
    if "host" in target:
        yield parts.CONSUMERS["jobs"]
    if "queue" in target:
        queue = snapshot.queues.get(target["queue"])
        yield from (parts.CONSUMERS[kind] for kind in (queue.kind if queue else None,) if kind in parts.CONSUMERS)
    if "node" in target:
        yield parts.format_node_part(target["node"])
    if not {"application", "host", "queue", "plant"} & set(target):
        yield from (parts.format_node_part(name) for name in snapshot.nodes)


def excuse_start(measured: ObservationQuality, target: Target, snapshot: Snapshot, now: float) -> ObservationQuality:
    """Return the measurement, marked as idle where it is invalid because a part is still starting."""
    if measured.invalid is None and measured.age_seconds is not None:
        return measured
    name = parts.find_starting(snapshot.parts, list_needed_parts(target, snapshot))
    if name is None or snapshot.at is None:
        return measured
    age = round(abs(now - snapshot.at), 3)  # of the part that is starting
    return replace(measured, age_seconds=age, invalid=None, idle=f"{name} is starting")


def compute_late_seconds(since_last: float | None, interval_seconds: float, rest_seconds: float = 0.0) -> float:
    """Return how much later than due a tick is; 0 for a usual delay and for the first tick.

    rest_seconds: how long the loop may have been at rest since its last known tick.
    """
    if since_last is None:
        return 0.0
    late = since_last - interval_seconds - rest_seconds
    return round(late, 1) if late > max(LATE_SECONDS, LATE_SHARE * interval_seconds) else 0.0


def cause(
    measured: ObservationQuality, stale_seconds: float, late: float, target: Target, snapshot: Snapshot, now: float
) -> str | None:
    """Return the cause of an invalid measurement; None where it is valid, or the cause is unknown."""
    is_old = measured.age_seconds is None or measured.age_seconds > stale_seconds
    if measured.invalid is None and (measured.idle is not None or not is_old):
        return None
    if late or snapshot.at is None or abs(now - snapshot.at) > STALE_SECONDS or are_most_nodes_late(snapshot):
        return HOST
    silent = (name for name in list_needed_parts(target, snapshot) if _is_down(snapshot, name))
    return next(silent, None)


def are_most_nodes_late(snapshot: Snapshot) -> bool:
    """Return whether most of several nodes are late.

    This points to the present host instead of the nodes.
    """
    stale = sum(row.stale for row in snapshot.nodes.values())
    return stale > 1 and 2 * stale > len(snapshot.nodes)


def _is_down(snapshot: Snapshot, name: str) -> bool:
    return name in snapshot.parts and snapshot.parts[name].state != "running"
