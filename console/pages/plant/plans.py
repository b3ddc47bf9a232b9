"""Plans that move points: waiting, running, and finished ones, and everything that creates one."""

from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions.proposals import assistant_proposals
from console.actions.proposals import plans as planning
from console.connections.control_server import control
from console.input.form_values import parse_optional_expiry, parse_whole_number
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    call_page,
    declare_action,
    declare_page,
    render_page,
    report_overrides,
    text_of,
)
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


@declare_page("plant.view")
def plans_page(request: HttpRequest, plan_id: int | None = None) -> HttpResponse:
    """Show the list of plans, with one plan open."""
    rows = Plan.objects.select_related("owner")
    opened = None if plan_id is None else get_object_or_404(rows, pk=plan_id)
    snapshot = get_snapshot(request)
    waiting = rows.filter(state__in=OPEN).order_by("created_at", "pk")
    ended = Paginator(rows.exclude(state__in=OPEN).order_by("-created_at", "-pk"), PER_PAGE)
    page_obj = ended.get_page(request.GET.get("page"))
    approval = None
    if opened and actor_of(request).may("plan.approve"):
        needed = planning.count_required_approvals(actor_of(request))
        refusal = explain_approval_refusal(opened, actor_of(request).user)
        approval = VisitorApproval(needed, len(opened.approvals), refusal)
    elif opened:
        approval = VisitorApproval(1, len(opened.approvals), "")
    page = PlansPage(
        open_plans=[build_view(build_plan_document(waiting_plan), snapshot) for waiting_plan in waiting],
        ended=[build_view(build_plan_document(listed_plan), snapshot) for listed_plan in page_obj.object_list],
        page_obj=page_obj,
        plan=build_view(build_plan_document(opened), snapshot) if opened else None,
        approval=approval,
        undone_by=opened.undone_by.order_by("-pk").first() if opened else None,
        proposals_waiting=assistant_proposals.open_proposals(timezone.now()).count(),
    )
    return render_page(request, page)


def _open_plan(made: Plan, message: str) -> ActionResult:
    url = reverse("plan", args=[made.pk])
    return ActionResult(message, url, {"plan": made.pk, "go": url})


@declare_action("plan.propose", plans_page)
def rebalance(request: HttpRequest) -> ActionResult:
    """Propose a rebalancing and open the plan. Posted: goal (below-busy, band). An error says why nothing moves."""
    goal = request.POST.get("goal", "below-busy")
    made = planning.propose_rebalance(actor_of(request), goal, snapshot_of(request), timezone.now())
    return _open_plan(made, f"Plan {made.pk} waits for approval.")


def _show_use_again(request: HttpRequest) -> HttpResponse:
    """Show the page where the node was chosen: its own page if it is known, else the list."""
    name = request.POST.get("node", "")
    page = node_page if Node.objects.filter(name=name).exists() else nodes_page
    return call_page(page, request, name=name)


@declare_action("node.use", _show_use_again)
def use(request: HttpRequest) -> ActionResult:
    """Change the use of a node.

    Posted: node, use (drain, cordon, return, give-back), reason. A drain, or restoring points, creates a plan and opens
    it.
    """
    wanted, name = request.POST.get("use", ""), text_of(request, "node", "Choose a node")
    reason, now, actor = request.POST.get("reason", ""), timezone.now(), actor_of(request)
    if wanted == "drain":
        made = planning.propose_drain(actor, name, reason, snapshot_of(request), now)
        return _open_plan(made, f"Plan {made.pk} to drain {name} waits for approval.")
    if wanted == "give-back":
        made = planning.propose_give_back(actor, name, reason, snapshot_of(request), now)
        return _open_plan(made, f"Plan {made.pk} restores the points of {name}; it waits for approval.")
    if wanted == "cordon":
        held = planning.cordon(actor, name, reason, now, control(), parse_optional_expiry(request.POST))
        return report_overrides(f"{name} is cordoned: it keeps its points and gets no more.", held, "node", name)
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
        field.removeprefix(POINTS): parse_whole_number(text, field)
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
        # On the page, `points.n1` is the field points-n1.
        kind, _, node = error.field.partition(".")
        raise BadInput(POINTS + node, error.message) if kind == "points" and node else error from None
    return _open_plan(made, f"Plan {made.pk} waits for approval.")


@declare_action("plan.approve", plans_page)
def approve(request: HttpRequest, plan_id: int) -> ActionResult:
    """Approve a plan. Posted: hash (of the plan as shown), reason."""
    posted = request.POST
    made = planning.approve(
        actor_of(request),
        get_object_or_404(Plan, pk=plan_id),
        posted.get("hash", ""),
        posted.get("reason", ""),
        snapshot_of(request),
        timezone.now(),
    )
    said = (
        f"You approved plan {plan_id}. It starts when a second user approves it."
        if made.state == Plan.State.PROPOSED
        else f"Plan {plan_id} was approved. It starts within a second."
    )
    return ActionResult(said, reverse("plan", args=[plan_id]))


@declare_action("plan.approve", plans_page)
def reject(request: HttpRequest, plan_id: int) -> ActionResult:
    """Reject a plan. Posted: reason."""
    planning.reject(
        actor_of(request), get_object_or_404(Plan, pk=plan_id), request.POST.get("reason", ""), timezone.now()
    )
    return ActionResult(f"Plan {plan_id} was rejected. Nothing was moved.", reverse("plan", args=[plan_id]))


@declare_action("plan.stop", plans_page)
def stop(request: HttpRequest, plan_id: int) -> ActionResult:
    """Stop a plan. Posted: reason."""
    planning.stop(
        actor_of(request), get_object_or_404(Plan, pk=plan_id), request.POST.get("reason", ""), timezone.now()
    )
    return ActionResult(f"Plan {plan_id} was stopped; completed moves stay.", reverse("plan", args=[plan_id]))


@declare_action("plan.propose", plans_page)
def roll_back(request: HttpRequest, plan_id: int) -> ActionResult:
    """Roll back a plan: open a plan with the inverse moves. Posted: reason."""
    made = planning.roll_back(
        actor_of(request),
        get_object_or_404(Plan, pk=plan_id),
        request.POST.get("reason", ""),
        snapshot_of(request),
        timezone.now(),
    )
    return _open_plan(made, f"Plan {made.pk} rolls back plan {plan_id}; it waits for approval.")
