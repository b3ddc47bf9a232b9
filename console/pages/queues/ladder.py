"""How far a queue's remedy ladder may go: set on the queue's page."""

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions.queues import ladders
from console.pages.frame.action import ActionResult, declare_action, text_of
from console.pages.queues.queues import queue_page
from controllers.shedding.ladder import LEVELS


@declare_action("ladder.cap", queue_page)
def cap(request: HttpRequest, name: str) -> ActionResult:
    """Limit a queue's ladder without expiry. Posted: cap (a level), reason."""
    reason = text_of(request, "reason", "give a reason for the audit log")
    highest = text_of(request, "cap", f"choose one of {', '.join(LEVELS)}")
    ladders.set_cap(actor_of(request), name, highest, reason=reason, now=timezone.now())
    said = f"{name} may shed again" if highest == LEVELS[-1] else f"{name} is limited to level {highest}"
    return ActionResult(f"{said}, from the next decision on.", reverse("queue", args=[name]))
