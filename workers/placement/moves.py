"""Moves of points as values: read, checked, applied, inverted, and computed between two divisions. Pure.

A division is {queue: {node: points}}, the live points of each queue; they sum to 1000.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import checks
from common.errors import BadInput
from queues import points as thousand
from queues.topology import NodeSpec, Topology

Points = Mapping[str, int]
Division = Mapping[str, Points]


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
        _check_left(queue, held, min(topology.queue(queue).minimum_containers, live))


def _check_move(move: Move, topology: Topology, offline: set[str], where: str) -> None:
    held = _find_named(topology.queue, move.queue, f"{where}.queue").points
    _find_named(topology.get_node, move.source, f"{where}.from")
    target: NodeSpec = _find_named(topology.get_node, move.target, f"{where}.to")
    if move.source == move.target:
        raise BadInput(f"{where}.to", "must not be the same node as `from`.")
    if (why := explain_closed(target, offline)) is not None:
        raise BadInput(f"{where}.to", f"{move.target} {why}; move the points to another node.")
    most = held.get(move.source, 0)
    checks.accept_whole_number(1).validate(move.points, f"{where}.points", end=".")
    if move.points > most:
        raise BadInput(f"{where}.points", f"must be at most {most}, the points on {move.source}, not {move.points}.")


def _find_named(find: Any, name: str, field: str) -> Any:
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


def _check_left(queue: str, held: Points, minimum: int) -> None:
    if any(points < 0 for points in held.values()):
        raise BadInput("moves", f"must not take more points of {queue} from a node than it has.")
    thousand.check_points(held, f"queues.{queue}.points")
    if len(held) < minimum:
        raise BadInput(
            "moves", f"must leave {queue} at least {minimum} containers (minimum_containers), not {len(held)}."
        )
