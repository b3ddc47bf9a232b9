"""Messages of a Celery app's queue: viewed, and then moved, requeued, or deleted."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import plant_messages
from console.actions.plant_messages import PreviewedMessages
from console.input.form_values import parse_whole_number
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    open_page,
    render_page,
    text_of,
)
from console.pages.plant.plants import convert_plant_errors
from workers.plants.foreign.queue_messages import MAX_MESSAGES
from workers.plants.models import RegisteredPlant

FEW_MESSAGES = 20


@dataclass(frozen=True, kw_only=True)
class PlantMessagesPage(FormPage):
    """Messages that wait in a queue of a plant. preview: None until requested, or if the broker does not answer."""

    TEMPLATE, NAME = "plant/messages.html", "plants"

    plant: str
    queues: Sequence[str]
    marks_redelivered: bool  # whether the broker notes that messages were viewed
    preview: PreviewedMessages | None
    max_previewed: int
    max_messages: int


@declare_page("messages.move")
def messages_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form, and with `queue` its messages: count (maximum number)."""
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None or not plant_messages.has_messages(row.kind):
        raise Http404(f"No plant {name} with queues of a Celery app is registered.")
    preview, errors, status = None, {}, 200
    # A page that only replaces parts of itself must not read the messages again: RabbitMQ counts deliveries.
    if request.GET.get("queue") and not get_rejected_form(request).errors and "X-Weir-Parts" not in request.headers:
        try:
            with convert_plant_errors():
                count = parse_whole_number(request.GET.get("count", str(FEW_MESSAGES)), "count")
                preview = plant_messages.preview(actor_of(request), name, request.GET["queue"].strip(), count)
        except BadInput as error:
            errors, status = {error.field: [error.message]}, 422
    page = PlantMessagesPage(
        plant=name,
        queues=plant_messages.list_queue_names(name),
        marks_redelivered=row.url.startswith("amqp"),
        preview=preview,
        max_previewed=plant_messages.MAX_PREVIEWED,
        max_messages=MAX_MESSAGES,
        errors=errors,
        submitted={"count": FEW_MESSAGES, **request.GET.dict()},
    )
    return render_page(request, page, "frame", status)


@declare_action("messages.move", messages_page)
def act(request: HttpRequest, name: str) -> ActionResult:
    """Move, requeue, or delete messages.

    Posted: queue, action, count, reason; to move: destination; to delete: confirm (the name of the queue).
    """
    posted = request.POST
    with convert_plant_errors():
        report = plant_messages.act(
            actor_of(request),
            name,
            text_of(request, "queue", "Enter the name of a queue"),
            text_of(request, "action", "Choose an action"),
            parse_whole_number(text_of(request, "count", "Enter a whole number"), "count"),
            posted.get("reason", ""),
            posted.get("destination", "").strip(),
            posted.get("confirm", "").strip(),
        )
    return open_page(report.said, "plant-messages", name)
