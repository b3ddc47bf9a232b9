"""Which parts of the plant run, judged from consecutive snapshots.

A part that is seen for the first time and does not run yet is *starting*: for `STARTING_SECONDS` its absence is no
finding. Once it runs after such a start it has `SETTLING_SECONDS` to catch up. Both periods are limited: a part that
never starts then becomes silent, and one that dies later gets no grace period.
"""

from collections.abc import Iterator

from queues.nodes.node_state import SILENT
from workers.documents.parts import CONSUMERS, CONTROL, PartStatus, format_node_part
from workers.documents.pipeline import AT_WORK, NOT_REPORTING, RUNNING
from workers.documents.snapshot import Snapshot

STARTING_SECONDS = 180.0
SETTLING_SECONDS = 120.0
# A shorter start was none: the watcher has only just started to watch.
SHORT_SECONDS = 10.0
# A snapshot this old is of another run of the plant.
SAME_RUN_SECONDS = 60.0


class PartsRecord:
    """The state of the parts at the previous step. before: the snapshot that another watcher left."""

    def __init__(self, before: Snapshot | None = None) -> None:
        self._left = before
        self._parts: dict[str, PartStatus] = {}

    def step(self, snapshot: Snapshot, at: float) -> dict[str, PartStatus]:
        """Return the parts as of an otherwise complete snapshot.

        Nodes that simply run are left out, as there may be a thousand.
        """
        states = dict(observe_parts(snapshot))
        if self._left is not None and abs(at - (self._left.at or 0.0)) <= SAME_RUN_SECONDS:
            ran = PartStatus(state="running", since=self._left.at or at)
            self._parts = {name: self._left.parts.get(name, ran) for name in states}
        self._left = None
        self._parts = {name: advance_part(self._parts.get(name), state, at) for name, state in states.items()}
        return {
            name: part
            for name, part in self._parts.items()
            if not (name.startswith(format_node_part("")) and part.state == "running" and part.grace_until is None)
        }


def observe_parts(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Return each part that the plant requires with its apparent state, regardless of the past."""
    for name, node in snapshot.nodes.items():
        heard = node.age_seconds is not None and not node.stale and node.state not in SILENT
        yield format_node_part(name), "running" if heard else "silent"
    kinds = {queue.kind for queue in snapshot.queues.values()}
    roles = {host.role for host in snapshot.hosts.values()}
    if snapshot.loops:
        yield CONTROL, "running" if "control" in roles else "silent"
    if "jobs" in kinds:
        yield CONSUMERS["jobs"], "running" if "jobs" in roles else "silent"
    if "pipeline" in kinds:
        pipeline = snapshot.pipeline.state
        state = "silent" if pipeline in (None, NOT_REPORTING) else RUNNING if pipeline in AT_WORK else str(pipeline)
        yield CONSUMERS["pipeline"], state


def advance_part(before: PartStatus | None, state: str, at: float) -> PartStatus:
    """Return a part's status after the previous one, from its apparent state."""
    grace = None if before is None or before.grace_until is None else before.grace_until
    grace = grace if grace is not None and at < grace else None
    if state == "running":
        if before is None:
            return PartStatus(state="running", since=at)
        if before.state == "running":
            return PartStatus(state="running", since=before.since, grace_until=grace)
        long = grace is not None and at - before.since > SHORT_SECONDS
        return PartStatus(state="running", since=at, grace_until=at + SETTLING_SECONDS if long else None)
    if before is None:
        return PartStatus(state="starting", since=at, grace_until=at + STARTING_SECONDS)
    if grace is not None and before.state != "running" and state in ("silent", "starting"):
        state = "starting"
    if state == before.state:
        return PartStatus(state=state, since=before.since, grace_until=grace)
    return PartStatus(state=state, since=at, grace_until=None if before.state == "running" else grace)
