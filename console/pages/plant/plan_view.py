"""A plan as a page shows it.

It has its headline, the dumbbell chart of utilization, and the contents of each move.
"""

from collections.abc import Callable, Iterable

from common.stored_document import copy_shared_values, replace_fields
from console.display.dumbbell import Dumbbell
from controllers.framework.reason import format_applied, format_count
from queues.nodes.node_state import OVERLOADED
from workers.documents.plans import PlanDocument, PlanMove
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.models import Plan

STATES = {
    "proposed": "Waiting for approval",
    "approved": "Approved",
    "running": "Running",
    "done": "Done",
    "stopped": "Stopped",
    "failed": "Failed",
    "rejected": "Rejected",
    "void": "Void",
    "rolled-back": "Rolled back",
}


class ShownMove(PlanMove, frozen=True, kw_only=True):
    """A move, with its rate and its bytes.

    The rate is what its points carry now. The bytes are transferred when a node is emptied. Unknown values are None.
    """

    events_per_second: float | None
    expected_bytes: float


class ShownPlan(PlanDocument, frozen=True, kw_only=True):
    """A plan with the values that its page adds.

    events_per_second: current rate of its moves; blocks, bytes: transferred so far; receivers: the nodes that get
    points, in words; others: the queues that it leaves unchanged; changes: queue → node → points gained;
    points_share: share of the points of all queues.
    """

    headline: str
    state_words: str
    dumbbells: list[Dumbbell]
    move_rows: list[ShownMove]
    events_per_second: float | None
    moved_points: int
    took_seconds: float | None
    blocks: int
    bytes: int
    receivers: str
    others: list[str]
    changes: dict[str, dict[str, int]]
    points_share: float


def describe_plan(plan: PlanDocument) -> str:
    """Return what the plan does, in a sentence that a button may repeat."""
    points = format_count(plan.points, "point")
    if plan.kind == Plan.Kind.HAND:
        return f"Change points of {_join_names(move.queue for move in plan.moves)}: move {points}"
    if plan.kind == Plan.Kind.ROLL_BACK:
        return f"Roll back plan {plan.undoes}: move {points} back"
    if plan.kind in (Plan.Kind.DRAIN, Plan.Kind.RELEASE):
        verb = "Drain" if plan.kind == Plan.Kind.DRAIN else "Release"
        return f"{verb} {plan.empties}: move {points} to other nodes" if plan.points else f"{verb} {plan.empties}"
    return f"Move {points} {_PURPOSES[plan.kind](plan)}"


_PURPOSES: dict[str, Callable[[PlanDocument], str]] = {
    Plan.Kind.REBALANCE: lambda plan: (
        "to relieve the busiest nodes"
        if any(node.state in OVERLOADED for node in plan.after.values())
        else "so that no node is busy"
    ),
    Plan.Kind.BAND: lambda plan: "to balance the nodes",
    Plan.Kind.USE: lambda plan: f"to put {_join_names(move.target for move in plan.moves)} into service",
    Plan.Kind.RESTORE: lambda plan: (
        f"from {_join_names(move.source for move in plan.moves)}, which is lost, to live nodes"
    ),
}


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


def build_view(plan: PlanDocument, snapshot: Snapshot) -> ShownPlan:
    rows = [_move(move, snapshot, bool(plan.empties)) for move in plan.moves]
    rates = [row.events_per_second for row in rows if row.events_per_second is not None]
    changes: dict[str, dict[str, int]] = {}
    for move in plan.moves:
        row = changes.setdefault(move.queue, {})
        row[move.source] = row.get(move.source, 0) - move.points
        row[move.target] = row.get(move.target, 0) + move.points
    return ShownPlan(
        **copy_shared_values(replace_fields(plan, reason=format_applied(plan.reason)), PlanDocument),
        headline=describe_plan(plan),
        state_words=STATES[plan.state],
        dumbbells=build_dumbbells(plan, snapshot),
        move_rows=rows,
        events_per_second=sum(rates) if rates else None,
        moved_points=sum(move.points_moved for move in plan.moves),
        took_seconds=None if plan.started_at is None or plan.ended_at is None else plan.ended_at - plan.started_at,
        blocks=sum(move.blocks for move in plan.moves),
        bytes=sum(move.bytes for move in plan.moves),
        receivers=_join_names(move.target for move in plan.moves),
        others=sorted(set(snapshot.queues) - {move.queue for move in plan.moves}),
        changes=changes,
        points_share=plan.points / (1000 * len(snapshot.queues) or 1000),
    )


def _move(move: PlanMove, snapshot: Snapshot, empties: bool) -> ShownMove:
    """Return a move with its rate and bytes.

    events/s = events/s into the queue * points / 1000; bytes = those that wait in the container * points of the move /
    points of the container (jobs queues; the pipeline reads its own).
    """
    queue = snapshot.queues.get(move.queue, QueueStatus())
    rate = queue.in_per_second
    source = queue.containers.get(move.source, ContainerStatus())
    travels = empties and queue.kind == "jobs" and source.waiting_bytes is not None and source.points
    return ShownMove(
        **copy_shared_values(move, PlanMove),
        events_per_second=None if rate is None else rate * move.points / 1000,
        expected_bytes=(source.waiting_bytes or 0) * min(1.0, move.points / source.points) if travels else 0,
    )


def build_dumbbells(plan: PlanDocument, snapshot: Snapshot) -> list[Dumbbell]:
    """Return a row per node, the worst now first: utilization now and after, on one axis to 100 %."""
    rows = []
    for name, before in plan.before.items():
        after, limits = plan.after.get(name, before), snapshot.nodes.get(name)
        rows.append(
            Dumbbell(
                name=name,
                now=before.utilisation,
                after=after.utilisation,
                state=before.state,
                state_after=after.state,
                points=before.points,
                points_after=after.points,
                busy=limits.busy if limits else None,
                toobusy=limits.toobusy if limits else None,
            )
        )
    return sorted(rows, key=lambda row: (-(row.now if row.now is not None else 2.0), row.name))
