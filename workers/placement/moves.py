"""Moves of points as values: read, checked, applied, inverted, and computed between two divisions. Pure.

A division is {queue: {node: points}}, the live points of each queue; they sum to 1000.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from common import checks
from common.errors import BadInput
from queues import points as thousand
from queues.nodes.node_state import BUSY, IDLE, NORMAL, TOOBUSY
from queues.topology import NodeSpec, Topology
from workers.documents.nodes import NodeStatus
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot

Points = Mapping[str, int]
Division = Mapping[str, Points]
# A move that has not started.
NOTHING_YET = {"state": "pending", "points_moved": 0, "blocks": 0, "blocks_total": 0, "events": 0, "bytes": 0}
# This many queues are moved per second: one after the other, so that it can be stopped in between.
STEPS_PER_SECOND = 4


@dataclass(frozen=True)
class Move:
    """`points` of a queue that move from one node to another."""

    queue: str
    source: str
    target: str
    points: int

    def to_json(self) -> dict[str, Any]:
        """Return the move as JSON, as the contract defines it."""
        return {"queue": self.queue, "from": self.source, "to": self.target, "points": self.points}

    @property
    def inverse(self) -> "Move":
        return Move(self.queue, self.target, self.source, self.points)


def read(rows: Iterable[Mapping[str, Any]]) -> list[Move]:
    """Return moves from the JSON of the contract."""
    return [Move(row["queue"], row["from"], row["to"], row["points"]) for row in rows]


def digest(moves: Sequence[Move], revision: int) -> str:
    """Return the SHA-256 of canonical JSON of the moves and the revision they were computed from."""
    document = {"moves": [move.to_json() for move in moves], "revision": revision}
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def list_live_points(topology: Topology, queues: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
    """Return the live points of queues (all by default). Raises `UnknownQueue`."""
    names = topology.queues if queues is None else sorted(set(queues))
    return {name: topology.queue(name).live_points for name in names}


def apply_moves(before: Division, moves: Sequence[Move]) -> dict[str, dict[str, int]]:
    """Return the division after the moves of its queues; nodes without points are left out.

    A queue's moves happen together, so only the final points have to be 0 or more.
    """
    result = {queue: dict(points) for queue, points in before.items()}
    for move in moves:
        held = result[move.queue]
        held[move.source] = held.get(move.source, 0) - move.points
        held[move.target] = held.get(move.target, 0) + move.points
    return {queue: {node: p for node, p in held.items() if p} for queue, held in result.items()}


def group_by_queue(moves: Sequence[Move]) -> dict[str, list[Move]]:
    """Return the moves per queue, in order of their first."""
    grouped: dict[str, list[Move]] = {}
    for move in moves:
        grouped.setdefault(move.queue, []).append(move)
    return grouped


def compute_moves(queue: str, before: Points, after: Points) -> list[Move]:
    """Return the moves with the fewest points from one division to another: from surplus to deficit."""
    nodes = [*before, *(node for node in after if node not in before)]
    spare = {node: before.get(node, 0) - after.get(node, 0) for node in nodes}
    moves = []
    for target in (node for node in nodes if spare[node] < 0):
        for source in (node for node in nodes if spare[node] > 0):
            points = min(spare[source], -spare[target])
            if points > 0:
                moves.append(Move(queue, source, target, points))
                spare[source] -= points
                spare[target] += points
    return moves


def check(moves: Sequence[Move], topology: Topology, offline: Collection[str] = ()) -> None:
    """Raise `BadInput` naming the first invalid field.

    Invalid are: an unknown queue or node, a target that takes no points (drained, cordoned, OFFLINE), more points than
    the source has, too few remaining containers.
    """
    if not moves:
        raise BadInput("moves", "must have at least one move.")
    for place, move in enumerate(moves):
        _check_move(move, topology, set(offline), f"moves[{place}]")
    before = list_live_points(topology, (move.queue for move in moves))
    # A queue that already lacks live containers may not lose another one, but its points may move.
    for queue, held in apply_moves(before, moves).items():
        live = sum(node not in offline for node in before[queue])
        minimum = min(topology.queue(queue).minimum_containers, live)
        if any(points < 0 for points in held.values()):
            raise BadInput("moves", f"must not take more points of {queue} from a node than it has.")
        thousand.check_points(held, f"queues.{queue}.points")
        if len(held) < minimum:
            raise BadInput(
                "moves", f"must leave {queue} at least {minimum} containers (minimum_containers), not {len(held)}."
            )


def _check_move(move: Move, topology: Topology, offline: set[str], where: str) -> None:
    held = _find_named(topology.queue, move.queue, f"{where}.queue").points
    _find_named(topology.get_node, move.source, f"{where}.from")
    target = _find_named(topology.get_node, move.target, f"{where}.to")
    if move.source == move.target:
        raise BadInput(f"{where}.to", "must not be the same node as `from`.")
    if (why := explain_closed(target, offline)) is not None:
        raise BadInput(f"{where}.to", f"{move.target} {why}. Move the points to another node.")
    most = held.get(move.source, 0)
    checks.accept_whole_number(1).validate(move.points, f"{where}.points", end=".")
    if move.points > most:
        raise BadInput(f"{where}.points", f"must be at most {most}, the points on {move.source}, not {move.points}.")


Named = TypeVar("Named")


def _find_named(find: Callable[[str], Named], name: str, field: str) -> Named:
    try:
        return find(name)
    except BadInput as error:
        raise BadInput(field, error.message) from None


def explain_closed(node: NodeSpec, offline: Iterable[str] = ()) -> str | None:
    """Return why a node takes no points, or None if it does."""
    if node.name in offline:
        return "is OFFLINE"
    if node.drained:
        return "is drained"
    return "is cordoned" if node.cordoned else None


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
    before: dict[str, dict[str, Any]] = {}
    for name in topology.nodes:
        row = snapshot.nodes.get(name, NodeStatus())
        points = sum(queue.points.get(name, 0) for queue in topology.queues.values())
        before[name] = {"utilisation": row.utilisation, "state": row.state, "points": points}
    held = apply_moves(list_live_points(topology), planned)
    change: dict[str, float] = {}
    for moved, rows in group_by_queue(planned).items():
        per_point = compute_load_per_point(moved, topology, snapshot)
        for move in rows:
            for node, sign in ((move.source, -1), (move.target, 1)):
                capacity = get_capacity(node, topology, snapshot)
                change[node] = change.get(node, 0.0) + sign * per_point * move.points / capacity
    after = {}
    for name, spec in topology.nodes.items():
        points = sum(points.get(name, 0) for points in held.values())
        utilisation = before[name]["utilisation"]
        if utilisation is not None:
            utilisation = round(max(0.0, utilisation + change.get(name, 0.0)), 4)
        if utilisation is None:
            state = before[name]["state"]
        elif not points:
            state = IDLE
        elif utilisation >= spec.toobusy:
            state = TOOBUSY
        else:
            state = BUSY if utilisation >= spec.busy else NORMAL
        after[name] = {"utilisation": utilisation, "state": state, "points": points}
    # Events of jobs queues alone are transferred, as the pipeline reads its own.
    waiting_bytes = sum(
        queue.containers.get(empties, ContainerStatus()).waiting_bytes or 0
        for name, queue in snapshot.queues.items()
        if empties and name in topology.queues and topology.queues[name].kind == "jobs"
    )
    seconds = len(group_by_queue(planned)) / STEPS_PER_SECOND + waiting_bytes / bytes_per_second
    return Forecast(before, after, round(seconds, 1), waiting_bytes)


def replace_node(topology: Topology, node: str, **changes: Any) -> Topology:
    """Return the topology with a node changed."""
    return replace(topology, nodes={**topology.nodes, node: replace(topology.nodes[node], **changes)})


def compute_load_per_point(queue: str, topology: Topology, snapshot: Snapshot) -> float:
    """Return the load of one point of a queue [events/s]: that of its live containers over the points they have."""
    rows = snapshot.queues.get(queue, QueueStatus()).containers
    loads = {node: row.load for node, row in rows.items() if row.load is not None}
    heard = {node: points for node, points in topology.queue(queue).live_points.items() if node in loads}
    load = sum(loads[node] * get_capacity(node, topology, snapshot) for node in heard)
    return load / sum(heard.values()) if heard else 0.0


def get_capacity(node: str, topology: Topology, snapshot: Snapshot) -> float:
    """Return the capacity of a node [events/s]: the declared one, or the measured one if that is lower."""
    row = snapshot.nodes.get(node)
    return row.usable_per_second if row else topology.nodes[node].capacity.events_per_second
