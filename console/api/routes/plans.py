"""Plans of moved points: read, proposed, approved by their hash, rejected, and stopped."""

from typing import Annotated, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.errors import BadInput
from common.stored_document import describe
from console.actions.proposals import plans
from console.api.request.answers import Router, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, Reason, RequestBody, check_rows
from console.connections.control_server import control, load_latest_snapshot
from console.input.form_values import Id
from workers.documents.plans import PlanDocument
from workers.models import Plan
from workers.placement.plans import build_plan_document
from workers.steering.overrides import Expiry

router = Router(tags=["plans"])


class PlanList(TypedDict):
    plans: list[PlanDocument]


class NodeUse(TypedDict):
    node: str
    plan: Annotated[PlanDocument | None, describe("The plan that drains the node.")]


class Goal(RequestBody):
    """below-busy: the fewest points until no node is busy; band: the fewest moves into the band."""

    goal: str = "below-busy"


class Approval(RequestBody):
    """`hash` is that of the plan as it was read."""

    hash: str
    reason: str


class Points(RequestBody):
    """{node: points}, 1000 in all; omitted nodes get none."""

    points: dict[str, int]
    reason: str


class Use(RequestBody):
    """use: drain, cordon, return, or give-back. A cordon ends after `minutes` or at `expires_at`, if one is given."""

    use: str
    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None


@router.get("/plans", summary="List plans, newest first")
def list_plans(request: HttpRequest, state: str = "", rows: int = 50) -> PlanList:
    """Return plans, filtered by `state` if given."""
    actor_for(request, "plant.view")
    if state and state not in Plan.State.values:
        raise BadInput("state", f"must be one of {', '.join(Plan.State.values)}, not {state!r}.")
    check_rows(rows)
    chosen = Plan.objects.select_related("owner").order_by("-pk")
    if state:
        chosen = chosen.filter(state=state)
    return {"plans": [plan_row(plan) for plan in chosen[:rows]]}


@router.get("/plans/{plan_id}", summary="Get a plan, its moves, and its progress")
def get_plan(request: HttpRequest, plan_id: Id) -> PlanDocument:
    actor_for(request, "plant.view")
    return plan_row(_find_plan(plan_id))


@router.post("/plans", summary="Propose a plan; no points move before its approval")
def propose_plan(request: HttpRequest, body: Goal) -> PlanDocument:
    actor = actor_for(request, "plan.propose")
    return plan_row(plans.propose_rebalance(actor, body.goal, load_latest_snapshot(), timezone.now()))


@router.post("/plans/{plan_id}/approve", summary="Approve a plan by its hash; it starts within 1 s")
def approve_plan(request: HttpRequest, plan_id: Id, body: Approval) -> PlanDocument:
    actor = actor_for(request, "plan.approve")
    made = plans.approve(actor, _find_plan(plan_id), body.hash, body.reason, load_latest_snapshot(), timezone.now())
    return plan_row(made)


@router.post("/plans/{plan_id}/reject", summary="Reject a proposed plan")
def reject_plan(request: HttpRequest, plan_id: Id, body: Reason) -> PlanDocument:
    actor = actor_for(request, "plan.approve")
    return plan_row(plans.reject(actor, _find_plan(plan_id), body.reason, timezone.now()))


@router.post("/plans/{plan_id}/stop", summary=("Stop an approved or running plan; no further moves start"))
def stop_plan(request: HttpRequest, plan_id: Id, body: Reason) -> PlanDocument:
    actor = actor_for(request, "plan.stop")
    return plan_row(plans.stop(actor, _find_plan(plan_id), body.reason, timezone.now()))


@router.post("/plans/{plan_id}/roll-back", summary="Propose the rollback of a plan")
def roll_back_plan(request: HttpRequest, plan_id: Id, body: Reason) -> PlanDocument:
    actor, snapshot = actor_for(request, "plan.propose"), load_latest_snapshot()
    return plan_row(plans.roll_back(actor, _find_plan(plan_id), body.reason, snapshot, timezone.now()))


@router.post("/queues/{queue}/points", summary="Propose new points for a queue (1,000 in total)")
def propose_points(request: HttpRequest, queue: str, body: Points) -> PlanDocument:
    actor, snapshot = actor_for(request, "plan.propose"), load_latest_snapshot()
    made = plans.propose_points(actor, queue, body.points, body.reason, snapshot, timezone.now())
    return plan_row(made)


@router.post("/nodes/{name}/use", summary="Drain a node, restore its points, cordon it, or return it to service")
def change_node_use(request: HttpRequest, name: str, body: Use) -> NodeUse:
    actor, now = actor_for(request, "node.use"), timezone.now()
    makes_plan = {"drain": plans.propose_drain, "give-back": plans.propose_give_back}
    if body.use in makes_plan:
        made = makes_plan[body.use](actor, name, body.reason, load_latest_snapshot(), now)
        return {"node": name, "plan": plan_row(made)}
    if body.use == "cordon":
        endless = body.minutes is None and body.expires_at is None
        expiry = Expiry(minutes=body.minutes, expires_at=body.expires_at, endless=endless)
        plans.cordon(actor, name, body.reason, now, control(), expiry)
    elif body.use == "return":
        plans.take_back(actor, name, body.reason, now, control())
    else:
        raise BadInput("use", f"must be one of {', '.join(plans.USES)}, not {body.use[:40]!r}.")
    return {"node": name, "plan": None}


def plan_row(plan: Plan) -> PlanDocument:
    return build_plan_document(plan)


def _find_plan(plan_id: int) -> Plan:
    message = f"Plan {plan_id} is unknown. GET /api/v1/plans lists the plans."
    return get_or_404(Plan.objects.select_related("owner"), message, pk=plan_id)
