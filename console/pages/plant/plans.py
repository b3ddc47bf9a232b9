"""Plans that move points: waiting, running, and finished ones, and everything that creates one."""

from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from common.errors import BadInput
from console.accounts.access import Actor, actor_of, requires
from console.actions.proposals import assistant_proposals
from console.actions.proposals import plans as planning
from console.connections.control_server import control
from console.input.form_values import parse_number
from console.pages.frame.action import ActionResult, declare_action, text_of
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import Errors, FormPage, render_page
from console.pages.plant.plan_view import ShownPlan, build_view
from console.pages.plant.plant import node_page, nodes_page
from console.pages.queues.queues import queue_page
from queues.models import Node, Queue
from workers.models import Plan
from workers.placement.plans import OPEN, build_plan_document, explain_approval_refusal

PER_PAGE = 25
POINTS = "points-"  # the fields of a manual division: one for each node


@dataclass(frozen=True)
class VisitorApproval:
    """The effect of an approval by this user. refusal: why it would not count ("" if it does)."""

    needed: int
    approvals: int
    refusal: str


@dataclass(frozen=True, kw_only=True)
class PlansPage(FormPage):
    """All plans, and the open plan next to the list."""

    TEMPLATE, NAME = "plant/plans.html", "plans"

    open_plans: list[ShownPlan]  # the oldest first
    ended: list[ShownPlan]  # those of page_obj, the newest first
    page_obj: Page[Plan]
    query: str = ""
    plan: ShownPlan | None
    approval: VisitorApproval | None
    undone_by: Plan | None
    proposals_waiting: int  # of assistants


@require_safe
@requires("plant.view")
def plans(request: HttpRequest) -> HttpResponse:
    """Show the list of plans."""
    return plans_page(request)


@require_safe
@requires("plant.view")
def plan(request: HttpRequest, plan_id: int) -> HttpResponse:
    """Show the list with one plan open."""
    return plan_page(request, plan_id)


def plan_page(
    request: HttpRequest, plan_id: int, errors: Errors | None = None, submitted: QueryDict | None = None
) -> HttpResponse:
    shown_plan = get_object_or_404(Plan.objects.select_related("owner"), pk=plan_id)
    return plans_page(request, errors, submitted, opened=shown_plan)


def plans_page(
    request: HttpRequest, errors: Errors | None = None, submitted: QueryDict | None = None, opened: Plan | None = None
) -> HttpResponse:
    snapshot = get_snapshot(request)
    rows = Plan.objects.select_related("owner")
    waiting = rows.filter(state__in=OPEN).order_by("created_at", "pk")
    ended = Paginator(rows.exclude(state__in=OPEN).order_by("-created_at", "-pk"), PER_PAGE)
    page_obj = ended.get_page(request.GET.get("page"))
    page = PlansPage(
        open_plans=[build_view(build_plan_document(waiting_plan), snapshot) for waiting_plan in waiting],
        ended=[build_view(build_plan_document(listed_plan), snapshot) for listed_plan in page_obj.object_list],
        page_obj=page_obj,
        plan=build_view(build_plan_document(opened), snapshot) if opened else None,
        approval=_build_approval(actor_of(request), opened) if opened else None,
        undone_by=opened.undone_by.order_by("-pk").first() if opened else None,
        proposals_waiting=assistant_proposals.open_proposals(timezone.now()).count(),
        errors=errors or {},
        submitted=submitted or {},
    )
    return render_page(request, page)


def _build_approval(actor: Actor, plan: Plan) -> VisitorApproval:
    approvals = len(plan.approvals)
    if not actor.may("plan.approve"):
        return VisitorApproval(needed=1, approvals=approvals, refusal="")
    return VisitorApproval(
        planning.count_required_approvals(actor), approvals, explain_approval_refusal(plan, actor.user)
    )


def _open_plan(made: Plan, message: str) -> ActionResult:
    url = reverse("plan", args=[made.pk])
    return ActionResult(message, url, {"plan": made.pk, "go": url})


@declare_action("plan.propose", plans_page)
def rebalance(request: HttpRequest) -> ActionResult:
    """Propose a rebalancing and open the plan. Posted: goal (below-busy, band).

    The error "nothing to move" has the reason.
    """
    goal = request.POST.get("goal", "below-busy")
    made = planning.propose_rebalance(actor_of(request), goal, snapshot_of(request), timezone.now())
    return _open_plan(made, f"Plan {made.pk} waits for approval.")


def use_page(request: HttpRequest, **refusal: Any) -> HttpResponse:
    """Render the page where the node was chosen: its own page if it is known, else the list."""
    name = request.POST.get("node", "")
    if Node.objects.filter(name=name).exists():
        return node_page(request, name, **refusal)
    return nodes_page(request, **refusal)


