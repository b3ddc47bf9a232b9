"""The expected effect of moves: utilization and state per node before and after, bytes to transfer, seconds.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from queues.nodes.node_state import BUSY, IDLE, NORMAL, TOOBUSY
from queues.topology import Topology
from workers.documents.nodes import NodeStatus
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.placement import moves
from workers.placement.moves import Move

# A move that has not started.
NOTHING_YET = {"state": "pending", "points_moved": 0, "blocks": 0, "blocks_total": 0, "events": 0, "bytes": 0}
# This many queues are moved per second: one after the other, so that it can be stopped in between.
STEPS_PER_SECOND = 4


@dataclass(frozen=True)
class Forecast:
    """A forecast: {node: {"utilisation", "state", "points"}} before and after, and what it costs."""

    before: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    seconds: float
    bytes: int


def build_forecast(
    planned: Sequence[Move],
    topology: Topology,
    snapshot: Snapshot,
    empties: str = "",
    bytes_per_second: int = 16 * 2**20,
) -> Forecast:
    """Return the forecast of moves on the plant as the snapshot shows it.

    A container's load follows its points: load after = load per point of its queue * points, in events/s, over the
    node's capacity. Unknown values stay null.
    """
    before = {name: _build_current_row(name, topology, snapshot) for name in topology.nodes}
    held = moves.apply_moves(moves.list_live_points(topology), planned)
    change = _load_change(planned, topology, snapshot)
    after = {}
    for name, spec in topology.nodes.items():
        points = sum(points.get(name, 0) for points in held.values())
        utilisation = before[name]["utilisation"]
        if utilisation is not None:
            utilisation = round(max(0.0, utilisation + change.get(name, 0.0)), 4)
        state = before[name]["state"] if utilisation is None else _compute_state(utilisation, points, spec)
        after[name] = {"utilisation": utilisation, "state": state, "points": points}
    waiting_bytes = _count_waiting_bytes(snapshot, topology, empties) if empties else 0
    seconds = len(moves.group_by_queue(planned)) / STEPS_PER_SECOND + waiting_bytes / bytes_per_second
    return Forecast(before, after, round(seconds, 1), waiting_bytes)


def replace_node(topology: Topology, node: str, **changes: Any) -> Topology:
    """Return the topology with a node changed."""
    return replace(topology, nodes={**topology.nodes, node: replace(topology.nodes[node], **changes)})


def _build_current_row(name: str, topology: Topology, snapshot: Snapshot) -> dict[str, Any]:
    row = snapshot.nodes.get(name, NodeStatus())
    points = sum(queue.points.get(name, 0) for queue in topology.queues.values())
    return {"utilisation": row.utilisation, "state": row.state, "points": points}


def _load_change(found: Sequence[Move], topology: Topology, snapshot: Snapshot) -> dict[str, float]:
    """Return, per node, what the moves add to its utilization [share of its capacity]."""
    change: dict[str, float] = {}
    for queue, rows in moves.group_by_queue(found).items():
        per_point = compute_load_per_point(queue, topology, snapshot)
        for move in rows:
            for node, sign in ((move.source, -1), (move.target, 1)):
                capacity = topology.nodes[node].capacity.events_per_second
                change[node] = change.get(node, 0.0) + sign * per_point * move.points / capacity
    return change


def compute_load_per_point(queue: str, topology: Topology, snapshot: Snapshot) -> float:
    """Return the load of one point of a queue [events/s].

    It is the load of the queue's live containers over the points they have.
    """
    rows = snapshot.queues.get(queue, QueueStatus()).containers
    loads = {node: row.load for node, row in rows.items() if row.load is not None}
    heard = {node: points for node, points in topology.queue(queue).live_points.items() if node in loads}
    load = sum(loads[node] * topology.nodes[node].capacity.events_per_second for node in heard)
    return load / sum(heard.values()) if heard else 0.0


def _compute_state(utilisation: float, points: int, spec: Any) -> str:
    if not points:
        return IDLE
    if utilisation >= spec.toobusy:
        return TOOBUSY
    return BUSY if utilisation >= spec.busy else NORMAL


def _count_waiting_bytes(snapshot: Snapshot, topology: Topology, node: str) -> int:
    """Return the bytes to transfer: of events of jobs queues alone, as the pipeline reads its own."""
    total = 0
    for name, queue in snapshot.queues.items():
        if name in topology.queues and topology.queues[name].kind == "jobs":
            total += queue.containers.get(node, ContainerStatus()).waiting_bytes or 0
    return total
