"""A plan as a page shows it: its headline, the dumbbells of utilisation, what each move carries."""

from collections.abc import Callable, Iterable

from console.pages.frame.page import Document
from controllers.framework.reason import applied
from queues.nodes.node_state import OVERLOADED
from workers.documents.nodes import NodeStatus
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.models import Plan

STATES = {
    "proposed": "Waits for approval",
    "approved": "Approved",
    "running": "Running",
    "done": "Done",
    "stopped": "Stopped",
    "failed": "Failed",
    "rejected": "Rejected",
    "void": "Void",
    "rolled-back": "Rolled back",
}


def headline(plan: Document) -> str:
    """What it does, in a sentence that a button may repeat."""
    points = f"{plan['points']:,} points"
    kind, node = plan["kind"], plan["empties"]
    if kind == Plan.Kind.HAND:
        return f"Divide {_names(move['queue'] for move in plan['moves'])} by hand: move {points}"
    if kind == Plan.Kind.ROLL_BACK:
        return f"Roll back plan {plan['undoes']}: move {points} back"
    if kind in (Plan.Kind.DRAIN, Plan.Kind.RELEASE):
        verb = "Drain" if kind == Plan.Kind.DRAIN else "Release"
        return f"{verb} {node}: move {points} to other nodes" if plan["points"] else f"{verb} {node}"
    return f"Move {points} {_PURPOSES[kind](plan)}"


def _relief(plan: Document) -> str:
    left = sum(row["state"] in OVERLOADED for row in plan["after"].values())
    return "to take load off the busiest nodes" if left else "so that no node is busy"


_PURPOSES: dict[str, Callable[[Document], str]] = {
    Plan.Kind.REBALANCE: _relief,
    Plan.Kind.BAND: lambda plan: "to balance the nodes",
    Plan.Kind.USE: lambda plan: f"to take {_names(move['to'] for move in plan['moves'])} into use",
    Plan.Kind.RESTORE: lambda plan: "off the lost node, onto live ones",
}


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


def shown(plan: Document, snapshot: Snapshot) -> Document:
    """A plan's document with what pages add to it."""
    rows = [_move(move, snapshot, bool(plan["empties"])) for move in plan["moves"]]
    return {
        **plan,
        "reason": applied(plan["reason"]),
        "headline": headline(plan),
        "state_words": STATES[plan["state"]],
        "dumbbells": dumbbells(plan, snapshot),
        "move_rows": rows,
        "events_per_second": _sum(row["events_per_second"] for row in rows),
        "moved_points": sum(move["points_moved"] for move in plan["moves"]),
        "took_seconds": _took_seconds(plan),
        "blocks": sum(move["blocks"] for move in plan["moves"]),
        "bytes": sum(move["bytes"] for move in plan["moves"]),
        "receivers": _names(move["to"] for move in plan["moves"]),
        "others": sorted(set(snapshot.queues) - {move["queue"] for move in plan["moves"]}),
        "changes": _changes(plan["moves"]),
        "points_share": plan["points"] / (1000 * len(snapshot.queues) or 1000),
    }


def _took_seconds(plan: Document) -> float | None:
    begun, ended = plan["started_at"], plan["ended_at"]
    return None if begun is None or ended is None else float(ended - begun)


def _changes(moves: Iterable[Document]) -> dict[str, dict[str, int]]:
    """{queue: {node: points gained}}."""
    changes: dict[str, dict[str, int]] = {}
    for move in moves:
        row = changes.setdefault(move["queue"], {})
        row[move["from"]] = row.get(move["from"], 0) - move["points"]
        row[move["to"]] = row.get(move["to"], 0) + move["points"]
    return changes


def _move(move: Document, snapshot: Snapshot, empties: bool) -> Document:
    """A move with the rate its points carry now, and the bytes that travel with it when a node is emptied.

    events/s = events/s into the queue * points / 1000; bytes = those that wait in the container * points of
    the move / points of the container (jobs queues; the pipeline reads its own). Unknown is None.
    """
    queue = snapshot.queues.get(move["queue"], QueueStatus())
    rate = queue.in_per_second
    source = queue.containers.get(move["from"], ContainerStatus())
    travels = empties and queue.kind == "jobs" and source.waiting_bytes is not None and source.points
    carried = (source.waiting_bytes or 0) * min(1.0, move["points"] / source.points) if travels else 0
    return {
        **move,
        "events_per_second": None if rate is None else rate * move["points"] / 1000,
        "expected_bytes": carried,
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def dumbbells(plan: Document, snapshot: Snapshot) -> list[Document]:
    """A row per node, the worst now first: now and after as shares of its capacity, on one axis to 100 %."""
    rows = [_dumbbell(name, plan, snapshot.nodes.get(name)) for name in plan["before"]]
    return sorted(rows, key=lambda row: (-(row["now"] if row["now"] is not None else 2.0), row["name"]))


def _dumbbell(name: str, plan: Document, limits: NodeStatus | None) -> Document:
    before, after = plan["before"][name], plan["after"].get(name, plan["before"][name])
    now, then = before["utilisation"], after["utilisation"]
    same = before["points"] == after["points"]
    return {
        "name": name,
        "now": now,
        "after": then,
        "state": before["state"],
        "state_after": after["state"],
        "same": same,
        "points": before["points"],
        "points_after": after["points"],
        "busy": limits.busy if limits else None,
        "toobusy": limits.toobusy if limits else None,
        "draws_line": now is not None and then is not None and not same,
    }
