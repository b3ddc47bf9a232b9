"""The life of a plan, from its proposal to its end.

A plan is proposed (`workers.placement.proposals`), shown, approved by its hash, executed
(`workers.placement.execution`), stopped, or rolled back.

    proposed → approved → running → done → rolled-back
             ↘ rejected          ↘ stopped, failed
             ↘ void (expired, or the plant has drifted away from the state it was computed for)

An approver has seen a hash: SHA-256 over the moves and the revision they were computed from. Nothing else is ever
executed under it. Every function here that refuses raises `BadInput` naming the field and changes nothing. `user` is
None if a loop acts; `snapshot` is the newest one (`PublishedPlant.observe`).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import redis
from django.contrib.auth import models as accounts
from django.db import transaction
from django.db.models import Q, QuerySet

from common.errors import BadInput
from common.stored_document import convert, copy_shared_values
from queues import projection
from queues.models import Node
from queues.nodes.node_state import SILENT
from queues.topology import Topology
from workers.documents.plans import NodeForecast, PlanDocument, PlanMove, PlanStatus
from workers.documents.snapshot import Snapshot
from workers.models import Plan
from workers.placement import moves
from workers.steering import enforcing, node_use, overrides, plant_settings
from workers.steering.overrides import Expiry

OPEN = (Plan.State.PROPOSED, Plan.State.APPROVED, Plan.State.RUNNING)
BEING_EXECUTED = (Plan.State.APPROVED, Plan.State.RUNNING)
ENDED_WITH_MOVES = (Plan.State.DONE, Plan.State.STOPPED, Plan.State.FAILED)
User = accounts.User | None


def approve(
    plan: Plan | int, hash: str, user: User, reason: str, *, snapshot: Snapshot, now: datetime, needed: int = 1
) -> Plan:
    """Approve a plan as shown: it runs within about a second, once `needed` persons have approved.

    Of two, the second is neither the first nor the proposer. The first approval restarts the plan's time. Raises
    `BadInput`: another hash, a plan that is not proposed any more (approved twice, rejected, void), expired, the points
    of its queues changed, or a node was drained, cordoned, or lost meanwhile.
    """
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        check_approval(row, hash, user, now)
        drift = explain_drift(row)
        if drift is None:
            lost = find_offline_nodes(snapshot) & {move["to"] for move in row.moves}
            drift = f"Node {sorted(lost)[0]} is OFFLINE now." if lost else None
        if drift is not None:
            raise BadInput("plan", f"is no longer valid: {drift} Propose it again.")
        if len(row.approvals) + 1 >= needed:
            return record_approval(row, get_user_name(user), why, now)
        row.approvals = [*row.approvals, build_approval(get_user_name(user), why, now)]
        row.expires_at = now + get_approval_timeout()
        row.note = f"{get_user_name(user)} has approved it. Another user has to approve it too."
        row.save(update_fields=["approvals", "expires_at", "note"])
        return row


def reject(plan: Plan | int, user: User, reason: str, *, now: datetime) -> Plan:
    """Reject a proposed plan, permanently. Raises `BadInput` if it is not proposed any more."""
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        if row.state != Plan.State.PROPOSED:
            raise BadInput("plan", f"is {row.state}. Only a proposed plan can be rejected.")
        return end(row, Plan.State.REJECTED, f"Rejected by {get_user_name(user)}: {why}", now)


def stop(plan: Plan | int, user: User, reason: str, *, now: datetime) -> Plan:
    """Stop an approved or running plan: what has moved stays moved, nothing more is started.

    A node that was being drained stays drained until `return_to_use`. Raises `BadInput` unless it is approved or
    running.
    """
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        if row.state not in (Plan.State.APPROVED, Plan.State.RUNNING):
            raise BadInput("plan", f"is {row.state}. Only an approved or running plan can be stopped.")
        return end(row, Plan.State.STOPPED, f"Stopped by {get_user_name(user)}: {why}", now)


def open_plans(now: datetime | None = None) -> list[Plan]:
    """Return plans that wait for approval (not expired at `now`), are approved, or run, the oldest first."""
    rows = Plan.objects.filter(state__in=OPEN).order_by("created_at", "pk")
    if now is not None:
        rows = rows.exclude(state=Plan.State.PROPOSED, expires_at__lte=now)
    return list(rows.select_related("owner"))


def void_due(now: datetime) -> int:
    """Mark outdated proposals as void, and return how many.

    A proposal is outdated if nobody approved it in time, or if it is no longer valid for the plant.
    """
    gone = 0
    for row in Plan.objects.filter(state=Plan.State.PROPOSED):
        why = "The plan was not approved in time." if row.expires_at <= now else explain_drift(row)
        if why is not None:
            with transaction.atomic():
                fresh = Plan.objects.select_for_update().filter(pk=row.pk, state=Plan.State.PROPOSED).first()
                if fresh is not None:
                    end(fresh, Plan.State.VOID, why, now)
                    gone += 1
    return gone


def explain_drift(plan: Plan) -> str | None:
    """Return how the plant has changed since the plan was computed so that it is no longer valid, or None."""
    topology = projection.read_database()
    for queue, points in plan.base.items():
        if queue not in topology.queues or topology.queues[queue].live_points != points:
            return f"The points of queue {queue} have changed since the plan was proposed."
    if plan.empties and (others := set(topology.list_queues_with_points_on(plan.empties)) - plan.base.keys()):
        return f"Queue {min(others)} now has points on {plan.empties} that the plan does not move."
    reopened = plan.undoes.empties if plan.undoes else ""  # the plan reopens it itself at the start
    targets = sorted({move["to"] for move in plan.moves} & topology.nodes.keys() - {reopened})
    closed = {target: moves.explain_closed(topology.nodes[target]) for target in targets}
    return next((f"Node {node} {why} now." for node, why in closed.items() if why), None)


def find_offline_nodes(snapshot: Snapshot) -> set[str]:
    """Return nodes that are OFFLINE in the snapshot, or have never reported."""
    return {name for name, node in snapshot.nodes.items() if node.state in SILENT}


def lock_plan(plan: Plan | int) -> Plan:
    """Return its row, locked until the transaction ends. Raises `BadInput` if there is none."""
    number = plan.pk if isinstance(plan, Plan) else plan
    row = Plan.objects.select_for_update().filter(pk=number).first()
    if row is None:
        raise BadInput("plan", f"{number} does not exist.")
    return row


class ApprovedPlan(Protocol):
    """A plan that people approve by its hash: of moved points, of retried tasks, or of offsets."""

    state: Any
    hash: Any
    note: Any
    expires_at: Any
    approvals: Any

    @property
    def owner(self) -> Any: ...


def check_approval(plan: ApprovedPlan, hash: str, user: User, now: datetime) -> None:
    """Raise `BadInput` unless this person may approve the plan as shown, and it is still proposed."""
    if plan.state != Plan.State.PROPOSED:
        raise BadInput("plan", f"is already {plan.state}. Only a proposed plan can be approved. {plan.note}".strip())
    if hash != plan.hash:
        raise BadInput("hash", "is not the hash of this plan. Reload the plan, check it, and approve it again.")
    if now >= plan.expires_at:
        raise BadInput("plan", f"expired at {plan.expires_at:%H:%M:%S} UTC. Propose it again.")
    if refusal := explain_approval_refusal(plan, user):
        raise BadInput("plan", refusal)


def explain_approval_refusal(plan: ApprovedPlan, user: User) -> str:
    """Return a sentence that says why this person's approval can't be the next one; "" if it can.

    Two approvals are from two persons, and the second is not from the proposer.
    """
    name = get_user_name(user)
    if any(approval["by"] == name for approval in plan.approvals):
        return "You have already approved this plan. Another user has to approve it, too."
    if plan.approvals and plan.owner is not None and plan.owner.get_username() == name:
        return "You have proposed this plan. Another user has to give the second approval."
    return ""


def get_approval_timeout() -> timedelta:
    """Return how long a proposal waits for an approval."""
    return timedelta(seconds=plant_settings.get_setting_value("plan.expires_seconds"))


def record_approval(plan: Plan, by: str, reason: str, now: datetime) -> Plan:
    """Return the plan with its last approval: it is executed from now on."""
    plan.approvals = [*plan.approvals, build_approval(by, reason, now)]
    plan.state, plan.note = Plan.State.APPROVED, ""
    plan.save(update_fields=["approvals", "state", "note"])
    return plan


def build_approval(by: str, reason: str, now: datetime) -> dict[str, Any]:
    """Return an entry of a plan's approvals."""
    return {"by": by, "reason": reason, "at": now.timestamp()}


