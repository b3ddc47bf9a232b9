"""User actions on retry plans: authorized and audited.

All raise PermissionDenied, and BadInput that names the field.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from django.db import transaction

from common.errors import BadInput
from common.stored_document import StoredDocument, Time, describe
from console.accounts.access import Actor, require_permission
from console.actions import dead_letters
from console.actions.proposals.plans import count_required_approvals
from console.audit import audit_log
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant
from workers.plants.registry import LOCAL
from workers.retries import plans, selection
from workers.retries.budget import get_called
from workers.retries.items import PaceLimits, RetryItem
from workers.retries.models import RetryPlan
from workers.retries.plans import NewPlan, State
from workers.retries.selection import REASONS, Selection
from workers.task_history.query import TaskQuery, parse_query
from workers.windows.freezes import list_queue_subjects

STATE_WORDS = {
    State.PROPOSED: "Waiting for approval",
    State.APPROVED: "Approved",
    State.STAGING: "Staging",
    State.SENDING: "Sending",
    State.PAUSED: "Paused",
    State.ENDING: "Ending",
    State.DONE: "Done",
    State.ENDED: "Ended",
    State.REJECTED: "Rejected",
    State.EXPIRED: "Expired",
}


class SkippedTasks(StoredDocument, frozen=True, kw_only=True):
    """Tasks that a plan leaves out for one reason."""

    reason: Annotated[str, describe(values=REASONS)]
    words: str
    tasks: int


class RetryPreview(StoredDocument, frozen=True, kw_only=True):
    """The result of a dry run: nothing is stored or sent."""

    plant: str
    query: str
    found: Annotated[int, describe("Tasks that the search finds.")]
    is_complete: Annotated[bool, describe("Whether the search finds no more tasks than a plan can have.")]
    tasks: Annotated[int, describe("Tasks that the plan would send again.")]
    queues: Annotated[dict[str, int], describe("Destination → tasks.")]
    names: Annotated[dict[str, int], describe("Task name → tasks, of the most frequent names.")]
    skipped: list[SkippedTasks]


class RetryPlanDocument(StoredDocument, frozen=True, kw_only=True):
    """A retry plan and its progress."""

    id: int
    kind: Annotated[str, describe(values=RetryPlan.Kind.values)]
    plant: str
    query: str
    state: Annotated[str, describe(values=State.values)]
    state_words: str
    reason: str
    note: str
    hash: str
    short_hash: str
    tasks: Annotated[int, describe("Tasks of the plan.")]
    sent: Annotated[int, describe("Tasks that were sent.")]
    succeeded: int
    failed: Annotated[int, describe("Sent tasks that failed again.")]
    unheard: Annotated[int, describe("Sent tasks whose outcome was not received.")]
    rate: Annotated[float | None, describe("Tasks that are sent per second.")]
    min_rate: float
    max_rate: float
    calls: Annotated[
        str,
        describe("Destination whose retry budget the plan uses; empty: the plant's own, or those that handlers call."),
    ]
    queues: dict[str, int]
    skipped: list[SkippedTasks]
    owner: str
    approvals: list[dict[str, Any]]
    created_at: Time
    expires_at: Time
    started_at: Time | None
    ended_at: Time | None
    can_approve: bool
    can_pause: bool
    can_resume: bool
    can_end: bool


@dataclass(frozen=True)
class RetryRequest:
    """A request for a retry plan. destination: the queue of all messages, "" for each task's own."""

    plant: str
    query: str
    destination: str = ""
    with_succeeded: bool = False
    limits: PaceLimits = plans.USUAL


def preview(actor: Actor, wanted: RetryRequest, now: datetime) -> RetryPreview:
    """Return what a plan would send, and what it would leave out and why."""
    require_permission(actor, "retry.propose")
    found = _select(wanted, now)
    return RetryPreview(
        plant=wanted.plant,
        query=wanted.query,
        found=found.found,
        is_complete=found.is_complete,
        tasks=len(found.items),
        queues=found.queues,
        names=found.names,
        skipped=_describe_skipped(found.skipped),
    )


def propose(actor: Actor, wanted: RetryRequest, reason: str, now: datetime) -> RetryPlan:
    """Propose a plan; nothing is sent before its approval."""
    require_permission(actor, "retry.propose")
    plans.check_limits(wanted.limits)
    found = _select(wanted, now)
    kind = RetryPlan.Kind.TASKS.value
    new = NewPlan(kind, wanted.plant, wanted.query, found.items, found.skipped, found.queues, wanted.limits)
    with transaction.atomic():
        return _record_proposal(actor, plans.propose(new, actor.user, reason, now))


def propose_dead_letters(
    actor: Actor, letters: Sequence[dead_letters.Name], query: str, reason: str, limits: PaceLimits, now: datetime
) -> RetryPlan:
    """Propose a plan that requeues dead letters of Weir's queues, as they were shown. query: the filter, in words."""
    queues = Counter(letter.queue for letter in letters)
    require_permission(actor, "dead_letters.requeue", sorted(queues))
    items = [RetryItem(str(letter), "", letter.queue) for letter in sorted(letters, key=lambda letter: letter.id)]
    kind = RetryPlan.Kind.DEAD_LETTERS.value
    new = NewPlan(kind, LOCAL, query, items, {}, dict(queues), limits)
    with transaction.atomic():
        return _record_proposal(actor, plans.propose(new, actor.user, reason, now))


