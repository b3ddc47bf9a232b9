"""Resets of the offsets of consumer groups at attached Kafka clusters: planned, approved by digest, and audited."""

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.input.form_values import digest_of
from workers.plants.foreign import adapters
from workers.plants.foreign.answer_limit import order_seconds
from workers.plants.foreign.bounded import call_within
from workers.plants.foreign.kafka.kafka_plant import KafkaPlant
from workers.plants.foreign.kafka.offset_reset import OffsetReset
from workers.plants.models import RegisteredPlant
from workers.steering.overrides import read_reason

KIND = "kafka"


def plan_reset(actor: Actor, plant: str, group: str, target: str) -> tuple[OffsetReset, str]:
    """Return the plan of a reset and its digest; change nothing.

    Raises `BadInput` that names plant, group, or target, and what an unavailable plant raises.
    """
    require_permission(actor, "plant.scale")
    with _open_kafka(plant) as kafka:
        plan = call_within(order_seconds(), plant, kafka.plan_offset_reset, group, target)
    return plan, digest_of(plan.to_document())


def execute_reset(actor: Actor, plant: str, group: str, target: str, digest: str, reason: str) -> OffsetReset:
    """Reset the offsets as approved: only if the plan of now has the approved digest.

    The audit entry has the former offsets, as a target that undoes the reset.
    """
    require_permission(actor, "plant.scale")
    why = read_reason(reason)
    with _open_kafka(plant) as kafka:
        plan = call_within(order_seconds(), plant, kafka.plan_offset_reset, group, target)
        if digest_of(plan.to_document()) != digest:
            raise BadInput("digest", f"is not that of the current plan of {group[:100]}; plan the reset again.")
        before = {"group": group, "target": format_former_offsets(plan)}
        after = {"group": group, "target": plan.target, "skipped": plan.skipped, "again": plan.again}
        with audit_log.record_attempt(actor, "plant.offsets", plant, reason=why, before=before, after=after):
            call_within(order_seconds(), plant, kafka.execute_offset_reset, plan)
    return plan


def format_former_offsets(plan: OffsetReset) -> str:
    """Return the offsets before the reset as a target: orders/0=90,orders/1=95."""
    return ",".join(f"{row.topic}/{row.partition}={row.now}" for row in plan.partitions if row.now is not None)


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