def end(plan: Plan, state: str, note: str, now: datetime) -> Plan:
    """Return the plan in a final state."""
    plan.state, plan.note, plan.ended_at = state, note, now
    plan.save(update_fields=["state", "note", "ended_at"])
    return plan


def get_user_name(user: User) -> str:
    return user.get_username() if user is not None else "loop"


def has_moved(step: Mapping[str, Any]) -> bool:
    """Return whether a move of `Plan.progress` has taken any points."""
    return bool(step["points_moved"] > 0)


def list_running_plans() -> QuerySet[Plan]:
    """Return plans that are being executed, or are about to be."""
    return Plan.objects.filter(Q(state=Plan.State.APPROVED) | Q(state=Plan.State.RUNNING))


def build_plan_document(plan: Plan) -> PlanDocument:
    """Return a plan with all its stored details (docs/understand/how/placement.md)."""
    return PlanDocument(
        **copy_shared_values(build_plan_status(plan), PlanStatus),
        short_hash=plan.hash[:8],
        reason=plan.reason,
        before={name: convert(NodeForecast, node) for name, node in plan.before.items()},
        after={name: convert(NodeForecast, node) for name, node in plan.after.items()},
        estimated_seconds=plan.estimated_seconds,
        estimated_bytes=plan.estimated_bytes,
        owner=plan.owner.get_username() if plan.owner else plan.law or "recovery",
        approvals=plan.approvals,
        law=plan.law or None,
        entry=plan.entry_id,
        undoes=plan.undoes_id,
        created_at=plan.created_at.timestamp(),
        started_at=plan.started_at.timestamp() if plan.started_at else None,
        ended_at=plan.ended_at.timestamp() if plan.ended_at else None,
        can_approve=plan.state == Plan.State.PROPOSED,
        can_stop=plan.state in (Plan.State.APPROVED, Plan.State.RUNNING),
        can_roll_back=can_roll_back(plan),
    )


