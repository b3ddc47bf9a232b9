"""Giving points back to a node that was lost and has returned.

Recovery took them without an approval, so it also gives them back without one: once the node has reported for
`RETURN_SECONDS`, by a plan that is the inverse of the restoring one, as far as the points are still where they went.
The time of its return is on the control server, so that any process can do it.
"""

from datetime import UTC, datetime
from typing import cast

import redis
from django.db import transaction
from django.db.models import Q, QuerySet

from common.errors import BadInput
from common.redis_types import Fields
from controllers.rebalancing.node_scaling import LAW
from queues import keys, projection
from queues.nodes.node_state import SILENT
from queues.topology import Topology
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Plan
from workers.placement import moves, plans, proposals
from workers.placement.moves import Move
from workers.placement.plans import User
from workers.steering import overrides

RETURN_SECONDS = 60.0
NEWEST_RESTORING = 50
BY = "recovery"


def note_return(control: redis.Redis, node: str, now: datetime) -> None:
    """Record that the node reports again since now."""
    control.hset(keys.RETURNED, node, str(now.timestamp()))


def note_loss(control: redis.Redis, node: str) -> None:
    """Record that the node is lost: it gets nothing back before it returns again."""
    control.hdel(keys.RETURNED, node)


def is_due(control: redis.Redis, now: datetime) -> bool:
    """Return whether a node came back long enough ago."""
    returned = cast(Fields, control.hgetall(keys.RETURNED)).values()
    return any(abs(now.timestamp() - float(at)) >= RETURN_SECONDS for at in returned)


def give_back(control: redis.Redis, snapshot: Snapshot, now: datetime) -> Plan | None:
    """Return the approved plan for a node that has been back for long enough; None if there is none.

    Each return is answered once.
    """
    for name, at in cast(Fields, control.hgetall(keys.RETURNED)).items():
        node = name.decode()
        row = snapshot.nodes.get(node)
        if row is None or row.state in SILENT or row.stale:
            continue
        if abs(now.timestamp() - float(at)) < RETURN_SECONDS or plans.list_running_plans().exists():
            continue
        plan = None if _is_answered(node, float(at), now) else _approve_plan(node, snapshot, now)
        # After the plan: a process that dies in between leaves a return that is answered.
        note_loss(control, node)
        if plan is not None:
            return plan
    return None


def _is_steered(now: datetime) -> bool:
    """Return whether node scaling is in auto, by its own mode or by an override."""
    loops = Loop.objects.filter(law=LAW.name)
    return any(
        overrides.get_effective_mode(loop, overrides.list_for_loop(loop, now), now) == Loop.Mode.AUTO for loop in loops
    )


def _is_answered(node: str, returned_seconds: float, now: datetime) -> bool:
    """Return whether nothing is to be given back.

    That is true if node scaling takes care of it, recovery has made a plan since the node's return, or what was taken
    was given back before.
    """
    if _is_steered(now):
        return True
    if (taken := find_restoring_plan(node)) is None:
        return True
    since = datetime.fromtimestamp(returned_seconds, UTC)
    plans_back = taken.undone_by.filter(Q(state=Plan.State.DONE) | Q(owner=None, created_at__gte=since))
    # One restoring plan may have taken from several nodes, which come back one after the other.
    return any(move["to"] == node for plan in plans_back for move in plan.moves)


def _approve_plan(node: str, snapshot: Snapshot, now: datetime) -> Plan | None:
    """Return the plan, complete or not at all; None if what was taken has moved on."""
    why = f"{node} returned {RETURN_SECONDS:g} s ago."
    try:
        with transaction.atomic():
            plan = propose(node, None, why, snapshot=snapshot, now=now)
            return plans.record_approval(plan, BY, why, now)
    except BadInput:
        return None


def propose(node: str, user: User, reason: str, *, snapshot: Snapshot, now: datetime) -> Plan:
    """Return a plan that gives a node what recovery took from it, to be approved.

    Raises `BadInput` if nothing was taken, the points have moved on, or the node takes none.
    """
    taken = find_restoring_plan(node)
    inverse = [] if taken is None else _list_inverse_moves(node, taken, projection.read_database())
    if taken is None or not inverse:
        raise BadInput("node", f"{node} has no points to restore: none were taken, or they were moved again.")
    return proposals.propose_inverse(taken, inverse, user, reason, snapshot=snapshot, now=now, node=node)


def find_restoring_plan(node: str) -> Plan | None:
    """Return the newest plan by which recovery took points from a node."""
    return next((row for row in list_restoring_plans() if any(move["from"] == node for move in row.moves)), None)


def list_restoring_plans() -> QuerySet[Plan]:
    """Return the plans of recovery that a node may get its points back from, the newest first."""
    rows = Plan.objects.filter(kind=Plan.Kind.RESTORE, state__in=(*plans.ENDED_WITH_MOVES, Plan.State.ROLLED_BACK))
    return rows.order_by("-pk")[:NEWEST_RESTORING]


def can_restore_points(node: str, points: int) -> bool:
    """Return whether a node without points could get some back."""
    return not points and find_restoring_plan(node) is not None


def _list_inverse_moves(node: str, taken: Plan, topology: Topology) -> list[Move]:
    """Return the moves back, of the points that are still where they went."""
    inverse_moves: list[Move] = []
    for move in moves.read(taken.moves):
        if move.source != node or move.queue not in topology.queues:
            continue
        held = topology.queue(move.queue).live_points
        if node not in held and held.get(move.target, 0) >= move.points:
            inverse_moves.append(move.inverse)
    return inverse_moves
