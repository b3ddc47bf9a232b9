"""Nodes in the snapshot."""

from common.stored_document import StoredDocument
from queues.nodes.heartbeat import UtilizationByPart
from queues.topology import Capacity, NodeSpec

_SPEC = NodeSpec("", "")


class NodeStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The status of a node.

    state: one of `node_state.STATES`, None before the first heartbeat. last_state: without OFFLINE. stale: not heard
    for two beats. age_seconds: since the last beat. utilisation: smoothed. raw: the greatest of the parts. busy and
    toobusy: the thresholds. These four are shares of capacity. points: of 1000 a queue.
    containers: those with points. ahead_seconds: by so much the clock of its agent is ahead of the control server's.
    unreadable: why its newest heartbeat can't be read, None where it can. The state of an unreadable node is unknown,
    and the node is not lost.
    """

    state: str | None = None
    stale: bool = False
    age_seconds: float | None = None
    utilisation: float | None = None
    raw: float | None = None
    parts: UtilizationByPart | None = None
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
    unreadable: str | None = None
