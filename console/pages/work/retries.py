"""Retry plans on pages: the dry run of a search, open and ended plans, and one plan with its progress."""

from dataclasses import dataclass, replace

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import retries
from console.actions.proposals.plans import count_required_approvals
from console.actions.retries import RetryPlanDocument, RetryPreview, RetryRequest
from console.input.form_values import parse_number
from console.pages.frame.page import (
    ActionResult,
    Errors,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
)
from workers.placement.plans import explain_approval_refusal
from workers.retries.items import PaceLimits
from workers.retries.models import RetryPlan
from workers.retries.plans import OPEN, USUAL, State

PER_PAGE = 25


@dataclass(frozen=True, kw_only=True)
class RetriesPage(FormPage):
    """Retry plans, the dry run that the address requests, and the open plan next to the list."""

    TEMPLATE, NAME = "work/retries.html", "retries"

    plants: list[str]  # that have tasks to retry
    preview: RetryPreview | None
    fields: QueryDict  # of the form
    limits: PaceLimits
    open_plans: list[RetryPlanDocument]
    ended: list[RetryPlanDocument]  # those of page_obj, the newest first
    page_obj: Page[RetryPlan]
    query: str = ""
    plan: RetryPlanDocument | None
    approvals_needed: int
    refusal: str  # why an approval by this user would not count


@declare_page("plant.view")
def retries_page(request: HttpRequest, plan_id: int | None = None) -> HttpResponse:
    """Show the list of retry plans. With `plant` and `q` in the address, show the dry run of that search."""
    rows = RetryPlan.objects.select_related("owner").defer("items")
    opened = None if plan_id is None else get_object_or_404(rows, pk=plan_id)
    actor = actor_of(request)
    fields = get_rejected_form(request).submitted or request.GET
    preview, errors = _run_dry(request, fields)
    ended = Paginator(rows.exclude(state__in=OPEN).order_by("-pk"), PER_PAGE).get_page(request.GET.get("page"))
    page = RetriesPage(
        plants=retries.list_retryable_plants(),
        preview=preview,
        fields=fields,
        limits=USUAL,
        open_plans=[retries.describe_plan(plan) for plan in rows.filter(state__in=OPEN).order_by("pk")],
        ended=[retries.describe_plan(plan) for plan in ended.object_list],
        page_obj=ended,
        plan=retries.describe_plan(opened) if opened else None,
        approvals_needed=count_required_approvals(actor) if actor.may("retry.approve") else 1,
        refusal=explain_approval_refusal(opened, actor.user) if opened else "",
        errors=errors,
    )
    return render_page(request, page)


def _run_dry(request: HttpRequest, fields: QueryDict) -> tuple[RetryPreview | None, Errors]:
    if not fields.get("q") or not actor_of(request).may("retry.propose"):
        return None, {}
    try:
        return retries.preview(actor_of(request), _read_request(fields), timezone.now()), {}
    except BadInput as error:
        return None, {error.field: [error.message]}


def _read_request(fields: QueryDict) -> RetryRequest:
    return RetryRequest(
        str(fields.get("plant", "")),
        str(fields.get("q", "")),
        str(fields.get("destination", "")),
        bool(fields.get("with_succeeded")),
    )


@declare_action("retry.propose", retries_page)
def propose(request: HttpRequest) -> ActionResult:
    """Propose a plan and open it.

    Posted: plant, q, destination, with_succeeded, min_rate, max_rate, calls, reason.
    """
    posted = request.POST
    limits = PaceLimits(
        parse_number(posted.get("min_rate") or f"{USUAL.min_rate}", "min_rate"),
        parse_number(posted.get("max_rate") or f"{USUAL.max_rate}", "max_rate"),
        posted.get("calls", "").strip(),
    )
    wanted = replace(_read_request(posted), limits=limits)
    plan = retries.propose(actor_of(request), wanted, posted.get("reason", ""), timezone.now())
    return _open_plan(plan, f"Retry plan {plan.pk} waits for approval.")


@declare_action("retry.approve", retries_page)
def approve(request: HttpRequest, plan_id: int) -> ActionResult:
    """Approve a plan. Posted: hash (of the plan as shown), reason."""
    posted = request.POST
    plan = retries.approve(
        actor_of(request), _find(plan_id), posted.get("hash", ""), posted.get("reason", ""), timezone.now()
    )
    is_waiting = plan.state == State.PROPOSED
    said = "starts when a second user approves it" if is_waiting else "starts within seconds"
    return _open_plan(plan, f"You approved retry plan {plan_id}; it {said}.")


@declare_action("retry.approve", retries_page)
def reject(request: HttpRequest, plan_id: int) -> ActionResult:
    """Reject a plan. Posted: reason."""
    plan = retries.reject(actor_of(request), _find(plan_id), request.POST.get("reason", ""), timezone.now())
    return _open_plan(plan, f"Retry plan {plan_id} was rejected; nothing was sent.")


@declare_action("retry.stop", retries_page)
def pause(request: HttpRequest, plan_id: int) -> ActionResult:
    """Pause a plan. Posted: reason."""
    plan = retries.pause(actor_of(request), _find(plan_id), request.POST.get("reason", ""))
    return _open_plan(plan, f"Retry plan {plan_id} is paused.")


@declare_action("retry.approve", retries_page)
def resume(request: HttpRequest, plan_id: int) -> ActionResult:
    """Continue a paused plan. Posted: reason."""
    plan = retries.resume(actor_of(request), _find(plan_id), request.POST.get("reason", ""))
    return _open_plan(plan, f"Retry plan {plan_id} continues.")


@declare_action("retry.stop", retries_page)
def end(request: HttpRequest, plan_id: int) -> ActionResult:
    """End a plan. Posted: reason."""
    plan = retries.end(actor_of(request), _find(plan_id), request.POST.get("reason", ""))
    return _open_plan(plan, f"Retry plan {plan_id} ends; it sends nothing more.")


def _find(plan_id: int) -> RetryPlan:
    return get_object_or_404(RetryPlan.objects.select_related("owner"), pk=plan_id)


def _open_plan(plan: RetryPlan, message: str) -> ActionResult:
    url = reverse("retry-plan", args=[plan.pk])
    return ActionResult(message, url, {"plan": plan.pk, "go": url})
