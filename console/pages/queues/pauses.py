"""Pauses of a queue's intake or consumption, from its page."""

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions.queues import stops
from console.connections.control_server import control
from console.display.override_words import describe_end, describe_replaced_overrides
from console.input.form_values import parse_expiry
from console.pages.frame.action import ActionResult, declare_action, text_of
from console.pages.queues.queues import queue_page
from queues import pausing

MEANS = {
    pausing.INTAKE: "publishers are rejected and asked to retry",
    pausing.CONSUMPTION: "waiting events stay in the queue; blocks in progress are finished",
}


@declare_action("queue.pause", queue_page)
def pause(request: HttpRequest, name: str) -> ActionResult:
    """Pause a queue. Posted: part (intake or consumption), reason, expiry."""
    part = text_of(request, "part", f"choose {' or '.join(pausing.PARTS)}")
    made = stops.pause_queue(
        actor_of(request),
        name,
        part,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(request.POST),
        control=control(),
    )
    replaced = describe_replaced_overrides([made])
    said = f"{part.capitalize()} of {name} is paused {describe_end(made)}: {MEANS[part]}.{replaced}"
    return ActionResult(said, reverse("queue", args=[name]), {"overrides": [made.pk]})
