"""Creation of plans.

A plan is requested by a person or a loop, computed by the law, checked against the present plant, and written as a
proposal. Every function here that refuses raises `BadInput` naming the field and changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from msgspec.structs import asdict

from common.errors import BadInput
from common.stored_document import replace_fields
from controllers import catalog, request
from controllers.rebalancing.law import LAW
from controllers.rebalancing.node_scaling import NodeScalingParameters
from queues import points as thousand
from queues import projection
from queues.nodes.node_state import IDLE, NORMAL
from queues.nodes.write_sync import check_nodes
from queues.topology import Topology
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override, Plan
from workers.placement import moves, plans, plant_sensors
from workers.placement.moves import Move
from workers.placement.plans import User
from workers.steering import overrides

REBALANCING = LAW.name
REBALANCING_HORIZON = float(sum(plant_sensors.REBALANCING_SECONDS))
Values = Mapping[str, Any]
Decide = Callable[[Snapshot, datetime, Values, float], dict[str, Any]]
GOALS = {"below-busy": Plan.Kind.REBALANCE, "band": Plan.Kind.BAND}


def propose_rebalance(goal: str, user: User, *, snapshot: Snapshot, now: datetime, reason: str = "") -> Plan:
    """Propose a plan for a goal of the rebalancing law: "below-busy", or "band" ("Balance all nodes").

    Raises `BadInput` for another goal, on measurements that can't be used, and if there is nothing to move.
    """
    if goal not in GOALS:
        raise BadInput("goal", f"must be {' or '.join(GOALS)}, not {goal!r}.")
    decision = _compute_decision(snapshot, now, {"goal": goal})
    if decision["action"] is None:
        raise BadInput("goal", f"{goal}: {decision['reason']}")
    planned_moves = moves.read(decision["action"]["moves"])
    why = f"{reason.strip()} {decision['reason']}".strip()
    return _propose(GOALS[goal], planned_moves, user, why, snapshot, now, law=REBALANCING)


def propose_drain(node: str, user: User, reason: str, *, snapshot: Snapshot, now: datetime) -> Plan:
    """Propose a plan that empties a node.

    Its points go to the other nodes. Its waiting events are transferred or consumed. Once it runs, the node is drained
    and takes nothing until `return_to_use`. Raises `BadInput` for a node that is unknown, drained, OFFLINE, or not yet
    observed, and if the others can't take its containers (the reason says why).
    """
    why = overrides.read_reason(reason)
    topology = projection.read_database()
    spec = topology.get_node(node)
    if spec.drained:
        raise BadInput("node", f"{node} is already drained.")
    if node in plans.find_offline_nodes(snapshot):
        raise BadInput("node", f"{node} is OFFLINE. Its points are restored on live nodes automatically.")
    planned_moves = _plan_emptying(node, topology, snapshot, now, _compute_decision)
    return _propose(Plan.Kind.DRAIN, planned_moves, user, why, snapshot, now, law=REBALANCING, empties=node)


def propose_hand(
    queue: str, points: Mapping[str, int], user: User, *, snapshot: Snapshot, now: datetime, reason: str = ""
) -> Plan:
    """Propose a plan from a person's own division of a queue's 1000 points.

    Nodes with 0 may be named or left out.

    Raises `BadInput`: points that don't sum to 1000, unknown, drained, cordoned, or OFFLINE nodes, too few containers,
    or no change at all.
    """
    topology = projection.read_database()
    before = topology.queue(queue).live_points
    wanted = {node: value for node, value in thousand.check_points(points, least=0).items() if value}
    for node in points:
        if node not in topology.nodes:
            raise BadInput(f"points.{node}", f"is not a node. The nodes are {', '.join(sorted(topology.nodes))}.")
    if wanted == before:
        raise BadInput("points", f"are already the points of {queue}.")
    planned_moves = moves.compute_moves(queue, before, wanted)
    title = f"Set points of {queue}"
    return _propose(Plan.Kind.HAND, planned_moves, user, reason.strip(), snapshot, now, title=title)


def roll_back(plan: Plan | int, user: User, reason: str, *, snapshot: Snapshot, now: datetime) -> Plan:
    """Propose a new plan, to be approved, with the inverse of what an ended plan has moved.

    Raises `BadInput` if nothing was moved, it was rolled back already, or it is not possible any more (points moved on,
    a node is gone, drained, or OFFLINE).
    """
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = plans.lock_plan(plan)
        if row.state not in plans.ENDED_WITH_MOVES:
            raise BadInput("plan", f"is {row.state}. Only a plan that has ended can be rolled back.")
        if row.undone_by.filter(state__in=(*plans.OPEN, Plan.State.DONE)).exists():
            raise BadInput("plan", "is being rolled back, or was already rolled back.")
        made = [move for move, step in zip(moves.read(row.moves), row.progress, strict=True) if plans.has_moved(step)]
        if not made:
            raise BadInput("plan", "has moved no points. There is nothing to roll back.")
        planned_moves = [move.inverse for move in reversed(made)]
        title = f"Roll back: {row.title}"
        # A node that this plan drained takes its points back: it is in use again when the roll-back starts.
        return _propose(
            Plan.Kind.ROLL_BACK, planned_moves, user, why, snapshot, now, title=title, undoes=row, reopens=row.empties
        )


def propose_inverse(
    taken: Plan, proposed: Sequence[Move], user: User, reason: str, *, snapshot: Snapshot, now: datetime, node: str
) -> Plan:
    """Propose a plan that gives a node back what a plan of recovery took from it. See `workers.placement.recovery`."""
    points = sum(move.points for move in proposed)
    title = f"Restore points of {node}: {points:,} points"
    return _propose(Plan.Kind.ROLL_BACK, proposed, user, reason, snapshot, now, title=title, undoes=taken)


def from_decision(entry: LedgerEntry, snapshot: Snapshot, now: datetime, *, approved: bool) -> Plan | None:
    """Return the plan of a loop's decision: approved by the loop itself (auto), or proposed (advise).

    The same entry gives the same plan, however often it is requested. Unanswered proposals of the same loop become void
    with a newer one; one with the same moves stays as it is, and nothing is made. No other plan is proposed before the
    loop's cool-down is over: people take time to read it.
    """
    if (made := Plan.objects.filter(entry=entry).first()) is not None:
        return made
    cooldown = timedelta(seconds=(entry.parameters.get("guard") or {}).get("cooldown_seconds", 0.0))
    # The absolute distance: a clock that was set back must not extend the cool-down by that time.
    near = {"created_at__gt": now - cooldown, "created_at__lt": now + cooldown}
    if not approved and Plan.objects.filter(law=entry.loop.law, owner=None, **near).exists():
        return None
    wish = plan_decision(entry, snapshot, now, projection.read_database(), _compute_decision)
    planned_moves = wish.moves
    with transaction.atomic():
        # Locked, as in an approval: what a person has just approved is not proposed any more.
        proposed = Plan.objects.select_for_update().filter(state=Plan.State.PROPOSED)
        waiting = proposed.filter(law=entry.loop.law, owner=None)
        if not approved and any(row.moves == [move.to_json() for move in planned_moves] for row in waiting):
            return None
        for row in waiting:
            plans.end(row, Plan.State.VOID, "Replaced by a newer plan.", now)
        plan = _propose(
            wish.kind,
            planned_moves,
            None,
            entry.reason,
            snapshot,
            now,
            law=entry.loop.law,
            entry=entry,
            empties=wish.empties,
        )
        return plans.record_approval(plan, "loop", entry.reason, now) if approved else plan


def restore(proposed: Sequence[Move], reason: str, snapshot: Snapshot, now: datetime) -> Plan:
    """Return recovery's plan, automatically approved: points that were lost with a node go to live ones."""
    with transaction.atomic():
        plan = _propose(Plan.Kind.RESTORE, proposed, None, reason, snapshot, now)
        return plans.record_approval(plan, "recovery", reason, now)


