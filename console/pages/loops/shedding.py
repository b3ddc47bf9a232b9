"""Set another bound, or other weights of the sinks, for a shedding loop, whose page has previewed them."""

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions import loops
from console.display.override_words import describe_replaced_overrides
from console.input.form_values import parse_expiry
from console.pages.frame.action import ActionResult, declare_action
from console.pages.loops.loops import loop_page
from console.pages.loops.shedding_view import load_observation, read_changed_parameters
from controllers.shedding.law import LAW
from workers.models import Loop
from workers.steering import overrides
from workers.steering.scope import Scope


@declare_action("override.set", loop_page)
def weigh(request: HttpRequest, loop_id: int) -> ActionResult:
    """Put the requested bound and weights in force. Posted: them, reason, expiry."""
    loop, now = get_object_or_404(Loop, pk=loop_id, law=LAW.name), timezone.now()
    effective = overrides.get_effective_parameters(LAW, loop.parameters, overrides.list_effective(loop, now), now)
    changes = read_changed_parameters(request.POST, effective, load_observation(loop))
    made = loops.override(
        actor_of(request),
        Scope(loop),
        changes,
        reason=request.POST.get("reason", ""),
        now=now,
        expiry=parse_expiry(request.POST),
    )
    return ActionResult(
        f"A new table is calculated at the next decision.{describe_replaced_overrides(made)}",
        reverse("loop", args=[loop_id]),
        {"overrides": [table.pk for table in made]},
    )