@transaction.atomic
def approve(actor: Actor, plan: RetryPlan, hash: str, reason: str, now: datetime) -> RetryPlan:
    """Approve the plan that was shown. A setting for each role may require a second approval."""
    require_permission(actor, "retry.approve", subjects=_list_subjects(plan))
    needed = count_required_approvals(actor)
    changed = plans.approve(plan.pk, hash, actor.user, reason, now=now, needed=needed)
    return _record_change(actor, "retry.approve", plan, changed, reason)


@transaction.atomic
def reject(actor: Actor, plan: RetryPlan, reason: str, now: datetime) -> RetryPlan:
    """Reject a plan permanently."""
    require_permission(actor, "retry.approve", subjects=())
    changed = plans.reject(plan.pk, actor.user, reason, now=now)
    return _record_change(actor, "retry.reject", plan, changed, reason)


@transaction.atomic
def pause(actor: Actor, plan: RetryPlan, reason: str) -> RetryPlan:
    """Pause a plan: nothing more is sent until it is continued."""
    require_permission(actor, "retry.stop")
    return _record_change(actor, "retry.pause", plan, plans.pause(plan.pk, actor.user, reason), reason)


@transaction.atomic
def resume(actor: Actor, plan: RetryPlan, reason: str) -> RetryPlan:
    """Continue a paused plan."""
    require_permission(actor, "retry.approve", subjects=_list_subjects(plan))
    return _record_change(actor, "retry.resume", plan, plans.resume(plan.pk, actor.user, reason), reason)


@transaction.atomic
def end(actor: Actor, plan: RetryPlan, reason: str) -> RetryPlan:
    """End a plan: what it has not sent is not sent any more."""
    require_permission(actor, "retry.stop")
    return _record_change(actor, "retry.end", plan, plans.end(plan.pk, actor.user, reason), reason)


def describe_plan(plan: RetryPlan) -> RetryPlanDocument:
    """Return a plan as pages and the API show it."""
    rate = plan.pace.get("rate")
    return RetryPlanDocument(
        id=plan.pk,
        kind=plan.kind,
        plant=plan.plant,
        query=plan.query,
        state=plan.state,
        state_words=STATE_WORDS[State(plan.state)],
        reason=plan.reason,
        note=plan.note,
        hash=plan.hash,
        short_hash=plan.hash[:8],
        tasks=plan.total,
        sent=plan.sent,
        succeeded=plan.succeeded,
        failed=plan.failed,
        unheard=plan.unheard,
        rate=round(rate, 2) if rate is not None and plan.state == State.SENDING else None,
        min_rate=plan.min_rate,
        max_rate=plan.max_rate,
        calls=get_called(plan) if plan.kind == RetryPlan.Kind.TASKS else "",
        queues=plan.queues,
        skipped=_describe_skipped(plan.skipped),
        owner=plan.owner.get_username() if plan.owner else "",
        approvals=plan.approvals,
        created_at=plan.created_at,
        expires_at=plan.expires_at,
        started_at=plan.started_at,
        ended_at=plan.ended_at,
        can_approve=plan.state == State.PROPOSED,
        can_pause=plan.state in plans.PAUSABLE,
        can_resume=plan.state == State.PAUSED,
        can_end=plan.state in (*plans.PAUSABLE, State.PAUSED),
    )


def list_retryable_plants() -> list[str]:
    """Return the names of attached plants whose tasks can be sent again."""
    kinds = [kind.name for kind in adapters.list_kinds().values() if kind.open_retry_outlet is not None]
    return list(RegisteredPlant.objects.filter(kind__in=kinds).order_by("name").values_list("name", flat=True))


def _list_subjects(plan: RetryPlan) -> list[str]:
    """Return what a plan changes while it sends, which a change freeze may protect."""
    if plan.kind == RetryPlan.Kind.DEAD_LETTERS:
        return list_queue_subjects(plan.queues)
    return [f"plant/{plan.plant}"]


def _select(wanted: RetryRequest, now: datetime) -> Selection:
    known = list_retryable_plants()
    if wanted.plant not in known:
        names = ", ".join(known) or "none is attached"
        raise BadInput("plant", f"must be an attached Celery app ({names}), not {wanted.plant[:40]!r}.")
    query: TaskQuery = parse_query(wanted.query, now.timestamp())
    planned = plans.list_planned_ids(wanted.plant)
    return selection.select(wanted.plant, query, planned, wanted.destination.strip(), wanted.with_succeeded)


def _describe_skipped(skipped: dict[str, int]) -> list[SkippedTasks]:
    return [
        SkippedTasks(reason=reason, words=REASONS[reason], tasks=tasks)
        for reason, tasks in sorted(skipped.items(), key=lambda pair: -pair[1])
    ]


def _record_proposal(actor: Actor, plan: RetryPlan) -> RetryPlan:
    after = {"plant": plan.plant, "query": plan.query, "hash": plan.hash[:8], "tasks": plan.total}
    audit_log.record(actor, "retry.propose", f"retry plan {plan.pk}", reason=plan.reason, after=after)
    return plan


def _record_change(actor: Actor, action: str, before: RetryPlan, plan: RetryPlan, reason: str) -> RetryPlan:
    audit_log.record(
        actor,
        action,
        f"retry plan {plan.pk}",
        reason=reason.strip(),
        before={"state": before.state},
        after={"state": plan.state, "hash": plan.hash[:8], "sent": plan.sent, "tasks": plan.total},
    )
    return plan