def _compute_decision(
    snapshot: Snapshot, now: datetime, parameters: Values, horizon_seconds: float = REBALANCING_HORIZON
) -> dict[str, Any]:
    """Return what the rebalancing law decides now, with its loop's parameters and memory."""
    loop = Loop.objects.filter(law=REBALANCING).first()
    held = overrides.list_effective(loop, now) if loop else []
    return decide_moves(loop, held, snapshot, now, parameters, horizon_seconds)


def decide_moves(
    loop: Loop | None,
    in_force: list[Override],
    snapshot: Snapshot,
    now: datetime,
    parameters: Values,
    horizon_seconds: float,
) -> dict[str, Any]:
    """Return what the rebalancing law decides now, with the memory of its loop, if any, and these overrides.

    parameters: in place of the loop's own. horizon_seconds: the time for which the load is forecast. Raises `BadInput`
    on measurements that can't be used.
    """
    sensed = plant_sensors.observe_rebalancing({}, snapshot, None, now.timestamp(), horizon_seconds)
    if sensed.measured.invalid is not None:
        raise BadInput("plant", f"can't be planned now: {sensed.measured.invalid}.")
    given = {} if loop is None else loop.parameters
    own = overrides.get_effective_parameters(catalog.get_law(REBALANCING), given, in_force, now)
    state = ((loop.state or {}) if loop else {}).get("law")
    document = {"parameters": {**own, **parameters}, "state": state, "observations": [sensed.observation]}
    return dict(request.answer(REBALANCING, document)["decisions"][0])


def _plan_emptying(node: str, topology: Topology, snapshot: Snapshot, now: datetime, decide: Decide) -> list[Move]:
    """Return the moves that take every point off a node, as the law chooses them."""
    if not topology.has_points(node):
        return []
    if node not in snapshot.nodes:
        raise BadInput("node", f"{node} has not been observed yet. Try again in a few seconds.")
    drained = replace_fields(snapshot.nodes[node], drained=True)
    wanted = replace_fields(snapshot, nodes={**snapshot.nodes, node: drained})
    decision = decide(wanted, now, {"goal": "below-busy"}, REBALANCING_HORIZON)
    planned_moves = moves.read((decision["action"] or {"moves": []})["moves"])
    left = moves.apply_moves(moves.list_live_points(topology), planned_moves)
    for queue, points in left.items():
        if node in points:
            raise BadInput("node", f"{node} can't be drained: no other node can take {queue}. {decision['reason']}")
    return planned_moves


