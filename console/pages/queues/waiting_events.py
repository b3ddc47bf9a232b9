"""Events that wait in one container of a queue."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from common.errors import BadInput, NodeUnavailable
from console.accounts.access import actor_of, requires
from console.actions.queues import waiting_events
from console.actions.queues.waiting_events import FEW_EVENTS, ORDERS, PeekRequest, WaitingEvents
from console.input.form_values import parse_number
from console.pages.frame.page import FormPage, render_page
from queues.models import Queue
from queues.segments.peek import MAX_EVENTS


@dataclass(frozen=True, kw_only=True)
class WaitingEventsPage(FormPage):
    """Waiting events of a container. waiting: None until requested, or if the node does not answer."""

    TEMPLATE, NAME = "queues/waiting_events.html", "queues"

    name: str
    nodes: Sequence[str]
    orders: Sequence[str]
    most_events: int
    waiting: WaitingEvents | None


@require_safe
@requires("queue.peek")
def show_waiting_events(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form, and with `node` the events: order (newest or oldest), events (maximum number)."""
    queue = get_object_or_404(Queue, name=name)
    waiting, errors, status = None, {}, 200
    if "node" in request.GET:
        try:
            waiting = waiting_events.peek_at(actor_of(request), _read_options(request, name))
        except BadInput as error:
            errors, status = {error.field: [error.message]}, 422
        except NodeUnavailable:
            said = "is not responding; its waiting events are kept."
            errors, status = {"node": [said]}, 503
    nodes = queue.containers.order_by("node__name").values_list("node__name", flat=True)
    page = WaitingEventsPage(
        name=name,
        nodes=list(nodes),
        orders=ORDERS,
        most_events=MAX_EVENTS,
        waiting=waiting,
        errors=errors,
        submitted={"order": ORDERS[0], "events": FEW_EVENTS, **request.GET.dict()},
    )
    return render_page(request, page, "frame", status)


def _read_options(request: HttpRequest, queue: str) -> PeekRequest:
    events = parse_number(request.GET.get("events", str(FEW_EVENTS)), "events")
    order = request.GET.get("order", ORDERS[0])
    return PeekRequest(queue, request.GET["node"], order, events)  # type: ignore[arg-type]
