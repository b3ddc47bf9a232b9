"""User actions on plans and on the nodes they fill or empty: authorized, audited, on a fresh snapshot.

Each function authorizes the actor, makes the change, and writes the audit entry in one transaction. All raise
`PermissionDenied`, and `BadInput` that names the field.
"""

from collections.abc import Mapping
from datetime import datetime

import redis
from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.input.form_values import check_unchanged
from queues import projection
from queues.models import Container, Node
from workers.documents.snapshot import Snapshot
from workers.models import Override, Plan
from workers.placement import plans, proposals, recovery
from workers.steering import node_use, overrides, plant_settings
from workers.steering.overrides import Expiry

# A plan computed or approved on an older one might send points to a node that is already lost.
OLDEST_SNAPSHOT_SECONDS = 10.0
USES = ("drain", "cordon", "return", "give-back")


def require_fresh_snapshot(
    snapshot: Snapshot | None, now: datetime, oldest_seconds: float = OLDEST_SNAPSHOT_SECONDS
) -> Snapshot:
    """Return the snapshot, if it is recent enough for a plan."""
    if snapshot is None:
        raise BadInput("plant", "is not observed yet. Wait for its first snapshot.")
    age_seconds = now.timestamp() - (snapshot.at or 0.0)
    if age_seconds < -oldest_seconds:
        raise BadInput(
            "plant",
            f"was observed {-age_seconds:.0f} s ahead of this host's clock. Synchronize the clocks, then try again.",
        )
    if age_seconds > oldest_seconds:
        raise BadInput(
            "plant", (f"was last observed {age_seconds:.0f} s ago. Check that the observer runs, then try again.")
        )
    return snapshot


@transaction.atomic
def propose_rebalance(actor: Actor, goal: str, snapshot: Snapshot | None, now: datetime) -> Plan:
    """Propose a plan for a goal of the rebalancing law. Raises an error if there is nothing to move."""
    require_permission(actor, "plan.propose")
    try:
        made = proposals.propose_rebalance(goal, actor.user, snapshot=require_fresh_snapshot(snapshot, now), now=now)
    except BadInput as error:
        # The button names the goal, so the error only says why there is nothing to move.
        raise BadInput(error.field, error.message.removeprefix(f"{goal}: ")) from None
    return _record_plan(actor, made)


@transaction.atomic
def propose_drain(actor: Actor, node: str, reason: str, snapshot: Snapshot | None, now: datetime) -> Plan:
    """Propose a plan that empties a node."""
    require_permission(actor, "plan.propose")
    return _record_plan(
        actor,
        proposals.propose_drain(node, actor.user, reason, snapshot=require_fresh_snapshot(snapshot, now), now=now),
    )


@transaction.atomic
def propose_give_back(actor: Actor, node: str, reason: str, snapshot: Snapshot | None, now: datetime) -> Plan:
    """Propose a plan that restores the points that recovery took from a node."""
    require_permission(actor, "plan.propose")
    why = overrides.read_reason(reason)
    return _record_plan(
        actor, recovery.propose(node, actor.user, why, snapshot=require_fresh_snapshot(snapshot, now), now=now)
    )


@transaction.atomic
def propose_points(
    actor: Actor,
    queue: str,
    points: Mapping[str, int],
    reason: str,
    snapshot: Snapshot | None,
    now: datetime,
    digest: str = "",
) -> Plan:
    """Propose a plan of a manual division of a queue's 1000 points.

    digest: of the points from which it was made; "" if none were shown.
    """
    require_permission(actor, "plan.propose", [queue])
    if digest:
        check_unchanged(f"The point distribution of {queue}", get_points_by_node(queue), digest)
    why = overrides.read_reason(reason)
    made = proposals.propose_hand(
        queue, points, actor.user, snapshot=require_fresh_snapshot(snapshot, now), now=now, reason=why
    )
    return _record_plan(actor, made)


@transaction.atomic
def approve(actor: Actor, plan: Plan, hash: str, reason: str, snapshot: Snapshot | None, now: datetime) -> Plan:
    """Approve the plan that was shown, which the hash names. A setting for each role may require a second approval."""
    require_permission(actor, "plan.approve", list_plan_queues(plan))
    made = plans.approve(
        plan,
        hash,
        actor.user,
        reason,
        snapshot=require_fresh_snapshot(snapshot, now),
        now=now,
        needed=count_required_approvals(actor),
    )
    return _record_change(actor, "plan.approve", plan.state, made, reason)


