"""Plans of moved points: read, proposed, approved by their hash, rejected, and stopped."""

from django.http import Http404, HttpRequest
from django.utils import timezone

from common.errors import BadInput
from console.actions.proposals import plans
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import Reason, RequestBody
from console.api.request.rows import check_rows
from console.api.schemas.plans import NodeUse, PlanList, PlanRow
from console.connections.control_server import control, load_latest_snapshot
from console.input.row_id import Id
from workers.models import Plan
from workers.placement.plan_document import plan_document

router = Router(tags=["plans"])


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
    """use: drain, cordon, return, or give-back."""

    use: str
    reason: str


@router.get("/plans", response=PlanList, summary="List plans, newest first")
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


@router.get("/plans/{plan_id}", response=PlanRow, summary="Get a plan, its moves, and its progress")
def get_plan(request: HttpRequest, plan_id: Id) -> PlanRow:
    actor_for(request, "plant.view")
    return plan_row(_find_plan(plan_id))


@router.post("/plans", response=PlanRow, summary="Propose a plan; no points move before its approval")
def propose_plan(request: HttpRequest, body: Goal) -> PlanRow:
    actor = actor_for(request, "plan.propose")
    return plan_row(plans.propose_rebalance(actor, body.goal, load_latest_snapshot(), timezone.now()))


@router.post("/plans/{plan_id}/approve", response=PlanRow, summary="Approve a plan by its hash; it starts within 1 s")
def approve_plan(request: HttpRequest, plan_id: Id, body: Approval) -> PlanRow:
    actor = actor_for(request, "plan.approve")
    made = plans.approve(actor, _find_plan(plan_id), body.hash, body.reason, load_latest_snapshot(), timezone.now())
    return plan_row(made)


@router.post("/plans/{plan_id}/reject", response=PlanRow, summary="Reject a proposed plan")
def reject_plan(request: HttpRequest, plan_id: Id, body: Reason) -> PlanRow:
    actor = actor_for(request, "plan.approve")
    return plan_row(plans.reject(actor, _find_plan(plan_id), body.reason, timezone.now()))


@router.post(
    "/plans/{plan_id}/stop", response=PlanRow, summary=("Stop an approved or running plan; no further moves start")
)
def stop_plan(request: HttpRequest, plan_id: Id, body: Reason) -> PlanRow:
    actor = actor_for(request, "plan.stop")
    return plan_row(plans.stop(actor, _find_plan(plan_id), body.reason, timezone.now()))


@router.post("/plans/{plan_id}/roll-back", response=PlanRow, summary="Propose the rollback of a plan")
def roll_back_plan(request: HttpRequest, plan_id: Id, body: Reason) -> PlanRow:
    actor, snapshot = actor_for(request, "plan.propose"), load_latest_snapshot()
    return plan_row(plans.roll_back(actor, _find_plan(plan_id), body.reason, snapshot, timezone.now()))


@router.post("/queues/{queue}/points", response=PlanRow, summary="Propose new points for a queue (1,000 in total)")
def propose_points(request: HttpRequest, queue: str, body: Points) -> PlanRow:
    actor, snapshot = actor_for(request, "plan.propose"), load_latest_snapshot()
    made = plans.propose_points(actor, queue, body.points, body.reason, snapshot, timezone.now())
    return plan_row(made)


@router.post(
    "/nodes/{name}/use",
    response=NodeUse,
    summary="Drain a node, restore its points, cordon it, or return it to service",
)
def change_node_use(request: HttpRequest, name: str, body: Use) -> NodeUse:
    actor, now = actor_for(request, "node.use"), timezone.now()
    makes_plan = {"drain": plans.propose_drain, "give-back": plans.propose_give_back}
    if body.use in makes_plan:
        made = makes_plan[body.use](actor, name, body.reason, load_latest_snapshot(), now)
        return {"node": name, "plan": plan_row(made)}
    changes = {"cordon": plans.cordon, "return": plans.take_back}
    if body.use not in changes:
        raise BadInput("use", f"must be one of {', '.join(plans.USES)}, not {body.use[:40]!r}.")
    changes[body.use](actor, name, body.reason, now, control())
    return {"node": name, "plan": None}


def plan_row(plan: Plan) -> PlanRow:
    return convert(PlanRow, plan_document(plan))


def _find_plan(plan_id: int) -> Plan:
    plan = Plan.objects.select_related("owner").filter(pk=plan_id).first()
    if plan is None:
        raise Http404(f"Plan {plan_id} is unknown; GET /api/v1/plans lists the plans.")
    return plan