def _propose(
    kind: str,
    found: Sequence[Move],
    user: User,
    reason: str,
    snapshot: Snapshot,
    now: datetime,
    *,
    title: str = "",
    law: str = "",
    entry: LedgerEntry | None = None,
    empties: str = "",
    undoes: Plan | None = None,
    reopens: str = "",
) -> Plan:
    """Write a proposal, checked against the present plant."""
    topology = projection.read_database()
    offline = plans.find_offline_nodes(snapshot)
    if found or not empties:
        moves.check(
            found,
            (
                topology
                if not reopens or reopens not in topology.nodes
                else moves.replace_node(topology, reopens, drained=False)
            ),
            offline,
        )
    if kind != Plan.Kind.RESTORE:  # Recovery uses the nodes that are left: each event needs a container.
        _check_durability(found, topology)
    look = moves.build_forecast(found, topology, snapshot, empties)
    return Plan.objects.create(
        kind=kind,
        title=title or _format_title(kind, found, empties),
        reason=reason,
        moves=[move.to_json() for move in found],
        base=moves.list_live_points(topology, (move.queue for move in found)),
        base_revision=topology.revision,
        hash=moves.digest(found, topology.revision),
        before=look.before,
        after=look.after,
        estimated_seconds=look.seconds,
        estimated_bytes=look.bytes,
        empties=empties,
        law=law,
        entry=entry,
        undoes=undoes,
        owner=user,
        created_at=now,
        expires_at=now + plans.get_approval_timeout(),
        progress=[dict(moves.NOTHING_YET) for _ in found],
    )


def _check_durability(found: Sequence[Move], topology: Topology) -> None:
    """Raise `BadInput` if a node that receives points of a durable queue can't store its events as promised.

    Asks the servers of these nodes.
    """
    for queue in sorted({move.queue for move in found}):
        targets = [topology.nodes[move.target] for move in found if move.queue == queue]
        try:
            check_nodes(topology.queues[queue].durability, targets)
        except BadInput as error:
            raise BadInput("moves", f"must not give {queue} points there: its durability {error.message}") from None


def _format_title(kind: str, found: Sequence[Move], empties: str) -> str:
    if empties:
        return f"{str(kind).capitalize()} {empties}"
    points = sum(move.points for move in found)
    sources = ", ".join(sorted({move.source for move in found}))
    names: dict[str, str] = {
        Plan.Kind.REBALANCE: "Bring every node below BUSY",
        Plan.Kind.BAND: "Balance all nodes",
        Plan.Kind.USE: f"Start using {', '.join(sorted({move.target for move in found}))}",
        Plan.Kind.RESTORE: f"Move points off {sources} (OFFLINE)",
    }
    count = f"{len(found)} move{'s' if len(found) != 1 else ''}"
    return f"{names.get(kind, str(kind).capitalize())}: {count}, {points:,} points"


@dataclass(frozen=True)
class PlannedDecision:
    """The result of a decision: a kind of plan, its moves, and the node to be emptied."""

    kind: str
    moves: list[Move]
    empties: str = ""


def plan_decision(
    entry: LedgerEntry, snapshot: Snapshot, now: datetime, topology: Topology, decide: Decide
) -> PlannedDecision:
    """Return a loop's decision as moves; node scaling decides one thing at a time.

    decide: what the rebalancing law decides with these parameters, for the load until a horizon.

    Nodes to be used get the fewest points that bring all nodes in use below the load at which node scaling adds one,
    until its next decision; a node to be released is emptied.
    """
    action = entry.action
    if "moves" in action:
        goal = entry.parameters.get("goal", "")
        return PlannedDecision(GOALS.get(goal, Plan.Kind.REBALANCE), moves.read(action["moves"]))
    if action["restore"]:
        return PlannedDecision(Plan.Kind.RESTORE, moves.read(action["restore"]))
    if action["use"]:
        nodes = action["use"]
        idle = {
            name: replace_fields(row, cordoned=True) if name not in nodes else replace_fields(row, state=NORMAL)
            for name, row in snapshot.nodes.items()
            if row.state == IDLE
        }
        wanted = replace_fields(snapshot, nodes={**snapshot.nodes, **idle})
        parameters = {**asdict(NodeScalingParameters()), **entry.parameters}
        limit = {"goal": "below-busy", "busy": parameters["fill"] * parameters["busy"]}
        decision = decide(wanted, now, limit, sum(plant_sensors.NODE_SCALING_SECONDS))
        return PlannedDecision(Plan.Kind.USE, moves.read((decision["action"] or {"moves": []})["moves"]))
    node = action["release"][0]
    return PlannedDecision(Plan.Kind.RELEASE, _plan_emptying(node, topology, snapshot, now, decide), node)