def count_required_approvals(actor: Actor) -> int:
    """Return how many approvals a plan needs if this actor approves it."""
    return int(plant_settings.get_setting_value(f"approvals.{actor.role}"))


@transaction.atomic
def reject(actor: Actor, plan: Plan, reason: str, now: datetime) -> Plan:
    """Reject a plan permanently."""
    require_permission(actor, "plan.approve", list_plan_queues(plan), ())
    return _record_change(actor, "plan.reject", plan.state, plans.reject(plan, actor.user, reason, now=now), reason)


@transaction.atomic
def stop(actor: Actor, plan: Plan, reason: str, now: datetime) -> Plan:
    """Stop an approved or running plan: no further moves start."""
    require_permission(actor, "plan.stop", list_plan_queues(plan))
    return _record_change(actor, "plan.stop", plan.state, plans.stop(plan, actor.user, reason, now=now), reason)


@transaction.atomic
def roll_back(actor: Actor, plan: Plan, reason: str, snapshot: Snapshot | None, now: datetime) -> Plan:
    """Propose a plan with the inverse of the moves that were made."""
    require_permission(actor, "plan.propose", list_plan_queues(plan))
    made = proposals.roll_back(plan, actor.user, reason, snapshot=require_fresh_snapshot(snapshot, now), now=now)
    return _record_plan(actor, made)


@transaction.atomic
def cordon(
    actor: Actor, node: str, reason: str, now: datetime, control: redis.Redis, expiry: Expiry = node_use.UNTIL_ENDED
) -> list[Override]:
    """Cordon a node: it keeps what it has and gets no new points. Return the override that does."""
    require_permission(actor, "node.use", subjects=[f"node/{node}"])
    # In the order in which the end of an override locks them: overrides, node, projection.
    list(overrides.list_active(now).filter(node__name=node).select_for_update(of=("self",)))
    # The audit entry comes first: the change ends with the projection, which can't be rolled back. The node's
    # row and the projection are locked before it, as everywhere: the audit log is locked last.
    Node.objects.select_for_update().filter(name=node).first()
    projection.lock_revision()
    audit_log.record(actor, "node.use", node, reason=reason.strip(), after={"cordoned": True})
    plans.cordon(node, True, actor.user, reason, control=control, now=now, expiry=expiry)
    return list(overrides.list_active(now).filter(node__name=node, name="cordoned"))


@transaction.atomic
def take_back(actor: Actor, node: str, reason: str, now: datetime, control: redis.Redis) -> None:
    """End a node's drain and its cordon, if any."""
    require_permission(actor, "node.use", subjects=())
    list(overrides.list_active(now).filter(node__name=node).select_for_update(of=("self",)))
    held = Node.objects.select_for_update().filter(name=node).values("drained", "cordoned").first()
    if held is not None and not any(held.values()):
        raise BadInput("node", f"{node} is already in service: neither drained nor cordoned.")
    projection.lock_revision()
    audit_log.record(
        actor, "node.use", node, reason=reason.strip(), before=held, after=dict.fromkeys(held or (), False)
    )
    if held is None or held["drained"]:
        plans.return_to_use(node, actor.user, reason, control=control, now=now)
    if held is not None and held["cordoned"]:
        plans.cordon(node, False, actor.user, reason, control=control, now=now)


def _record_plan(actor: Actor, plan: Plan) -> Plan:
    after = {"kind": plan.kind, "hash": plan.hash[:8], "moves": len(plan.moves), "points": count_moved_points(plan)}
    audit_log.record(actor, "plan.propose", f"plan {plan.pk}", reason=plan.reason, after=after)
    return plan


def _record_change(actor: Actor, action: str, before: str, plan: Plan, reason: str) -> Plan:
    audit_log.record(
        actor,
        action,
        f"plan {plan.pk}",
        reason=reason.strip(),
        before={"state": before},
        after={"state": plan.state, "hash": plan.hash[:8], "approvals": len(plan.approvals)},
    )
    return plan


def get_points_by_node(queue: str) -> dict[str, int]:
    """Return the points of a queue by node, without nodes that have none: the start of a manual plan."""
    held = Container.objects.filter(queue__name=queue, points__gt=0)
    return dict(held.values_list("node__name", "points"))


def count_moved_points(plan: Plan) -> int:
    return sum(move["points"] for move in plan.moves)


def list_plan_queues(plan: Plan) -> list[str] | None:
    """Return the queues whose points it moves; None for a plan that empties a node and its rollback: all queues."""
    of_a_node = plan.empties or (plan.undoes is not None and plan.undoes.empties)
    return None if of_a_node else sorted({move["queue"] for move in plan.moves})
