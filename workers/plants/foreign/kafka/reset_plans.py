"""The life of a stored plan of an offset reset, apart from its execution at the cluster (`offset_reset`).

    proposed → approved → done, failed
             ↘ rejected, expired

Every function that refuses raises BadInput and changes nothing.
"""

from dataclasses import asdict
from datetime import datetime, timedelta

from django.db import transaction

from common.errors import BadInput
from workers.placement.plans import User, build_approval, check_approval, get_approval_timeout, get_user_name
from workers.plants.foreign.kafka.offset_reset import OffsetReset, PartitionReset
from workers.plants.models import OffsetResetPlan
from workers.steering.overrides import read_reason

State = OffsetResetPlan.State
OPEN = (State.PROPOSED, State.APPROVED)
KEPT = timedelta(days=90)
# An execution takes seconds.
MAX_EXECUTION = timedelta(minutes=10)


def propose(plant: str, plan: OffsetReset, hash: str, user: User, reason: str, now: datetime) -> OffsetResetPlan:
    """Store a plan that waits for approval."""
    return OffsetResetPlan.objects.create(
        plant=plant,
        group=plan.group,
        target=plan.target,
        partitions=[asdict(row) for row in plan.partitions],
        skipped=plan.skipped,
        again=plan.again,
        hash=hash,
        reason=read_reason(reason),
        owner=user,
        created_at=now,
        expires_at=now + get_approval_timeout(),
    )


@transaction.atomic
def approve(plan: int, hash: str, user: User, reason: str, *, now: datetime, needed: int = 1) -> OffsetResetPlan:
    """Approve a plan as shown. It is to be executed once `needed` persons have approved it."""
    why, row = read_reason(reason), lock_plan(plan)
    check_approval(row, hash, user, now)
    row.approvals = [*row.approvals, build_approval(get_user_name(user), why, now)]
    if len(row.approvals) >= needed:
        return _change(row, State.APPROVED, "")
    row.expires_at = now + get_approval_timeout()
    return _change(row, State.PROPOSED, f"{get_user_name(user)} has approved it. Another user has to approve it.")


@transaction.atomic
def reject(plan: int, user: User, reason: str, *, now: datetime) -> OffsetResetPlan:
    """Reject a proposed plan, permanently."""
    why, row = read_reason(reason), lock_plan(plan)
    if row.state != State.PROPOSED:
        raise BadInput("plan", f"is {row.state}. Only a proposed plan can be rejected.")
    return _change(row, State.REJECTED, f"Rejected by {get_user_name(user)}: {why}", now)


@transaction.atomic
def end(plan: int, state: str, note: str, *, now: datetime) -> OffsetResetPlan:
    """End an approved plan as done or failed."""
    return _change(lock_plan(plan), state, note, now)


def lock_plan(plan: int) -> OffsetResetPlan:
    """Return a plan, locked until the transaction ends. Raises BadInput if there is none."""
    row = OffsetResetPlan.objects.select_for_update().filter(pk=plan).first()
    if row is None:
        raise BadInput("plan", f"{plan} does not exist. Choose a reset of the list.")
    return row


def list_partitions(plan: OffsetResetPlan) -> list[PartitionReset]:
    return [PartitionReset(**row) for row in plan.partitions]


def format_target(plan: OffsetResetPlan) -> str:
    """Return the offsets of a plan as a target: orders/0=10. They stay the same if events are added meanwhile."""
    return ",".join(f"{row.topic}/{row.partition}={row.then}" for row in list_partitions(plan))


def explain_drift(plan: OffsetResetPlan, current: OffsetReset) -> str:
    """Return how the group differs from the plan; "" if it can still be executed as planned.

    current: a plan for the offsets of `format_target`.
    """
    now = {(row.topic, row.partition): row for row in current.partitions}
    for row in list_partitions(plan):
        found = now.get((row.topic, row.partition))
        place = f"partition {row.partition} of topic {row.topic}"
        if found is None or found.now != row.now:
            return f"The committed offset of {place} has changed since the plan was proposed."
        if found.then != row.then:
            return f"The events at the new offset of {place} no longer exist."
    return ""


def tidy(now: datetime) -> None:
    """End plans that nobody approved in time or whose execution was interrupted, and delete those that ended long ago.

    The plan of an interrupted execution failed with an unknown result.
    """
    OffsetResetPlan.objects.filter(state=State.PROPOSED, expires_at__lte=now).update(
        state=State.EXPIRED, ended_at=now, note="The plan was not approved in time."
    )
    for row in OffsetResetPlan.objects.filter(state=State.APPROVED):
        if row.approvals[-1]["at"] <= (now - MAX_EXECUTION).timestamp():
            end(row.pk, State.FAILED, "The execution was interrupted. Check the offsets of the group.", now=now)
    OffsetResetPlan.objects.filter(ended_at__lte=now - KEPT).delete()


def _change(plan: OffsetResetPlan, state: str, note: str, ended_at: datetime | None = None) -> OffsetResetPlan:
    plan.state, plan.note, plan.ended_at = state, note, ended_at
    plan.save(update_fields=["state", "note", "approvals", "expires_at", "ended_at"])
    return plan
