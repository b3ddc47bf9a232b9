"""The life of a retry plan, apart from its sending (`workers.retries.runner`).

    proposed → approved → staging → sending → ending → done, ended
             ↘ rejected, expired   ⇅ paused ↗

A plan pauses by itself, or because a person pauses it, and continues where it was. What a person ends is not sent any
more. Every function that refuses raises BadInput and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from common.errors import BadInput
from workers.consumer.destination import MAX_NAME
from workers.placement.plans import User, build_approval, check_approval, get_approval_timeout, get_user_name
from workers.retries.items import PaceLimits, RetryItem, compute_hash, decode_items, encode_items
from workers.retries.models import RetryPlan
from workers.steering.overrides import read_reason

State = RetryPlan.State
# Plans that a process advances, in the order of their approval: one at a time of each plant.
ACTIVE = (State.APPROVED, State.STAGING, State.SENDING, State.ENDING)
OPEN = (State.PROPOSED, *ACTIVE, State.PAUSED)
PAUSABLE = (State.APPROVED, State.STAGING, State.SENDING)
MIN_RATE, MAX_RATE = 0.1, 10_000.0
USUAL = PaceLimits(0.5, 1_000.0)
KEPT = timedelta(days=90)
MAX_PLANS = 200  # of one plant, whose tasks are compared with a selection


@dataclass(frozen=True)
class NewPlan:
    """A plan to propose. skipped: reason → tasks that it leaves out."""

    kind: str
    plant: str
    query: str
    items: Sequence[RetryItem]
    skipped: dict[str, int]
    queues: dict[str, int]
    limits: PaceLimits = USUAL


def check_limits(limits: PaceLimits) -> PaceLimits:
    """Return the limits. Raises BadInput that names the field."""
    if not MIN_RATE <= limits.min_rate <= MAX_RATE:
        raise BadInput(
            "min_rate", f"must be from {MIN_RATE:g} to {MAX_RATE:,.0f} tasks per second, not {limits.min_rate:g}."
        )
    if not limits.min_rate <= limits.max_rate <= MAX_RATE:
        takes = f"must be from the minimum rate, {limits.min_rate:g}, to {MAX_RATE:,.0f} tasks per second"
        raise BadInput("max_rate", f"{takes}, not {limits.max_rate:g}.")
    if len(limits.calls) > MAX_NAME:
        raise BadInput("calls", f"must have at most {MAX_NAME} characters, not {len(limits.calls)}.")
    return limits


def propose(new: NewPlan, user: User, reason: str, now: datetime) -> RetryPlan:
    """Store a plan that waits for approval."""
    why = read_reason(reason)
    check_limits(new.limits)
    if not new.items:
        raise BadInput(
            "query", "selects no task that can be retried. Change the search. A dry run shows why each task is skipped."
        )
    return RetryPlan.objects.create(
        kind=new.kind,
        plant=new.plant,
        query=new.query,
        reason=why,
        items=encode_items(new.items),
        total=len(new.items),
        skipped=new.skipped,
        queues=new.queues,
        min_rate=new.limits.min_rate,
        max_rate=new.limits.max_rate,
        calls=new.limits.calls,
        hash=compute_hash(new.kind, new.plant, new.items, new.limits),
        owner=user,
        created_at=now,
        expires_at=now + get_approval_timeout(),
    )


def approve(plan: int, hash: str, user: User, reason: str, *, now: datetime, needed: int = 1) -> RetryPlan:
    """Approve a plan as shown. It starts within seconds once `needed` persons have approved."""
    why = read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        check_approval(row, hash, user, now)
        row.approvals = [*row.approvals, build_approval(get_user_name(user), why, now)]
        if len(row.approvals) >= needed:
            return _change(row, State.APPROVED, "")
        row.expires_at = now + get_approval_timeout()
        return _change(row, State.PROPOSED, f"{get_user_name(user)} has approved it. Another user has to approve it.")


def reject(plan: int, user: User, reason: str, *, now: datetime) -> RetryPlan:
    """Reject a proposed plan, permanently."""
    why = read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        if row.state != State.PROPOSED:
            raise BadInput("plan", f"is {row.state}. Only a proposed plan can be rejected.")
        row.ended_at = now
        return _change(row, State.REJECTED, f"Rejected by {get_user_name(user)}: {why}")


def pause(plan: int, user: User, reason: str) -> RetryPlan:
    """Pause a plan: nothing more is sent until a person continues it."""
    why = read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        if row.state not in PAUSABLE:
            raise BadInput("plan", f"is {row.state}. Only an approved or sending plan can be paused.")
        return _change(row, State.PAUSED, f"Paused by {get_user_name(user)}: {why}")


def resume(plan: int, user: User, reason: str) -> RetryPlan:
    """Continue a paused plan where it was, slowly at first."""
    read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        if row.state != State.PAUSED:
            raise BadInput("plan", f"is {row.state}. Only a paused plan can be continued.")
        row.pace = {}
        # Without staging, nothing has been sent: the messages are written again.
        return _change(row, State.SENDING if row.started_at else State.APPROVED, "")


def end(plan: int, user: User, reason: str) -> RetryPlan:
    """End a plan: what is staged is deleted, and not sent any more."""
    why = read_reason(reason)
    with transaction.atomic():
        row = lock_plan(plan)
        if row.state not in (*PAUSABLE, State.PAUSED):
            raise BadInput("plan", f"is {row.state}. Only an approved, sending, or paused plan can be ended.")
        return _change(row, State.ENDING, f"Ended by {get_user_name(user)}: {why}")


def lock_plan(plan: int) -> RetryPlan:
    """Return a plan, locked until the transaction ends. Raises BadInput if there is none."""
    row = RetryPlan.objects.select_for_update().filter(pk=plan).first()
    if row is None:
        raise BadInput("plan", f"{plan} does not exist. Choose a plan of the list of retry plans.")
    return row


def list_planned_ids(plant: str) -> set[str]:
    """Return the ids of all tasks of a plant that plans have sent, or may still send."""
    planned: set[str] = set()
    rows = RetryPlan.objects.filter(plant=plant, kind=RetryPlan.Kind.TASKS).exclude(
        state__in=(State.PROPOSED, State.REJECTED, State.EXPIRED)
    )
    for state, sent, items in rows.order_by("-pk").values_list("state", "sent", "items")[:MAX_PLANS]:
        known = decode_items(items)
        planned |= {item.id for item in (known[:sent] if state == State.ENDED else known)}
    return planned


def tidy(now: datetime) -> None:
    """Mark proposals that nobody approved in time as expired, and delete plans that ended long ago."""
    RetryPlan.objects.filter(state=State.PROPOSED, expires_at__lte=now).update(
        state=State.EXPIRED, ended_at=now, note="The plan was not approved in time."
    )
    RetryPlan.objects.filter(ended_at__lte=now - KEPT).delete()


def get_limits(plan: RetryPlan) -> PaceLimits:
    return PaceLimits(plan.min_rate, plan.max_rate, plan.calls)


def _change(plan: RetryPlan, state: str, note: str) -> RetryPlan:
    plan.state, plan.note = state, note
    plan.save(update_fields=["state", "note", "pace", "approvals", "expires_at", "ended_at"])
    return plan
