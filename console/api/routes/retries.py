"""Retry plans of failed tasks at attached Celery apps, and the messages of their queues."""

from typing import TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.errors import BadInput
from console.actions import plant_messages, retries
from console.actions.plant_messages import MessagesReport, PreviewedMessages
from console.actions.retries import RetryPlanDocument, RetryPreview, RetryRequest
from console.api.request.answers import Router, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import Reason, RequestBody, check_rows
from console.input.form_values import Id
from workers.retries.items import PaceLimits
from workers.retries.models import RetryPlan
from workers.retries.plans import USUAL, State

router = Router(tags=["retries"])


class RetryPlanList(TypedDict):
    retries: list[RetryPlanDocument]


class RetrySelection(RequestBody):
    """`query` searches the task history of `plant`, such as `state:failed name:shop.pay since:2h`.

    `destination` is the queue of all messages; empty: each task's own. `with_succeeded` also retries tasks whose equal
    succeeded later.
    """

    plant: str
    query: str
    destination: str = ""
    with_succeeded: bool = False


class NewRetryPlan(RetrySelection):
    """`min_rate` and `max_rate` limit the pace, in tasks per second.

    `calls` names what the tasks call, such as `api.example:443`. Handlers and plans that call the same share one retry
    budget; empty: the plant has its own.
    """

    reason: str
    min_rate: float = USUAL.min_rate
    max_rate: float = USUAL.max_rate
    calls: str = ""


class RetryApproval(RequestBody):
    """`hash` is that of the plan as it was read."""

    hash: str
    reason: str


@router.get("/retries", summary="List retry plans, newest first")
def list_retries(request: HttpRequest, plant: str = "", state: str = "", rows: int = 50) -> RetryPlanList:
    """Return retry plans, of one plant or in one state if given."""
    actor_for(request, "plant.view")
    if state and state not in State.values:
        raise BadInput("state", f"must be one of {', '.join(State.values)}, not {state[:40]!r}.")
    check_rows(rows)
    chosen = RetryPlan.objects.select_related("owner").defer("items").order_by("-pk")
    chosen = chosen.filter(plant=plant) if plant else chosen
    chosen = chosen.filter(state=state) if state else chosen
    return {"retries": [retries.describe_plan(plan) for plan in chosen[:rows]]}


@router.post("/retries/preview", summary="Count the tasks that a retry plan would send, and those it would leave out")
def preview_retry(request: HttpRequest, body: RetrySelection) -> RetryPreview:
    actor = actor_for(request, "retry.propose")
    wanted = RetryRequest(body.plant, body.query, body.destination, body.with_succeeded)
    return retries.preview(actor, wanted, timezone.now())


@router.post("/retries", summary="Propose a retry plan; nothing is sent before its approval")
def propose_retry(request: HttpRequest, body: NewRetryPlan) -> RetryPlanDocument:
    actor = actor_for(request, "retry.propose")
    limits = PaceLimits(body.min_rate, body.max_rate, body.calls.strip())
    wanted = RetryRequest(body.plant, body.query, body.destination, body.with_succeeded, limits)
    return retries.describe_plan(retries.propose(actor, wanted, body.reason, timezone.now()))


@router.get("/retries/{plan_id}", summary="Get a retry plan and its progress")
def get_retry(request: HttpRequest, plan_id: Id) -> RetryPlanDocument:
    actor_for(request, "plant.view")
    return retries.describe_plan(_find_plan(plan_id))


@router.post("/retries/{plan_id}/approve", summary="Approve a retry plan by its hash; it starts within seconds")
def approve_retry(request: HttpRequest, plan_id: Id, body: RetryApproval) -> RetryPlanDocument:
    actor = actor_for(request, "retry.approve")
    plan = retries.approve(actor, _find_plan(plan_id), body.hash, body.reason, timezone.now())
    return retries.describe_plan(plan)


@router.post("/retries/{plan_id}/reject", summary="Reject a proposed retry plan")
def reject_retry(request: HttpRequest, plan_id: Id, body: Reason) -> RetryPlanDocument:
    actor = actor_for(request, "retry.approve")
    return retries.describe_plan(retries.reject(actor, _find_plan(plan_id), body.reason, timezone.now()))


@router.post("/retries/{plan_id}/pause", summary="Pause a retry plan; nothing more is sent until it is continued")
def pause_retry(request: HttpRequest, plan_id: Id, body: Reason) -> RetryPlanDocument:
    actor = actor_for(request, "retry.stop")
    return retries.describe_plan(retries.pause(actor, _find_plan(plan_id), body.reason))


@router.post("/retries/{plan_id}/resume", summary="Continue a paused retry plan, slowly at first")
def resume_retry(request: HttpRequest, plan_id: Id, body: Reason) -> RetryPlanDocument:
    actor = actor_for(request, "retry.approve")
    return retries.describe_plan(retries.resume(actor, _find_plan(plan_id), body.reason))


@router.post("/retries/{plan_id}/end", summary="End a retry plan; what was not sent yet is deleted from the broker")
def end_retry(request: HttpRequest, plan_id: Id, body: Reason) -> RetryPlanDocument:
    actor = actor_for(request, "retry.stop")
    return retries.describe_plan(retries.end(actor, _find_plan(plan_id), body.reason))


def _find_plan(plan_id: int) -> RetryPlan:
    message = f"Retry plan {plan_id} is unknown. GET /api/v1/retries lists the plans."
    return get_or_404(RetryPlan.objects.select_related("owner"), message, pk=plan_id)


class MessageSelection(RequestBody):
    """The oldest `count` messages of a queue of a Celery app."""

    queue: str
    count: int = 100


class MessageAction(MessageSelection):
    """`action`: move (to `destination`), requeue (to where they were dead-lettered from), or purge.

    To purge, `confirm` is the name of the queue.
    """

    action: str
    reason: str
    destination: str = ""
    confirm: str = ""


@router.post("/plants/{plant}/messages/preview", summary="View the oldest messages of a queue of a Celery app")
def preview_messages(request: HttpRequest, plant: str, body: MessageSelection) -> PreviewedMessages:
    """Return the messages that workers take next. The audit log records it. RabbitMQ marks them as redelivered."""
    return plant_messages.preview(actor_for(request, "messages.move"), plant, body.queue, body.count)


@router.post("/plants/{plant}/messages", summary="Move, requeue, or delete the oldest messages of a queue")
def act_on_messages(request: HttpRequest, plant: str, body: MessageAction) -> MessagesReport:
    actor = actor_for(request, "messages.move")
    return plant_messages.act(
        actor, plant, body.queue, body.action, body.count, body.reason, body.destination, body.confirm
    )