@declare_action("node.use", use_page)
def use(request: HttpRequest) -> ActionResult:
    """Change the use of a node.

    Posted: node, use (drain, cordon, return, give-back), reason. A drain, or restoring points, creates a plan and opens
    it.
    """
    wanted, name = request.POST.get("use", ""), text_of(request, "node", "choose a node")
    reason, now, actor = request.POST.get("reason", ""), timezone.now(), actor_of(request)
    if wanted == "drain":
        made = planning.propose_drain(actor, name, reason, snapshot_of(request), now)
        return _open_plan(made, f"Plan {made.pk} to drain {name} waits for approval.")
    if wanted == "give-back":
        made = planning.propose_give_back(actor, name, reason, snapshot_of(request), now)
        return _open_plan(made, f"Plan {made.pk} restores the points of {name}; it waits for approval.")
    if wanted == "cordon":
        planning.cordon(actor, name, reason, now, control())
        return ActionResult(f"{name} is cordoned: it keeps its points and gets no more.", reverse("node", args=[name]))
    if wanted == "return":
        planning.take_back(actor, name, reason, now, control())
        return ActionResult(f"{name} is in service again; a plan may give it points.", reverse("node", args=[name]))
    raise BadInput("use", f"must be one of {', '.join(planning.USES)}, not {wanted[:40]!r}.")


@declare_action("plan.propose", queue_page)
def points(request: HttpRequest, name: str) -> ActionResult:
    """Propose a manual division of points and open the plan.

    Posted: points-NODE per node (1000 in all; missing is 0), reason, digest of the points as shown.
    """
    get_object_or_404(Queue, name=name)
    wanted = {
        field.removeprefix(POINTS): _parse_whole_number(text, field)
        for field in request.POST
        if field.startswith(POINTS) and (text := request.POST.get(field, "")).strip()
    }
    reason = request.POST.get("reason", "")
    try:
        made = planning.propose_points(
            actor_of(request),
            name,
            wanted,
            reason,
            snapshot_of(request),
            timezone.now(),
            digest=request.POST.get("digest", ""),
        )
    except BadInput as error:
        raise _move_error_to_field(error) from None
    return _open_plan(made, f"Plan {made.pk} waits for approval.")


def _parse_whole_number(text: str, field: str) -> int:
    value = parse_number(text, field)
    if not isinstance(value, int):
        raise BadInput(field, "must be a whole number.")
    return value


def _move_error_to_field(error: BadInput) -> BadInput:
    """Rename the error's field: `points.n1` is the field points-n1 on the page."""
    kind, _, node = error.field.partition(".")
    return BadInput(POINTS + node, error.message) if kind == "points" and node else error


def _find_plan(plan_id: int) -> Plan:
    return get_object_or_404(Plan, pk=plan_id)


@declare_action("plan.approve", plan_page)
def approve(request: HttpRequest, plan_id: int) -> ActionResult:
    """Approve a plan. Posted: hash (of the plan as shown), reason."""
    posted = request.POST
    made = planning.approve(
        actor_of(request),
        _find_plan(plan_id),
        posted.get("hash", ""),
        posted.get("reason", ""),
        snapshot_of(request),
        timezone.now(),
    )
    said = (
        f"You approved plan {plan_id}; it starts when a second user approves it."
        if made.state == Plan.State.PROPOSED
        else f"Plan {plan_id} was approved; it starts within a second."
    )
    return ActionResult(said, reverse("plan", args=[plan_id]))


@declare_action("plan.approve", plan_page)
def reject(request: HttpRequest, plan_id: int) -> ActionResult:
    """Reject a plan. Posted: reason."""
    planning.reject(actor_of(request), _find_plan(plan_id), request.POST.get("reason", ""), timezone.now())
    return ActionResult(f"Plan {plan_id} was rejected; nothing was moved.", reverse("plan", args=[plan_id]))


@declare_action("plan.stop", plan_page)
def stop(request: HttpRequest, plan_id: int) -> ActionResult:
    """Stop a plan. Posted: reason."""
    planning.stop(actor_of(request), _find_plan(plan_id), request.POST.get("reason", ""), timezone.now())
    return ActionResult(f"Plan {plan_id} was stopped; completed moves stay.", reverse("plan", args=[plan_id]))


@declare_action("plan.propose", plan_page)
def roll_back(request: HttpRequest, plan_id: int) -> ActionResult:
    """Roll back a plan: open a plan with the inverse moves. Posted: reason."""
    made = planning.roll_back(
        actor_of(request), _find_plan(plan_id), request.POST.get("reason", ""), snapshot_of(request), timezone.now()
    )
    return _open_plan(made, f"Plan {made.pk} rolls back plan {plan_id}; it waits for approval.")
