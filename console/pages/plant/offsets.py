"""Resets of the offsets of a Kafka cluster's consumer groups: planned, proposed, and approved by their hash."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import offset_resets
from console.actions.offset_resets import OffsetResetDocument
from console.actions.proposals.plans import count_required_approvals
from console.pages.frame.frame import snapshot_of
from console.pages.frame.page import (
    ActionResult,
    Errors,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
    text_of,
)
from console.pages.plant.plants import convert_plant_errors
from workers.placement.plans import explain_approval_refusal
from workers.plants.foreign.kafka.offset_reset import OffsetReset
from workers.plants.foreign.kafka.reset_plans import OPEN, State
from workers.plants.models import OffsetResetPlan, RegisteredPlant

MAX_ENDED = 20


@dataclass(frozen=True, kw_only=True)
class OpenReset:
    """A reset that waits for approval or execution. refusal: why an approval by this user would not count."""

    reset: OffsetResetDocument
    refusal: str
    is_last_approval: bool


@dataclass(frozen=True, kw_only=True)
class OffsetsPage(FormPage):
    """Resets of a cluster's groups. plan, plan_hash: the reset that the address requests, and its hash."""

    TEMPLATE, NAME = "plant/offsets.html", "plants"

    plant: str
    groups: Sequence[str]
    plan: OffsetReset | None
    plan_hash: str
    open_resets: list[OpenReset]
    ended: list[OffsetResetDocument]


@declare_page("plant.view")
def offsets_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the resets of a cluster; with `group` and `target` in the address, show the plan of that reset."""
    row = RegisteredPlant.objects.filter(name=name, kind=offset_resets.KIND).first()
    if row is None:
        raise Http404(f"No Kafka cluster {name} is registered.")
    fields = get_rejected_form(request).submitted or request.GET
    plan, plan_hash, errors = _plan(request, name, fields)
    snapshot = snapshot_of(request)
    seen = snapshot.plants.get(name) if snapshot else None
    resets = OffsetResetPlan.objects.select_related("owner").filter(plant=name)
    page = OffsetsPage(
        plant=name,
        groups=sorted(seen.groups) if seen else [],
        plan=plan,
        plan_hash=plan_hash,
        open_resets=[_describe_open(request, reset) for reset in resets.filter(state__in=OPEN).order_by("pk")],
        ended=[
            offset_resets.describe_reset(reset) for reset in resets.exclude(state__in=OPEN).order_by("-pk")[:MAX_ENDED]
        ],
        errors=errors,
        submitted={"target": "earliest", **fields.dict()},
    )
    return render_page(request, page, "frame")


@declare_action("plant.scale", offsets_page)
def propose(request: HttpRequest, name: str) -> ActionResult:
    """Propose a reset. Posted: group, target, hash (of the plan as shown), reason."""
    posted = request.POST
    with convert_plant_errors():
        reset = offset_resets.propose_reset(
            actor_of(request),
            name,
            text_of(request, "group", "Enter the name of a group"),
            text_of(request, "target", "Enter a target"),
            posted.get("hash", ""),
            posted.get("reason", ""),
            timezone.now(),
        )
    return _open_resets(name, f"Reset {reset.pk} waits for approval.")


@declare_action("plant.scale", offsets_page)
def approve(request: HttpRequest, name: str, plan_id: int) -> ActionResult:
    """Approve a reset, and execute it. Posted: hash (of the plan as shown), reason."""
    posted = request.POST
    with convert_plant_errors():
        reset = offset_resets.approve_reset(
            actor_of(request), _find(name, plan_id), posted.get("hash", ""), posted.get("reason", ""), timezone.now()
        )
    is_done = reset.state == State.DONE
    said = f"The offsets of {reset.group} were reset." if is_done else "A second user has to approve it."
    return _open_resets(name, f"You approved reset {plan_id}. {said}")


@declare_action("plant.scale", offsets_page)
def reject(request: HttpRequest, name: str, plan_id: int) -> ActionResult:
    """Reject a reset. Posted: reason."""
    offset_resets.reject_reset(actor_of(request), _find(name, plan_id), request.POST.get("reason", ""), timezone.now())
    return _open_resets(name, f"Reset {plan_id} was rejected. No offset was changed.")


def _plan(request: HttpRequest, name: str, fields: Any) -> tuple[OffsetReset | None, str, Errors]:
    actor = actor_of(request)
    if not fields.get("group") or not actor.may_somewhere("plant.scale"):
        return None, "", {}
    try:
        with convert_plant_errors():
            plan, plan_hash = offset_resets.plan_reset(actor, name, fields["group"].strip(), fields.get("target", ""))
    except BadInput as error:
        return None, "", {error.field: [error.message]}
    return plan, plan_hash, {}


def _describe_open(request: HttpRequest, reset: OffsetResetPlan) -> OpenReset:
    actor = actor_of(request)
    needed = count_required_approvals(actor) if actor.may("plant.scale") else 1
    return OpenReset(
        reset=offset_resets.describe_reset(reset),
        refusal=explain_approval_refusal(reset, actor.user),
        is_last_approval=len(reset.approvals) + 1 >= needed,
    )


def _find(name: str, plan_id: int) -> OffsetResetPlan:
    return get_object_or_404(OffsetResetPlan.objects.select_related("owner"), plant=name, pk=plan_id)


def _open_resets(name: str, message: str) -> ActionResult:
    url = reverse("plant-offsets", args=[name])
    return ActionResult(message, url, {"go": url})
