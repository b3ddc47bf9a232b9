"""Nodes in the snapshot."""

import math
from typing import Annotated

from common.stored_document import Bytes, Instant, PerSecond, Seconds, Share, StoredDocument, describe, describe_metric
from queues.nodes.heartbeat import UtilizationByPart
from queues.nodes.node_state import STATES
from queues.topology import Capacity, NodeSpec

_SPEC = NodeSpec("", "")
DAMAGE_SECONDS = 86_400.0  # how long a damaged or dropped block is a reason to watch its node
NodeState = Annotated[str, describe(values=STATES)]


class NodeStatus(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Live figures of a node. If its heartbeat is unreadable, its state is unknown, and it is not lost."""

    state: Annotated[NodeState | None, describe("null: before the first heartbeat.")] = None
    stale: Annotated[bool, describe("Whether it missed two heartbeats.")] = False
    age_seconds: Annotated[Seconds | None, describe_metric("Seconds since the last heartbeat")] = None
    utilisation: Annotated[Share | None, describe_metric("Smoothed utilization, share of capacity")] = None
    raw: Annotated[Share | None, describe("The utilization before smoothing: the greatest of the parts.")] = None
    parts: Annotated[UtilizationByPart | None, describe("Utilization by resource.")] = None
    busy: Annotated[Share, describe("Threshold of the state BUSY.")] = _SPEC.busy
    toobusy: Annotated[Share, describe("Threshold of the state TOOBUSY.")] = _SPEC.toobusy
    in_per_second: Annotated[PerSecond | None, describe_metric("Events in per second")] = None
    out_per_second: Annotated[PerSecond | None, describe_metric("Events out per second")] = None
    memory_bytes: Annotated[Bytes | None, describe_metric("Memory used")] = None
    memory_capacity_bytes: Bytes | None = None
    capacity_events_per_second: PerSecond = Capacity().events_per_second
    measured_capacity_per_second: Annotated[
        PerSecond | None, describe("Measured capacity, lower limit of its confidence interval; null: too few samples.")
    ] = None
    capacity_difference: Annotated[
        str | None, describe("How the measured capacity differs from the declared one; null: by at most 20 %.")
    ] = None
    points: Annotated[int, describe("Points, out of 1000 per queue", metric="gauge")] = 0
    containers: Annotated[int, describe("Number of containers with points.")] = 0
    drained: bool = False
    cordoned: bool = False
    last_state: Annotated[NodeState | None, describe("The last state other than OFFLINE.")] = None
    ahead_seconds: Annotated[
        Seconds | None, describe("Clock offset of its agent from the control server, s; positive: ahead.")
    ] = None
    damaged_blocks: Annotated[int, describe("Blocks and dead letters found damaged", metric="counter")] = 0
    unchecked_blocks: Annotated[int, describe("Blocks removed without a checksum", metric="counter")] = 0
    missing_blocks: Annotated[int, describe("Blocks that its server has lost", metric="gauge")] = 0
    dropped_blocks: Annotated[
        int, describe("Blocks that its server no longer knew after a restart", metric="counter")
    ] = 0
    dropped_at: Annotated[Instant | None, describe("When the last ones were dropped; null: none were.")] = None
    damage: Annotated[str, describe("The block or dead letter that was found damaged last.")] = ""
    damaged_at: Annotated[Instant | None, describe("When it was found, by the node's clock; null: none was.")] = None
    durability_problem: Annotated[
        str, describe("Why it rejects events of durable queues; empty: it accepts them, or has none.")
    ] = ""
    unreadable: Annotated[str | None, describe("Why the newest heartbeat can't be read; null: readable.")] = None

    def count_damaged_blocks(self, now: float) -> int:
        """Return the blocks that were found damaged; 0 if none was found in the last day."""
        return self.damaged_blocks if _is_recent(self.damaged_at, now) else 0

    def count_missing_blocks(self, now: float) -> int:
        """Return the blocks that its server has lost: missing ones, and those dropped if any were in the last day."""
        return self.missing_blocks + (self.dropped_blocks if _is_recent(self.dropped_at, now) else 0)

    @property
    def usable_per_second(self) -> float:
        """Return the declared capacity, or the measured one if that is lower."""
        return min(self.capacity_events_per_second, self.measured_capacity_per_second or math.inf)


def _is_recent(at: float | None, now: float) -> bool:
    return at is not None and abs(now - at) < DAMAGE_SECONDS
