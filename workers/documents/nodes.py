"""Nodes in the snapshot."""

from queues.nodes.heartbeat import UtilisedParts
from queues.stored_document import StoredDocument
from queues.topology import Capacity, NodeSpec

_SPEC = NodeSpec("", "")


class NodeStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A node.

    state: one of `node_state.STATES`, None before the first heartbeat; last_state: without OFFLINE. stale: no
    heartbeat for two intervals. age_seconds: since the last heartbeat. utilisation: smoothed, raw: the
    maximum of its parts, all shares of capacity; so are the thresholds busy and toobusy. points: of 1000 for
    each queue; containers: those with points. ahead_seconds: how far its agent's clock is ahead of the
    control server's.
    """

    state: str | None = None
    stale: bool = False
    age_seconds: float | None = None
    utilisation: float | None = None
    raw: float | None = None
    parts: UtilisedParts | None = None
    busy: float = _SPEC.busy
    toobusy: float = _SPEC.toobusy
    in_per_second: float | None = None
    out_per_second: float | None = None
    memory_bytes: int | None = None
    memory_capacity_bytes: int | None = None
    capacity_events_per_second: float = Capacity().events_per_second
    points: int = 0
    containers: int = 0
    drained: bool = False
    cordoned: bool = False
    last_state: str | None = None
    ahead_seconds: float | None = None
