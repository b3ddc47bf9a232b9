"""Resets of the offsets of consumer groups at attached Kafka clusters: planned, proposed, approved by their hash."""

from typing import Annotated, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import describe
from console.actions import offset_resets
from console.actions.offset_resets import OffsetResetDocument
from console.api.request.answers import Router, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import Reason, RequestBody, check_rows
from console.api.routes.plans import Approval
from console.input.form_values import Id
from workers.plants.foreign.kafka.offset_reset import PartitionReset
from workers.plants.models import OffsetResetPlan

router = Router(tags=["plants"])


class OffsetTarget(RequestBody):
    """target: earliest, latest, a time with its zone, or topic/partition=offset, separated by commas."""

    group: str
    target: str


class ProposedOffsets(OffsetTarget):
    """hash: the hash in the answer to `offsets/plan`."""

    hash: str
    reason: str


class OffsetPlan(TypedDict):
    """A reset of a group's offsets. Events are counted by offsets, including compacted ones and markers."""

    group: str
    target: str
    partitions: list[PartitionReset]
    skipped: Annotated[int, describe("Events that the group would not read.")]
    again: Annotated[int, describe("Events that the group would read a second time.")]
    undo: Annotated[str, describe("The target that restores the former offsets.")]
    hash: Annotated[str, describe("Hash of the plan. A proposal of the reset requires it.")]


class OffsetResetList(TypedDict):
    resets: list[OffsetResetDocument]


@router.post("/plants/{plant}/offsets/plan", summary="Plan a reset of a consumer group's offsets; nothing is stored")
def plan_offset_reset(request: HttpRequest, plant: str, body: OffsetTarget) -> OffsetPlan:
    """Return what each partition would skip or read again, and the hash that a proposal requires."""
    plan, plan_hash = offset_resets.plan_reset(actor_for(request, "plant.scale"), plant, body.group, body.target)
    return {
        "group": plan.group,
        "target": plan.target,
        "partitions": list(plan.partitions),
        "skipped": plan.skipped,
        "again": plan.again,
        "undo": offset_resets.format_former_offsets(plan.partitions),
        "hash": plan_hash,
    }


@router.get("/plants/{plant}/offsets", summary="List resets of consumer groups' offsets, newest first")
def list_offset_resets(request: HttpRequest, plant: str, rows: int = 50) -> OffsetResetList:
    actor_for(request, "plant.view")
    check_rows(rows)
    resets = OffsetResetPlan.objects.select_related("owner").filter(plant=plant).order_by("-pk")[:rows]
    return {"resets": [offset_resets.describe_reset(reset) for reset in resets]}


@router.post("/plants/{plant}/offsets", summary="Propose a reset as planned; nothing changes before its approval")
def propose_offset_reset(request: HttpRequest, plant: str, body: ProposedOffsets) -> OffsetResetDocument:
    actor = actor_for(request, "plant.scale")
    reset = offset_resets.propose_reset(actor, plant, body.group, body.target, body.hash, body.reason, timezone.now())
    return offset_resets.describe_reset(reset)


@router.post("/plants/{plant}/offsets/{plan_id}/approve", summary="Approve a reset by its hash, and execute it")
def approve_offset_reset(request: HttpRequest, plant: str, plan_id: Id, body: Approval) -> OffsetResetDocument:
    """Execute the reset if the offsets are as planned. A setting for each role may require a second approval first."""
    actor = actor_for(request, "plant.scale")
    reset = offset_resets.approve_reset(actor, _find_plan(plant, plan_id), body.hash, body.reason, timezone.now())
    return offset_resets.describe_reset(reset)


@router.post("/plants/{plant}/offsets/{plan_id}/reject", summary="Reject a proposed reset")
def reject_offset_reset(request: HttpRequest, plant: str, plan_id: Id, body: Reason) -> OffsetResetDocument:
    actor = actor_for(request, "plant.scale")
    reset = offset_resets.reject_reset(actor, _find_plan(plant, plan_id), body.reason, timezone.now())
    return offset_resets.describe_reset(reset)


def _find_plan(plant: str, plan_id: int) -> OffsetResetPlan:
    message = f"Reset {plan_id} is unknown. GET /api/v1/plants/{plant}/offsets lists the resets."
    return get_or_404(OffsetResetPlan.objects.select_related("owner"), message, pk=plan_id, plant=plant)