def can_roll_back(plan: Plan) -> bool:
    """Return whether it has ended and moved something."""
    return plan.state in ENDED_WITH_MOVES and any(map(has_moved, plan.progress))


def build_plan_status(plan: Plan) -> PlanStatus:
    """Return a plan as the snapshot carries it each second."""
    steps = zip(plan.moves, plan.progress, strict=True)
    return PlanStatus(
        id=plan.pk,
        hash=plan.hash,
        kind=plan.kind,
        title=plan.title,
        state=plan.state,
        points=sum(move["points"] for move in plan.moves),
        progress_share=compute_progress_share(plan),
        note=plan.note,
        empties=plan.empties or None,
        expires_at=plan.expires_at.timestamp(),
        moves=[convert(PlanMove, {**move, **step}) for move, step in steps],
    )


def compute_progress_share(plan: Plan) -> float:
    """Return its progress, 0 to 1: moved points count half if events are transferred, too, else fully."""
    if plan.state == Plan.State.DONE:
        return 1.0
    if not plan.progress:
        return 0.0
    return round(sum(_share(step, bool(plan.empties)) for step in plan.progress) / len(plan.progress), 3)


def _share(step: Mapping[str, Any], transfers: bool) -> float:
    if step["state"] == "done":
        return 1.0
    if not has_moved(step):
        return 0.0
    if not transfers:
        return 1.0
    total = step["blocks_total"] or 0
    return 0.5 + (0.5 * min(1.0, step["blocks"] / total) if total else 0.0)


def cordon(
    node: str,
    on: bool,
    user: User,
    reason: str,
    *,
    control: redis.Redis,
    now: datetime,
    expiry: Expiry = node_use.UNTIL_ENDED,
) -> Topology:
    """Make a node take no new points (on) or take them again (off); it keeps its points. Projected.

    Raises `BadInput` for an unknown node, or if it is in that state already.
    """
    why = overrides.read_reason(reason)
    with transaction.atomic():
        projection.read_database().get_node(node)
        row = Node.objects.get(name=node)
        if row.cordoned == on:
            raise BadInput("node", f"{node} is {'already cordoned' if on else 'not cordoned'}.")
        if on:
            node_use.begin(row, "cordoned", user, why, now=now, control=control, expiry=expiry)
        else:
            node_use.end(row, "cordoned", user, now=now, control=control)
        return projection.project(control, enforcing.get_node_thresholds(now))


def return_to_use(node: str, user: User, reason: str, *, control: redis.Redis, now: datetime) -> Topology:
    """End a node's drain: a plan may give it points again. Raises `BadInput` if it is not drained."""
    overrides.read_reason(reason)
    with transaction.atomic():
        projection.read_database().get_node(node)
        busy = Plan.objects.filter(empties=node, state__in=(Plan.State.APPROVED, Plan.State.RUNNING))
        if (plan := busy.first()) is not None:
            raise BadInput("node", f"{node} is being drained. Stop plan {plan.pk} first.")
        row = Node.objects.get(name=node)
        if not row.drained:
            raise BadInput("node", f"{node} is not drained.")
        node_use.end(row, "drained", user, now=now, control=control)
        return projection.project(control, enforcing.get_node_thresholds(now))
