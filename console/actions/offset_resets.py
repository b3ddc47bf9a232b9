"""Resets of the offsets of consumer groups at attached Kafka clusters: planned, approved by hash, and audited.

All raise PermissionDenied, BadInput that names the field, PlantUnavailable, and InvalidPlantResponse.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

from django.db import transaction

from common.errors import BadInput
from common.stored_document import StoredDocument, Time, describe
from console.accounts.access import Actor, require_permission
from console.actions.proposals.plans import count_required_approvals
from console.audit import audit_log
from console.input.form_values import digest_of
from workers.placement.plans import check_approval
from workers.plants.foreign import adapters
from workers.plants.foreign.answer_limit import order_seconds
from workers.plants.foreign.bounded import call_within
from workers.plants.foreign.kafka import reset_plans
from workers.plants.foreign.kafka.kafka_plant import KafkaPlant
from workers.plants.foreign.kafka.offset_reset import OffsetReset, PartitionReset
from workers.plants.foreign.kafka.reset_plans import State
from workers.plants.models import OffsetResetPlan, RegisteredPlant
from workers.steering.overrides import read_reason

KIND = "kafka"


class OffsetResetDocument(StoredDocument, frozen=True, kw_only=True):
    """A stored plan of a reset. Events are counted by offsets, including compacted ones and markers."""

    id: int
    plant: str
    group: str
    target: str
    state: Annotated[str, describe(values=State.values)]
    partitions: list[PartitionReset]
    skipped: Annotated[int, describe("Events that the group would not read.")]
    again: Annotated[int, describe("Events that the group would read a second time.")]
    undo: Annotated[str, describe("The target that restores the former offsets.")]
    hash: str
    reason: str
    note: str
    owner: str
    approvals: list[dict[str, Any]]
    created_at: Time
    expires_at: Time
    ended_at: Time | None
    can_approve: bool


def plan_reset(actor: Actor, plant: str, group: str, target: str) -> tuple[OffsetReset, str]:
    """Return the plan of a reset and its hash. Nothing is stored or changed."""
    require_permission(actor, "plant.scale", subjects=[f"plant/{plant}"])
    with _open_kafka(plant) as kafka:
        plan = call_within(order_seconds(), plant, kafka.plan_offset_reset, group, target)
    return plan, digest_of(plan.to_document())


def propose_reset(
    actor: Actor, plant: str, group: str, target: str, hash: str, reason: str, now: datetime
) -> OffsetResetPlan:
    """Store a plan that waits for approval. Raise BadInput if the plan has changed since it was shown.

    hash: of the plan as shown.
    """
    read_reason(reason)
    plan, current = plan_reset(actor, plant, group, target)
    if current != hash:
        raise BadInput("hash", f"is outdated, because the offsets of {group[:100]} have changed. Plan the reset again.")
    with transaction.atomic():
        row = reset_plans.propose(plant, plan, current, actor.user, reason, now)
        after = {"group": row.group, "target": row.target, "hash": row.hash[:8], "plan": row.pk}
        audit_log.record(actor, "offsets.propose", plant, reason=row.reason, after=after)
    return row


def approve_reset(actor: Actor, plan: OffsetResetPlan, hash: str, reason: str, now: datetime) -> OffsetResetPlan:
    """Approve the plan that was shown, and execute it. A setting for each role may require a second approval first.

    The audit entry has the former offsets, as a target that undoes the reset. Raises BadInput if the offsets have
    changed since the plan was proposed.
    """
    require_permission(actor, "plant.scale", subjects=[f"plant/{plan.plant}"])
    read_reason(reason)
    check_approval(plan, hash, actor.user, now)
    with _open_kafka(plan.plant) as kafka:
        target = reset_plans.format_target(plan)
        current = call_within(order_seconds(), plan.plant, kafka.plan_offset_reset, plan.group, target)
        if drift := reset_plans.explain_drift(plan, current):
            raise BadInput("plan", f"is no longer valid: {drift} Plan the reset again.")
        with transaction.atomic():
            needed = count_required_approvals(actor)
            approved = reset_plans.approve(plan.pk, hash, actor.user, reason, now=now, needed=needed)
            after = {"plan": plan.pk, "hash": plan.hash[:8], "approvals": len(approved.approvals)}
            audit_log.record(actor, "offsets.approve", plan.plant, reason=reason.strip(), after=after)
        return approved if approved.state == State.PROPOSED else _execute(actor, kafka, approved, current, reason, now)


@transaction.atomic
def reject_reset(actor: Actor, plan: OffsetResetPlan, reason: str, now: datetime) -> OffsetResetPlan:
    """Reject a plan permanently."""
    require_permission(actor, "plant.scale", subjects=[f"plant/{plan.plant}"])
    rejected = reset_plans.reject(plan.pk, actor.user, reason, now=now)
    audit_log.record(actor, "offsets.reject", plan.plant, reason=reason.strip(), after={"plan": plan.pk})
    return rejected


def describe_reset(plan: OffsetResetPlan) -> OffsetResetDocument:
    """Return a plan as pages and the API show it."""
    partitions = reset_plans.list_partitions(plan)
    return OffsetResetDocument(
        id=plan.pk,
        plant=plan.plant,
        group=plan.group,
        target=plan.target,
        state=plan.state,
        partitions=partitions,
        skipped=plan.skipped,
        again=plan.again,
        undo=format_former_offsets(partitions),
        hash=plan.hash,
        reason=plan.reason,
        note=plan.note,
        owner=plan.owner.get_username() if plan.owner else "",
        approvals=plan.approvals,
        created_at=plan.created_at,
        expires_at=plan.expires_at,
        ended_at=plan.ended_at,
        can_approve=plan.state == State.PROPOSED,
    )


def format_former_offsets(partitions: Sequence[PartitionReset]) -> str:
    """Return the offsets before the reset as a target: orders/0=90,orders/1=95."""
    return ",".join(f"{row.topic}/{row.partition}={row.now}" for row in partitions if row.now is not None)


def _execute(
    actor: Actor, kafka: KafkaPlant, plan: OffsetResetPlan, current: OffsetReset, reason: str, now: datetime
) -> OffsetResetPlan:
    before = {"group": plan.group, "target": format_former_offsets(current.partitions)}
    after = {"group": plan.group, "target": plan.target, "skipped": plan.skipped, "again": plan.again}
    try:
        with audit_log.record_attempt(
            actor, "plant.offsets", plan.plant, reason=reason.strip(), before=before, after=after
        ):
            call_within(order_seconds(), plan.plant, kafka.execute_offset_reset, current)
    except Exception as error:
        reset_plans.end(plan.pk, State.FAILED, str(error) or type(error).__name__, now=now)
        raise
    return reset_plans.end(plan.pk, State.DONE, "", now=now)


@contextmanager
def _open_kafka(plant: str) -> Iterator[KafkaPlant]:
    row = RegisteredPlant.objects.filter(name=plant).first()
    if row is None:
        raise BadInput("plant", f"{plant[:60]} is not registered.")
    if row.kind != KIND:
        raise BadInput("plant", f"{plant} is not a Kafka cluster, so it has no offsets.")
    with adapters.open_bounded(row) as bounded:
        assert isinstance(bounded.adapter, KafkaPlant)
        yield bounded.adapter
