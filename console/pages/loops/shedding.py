"""Set another bound, or other weights of the sinks, for a shedding loop, whose page has previewed them."""

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions import loops
from console.display.override_words import instead_words
from console.input.form_values import expiry_of
from console.pages.frame.action import Done, action
from console.pages.loops.loops import loop_page
from console.pages.loops.shedding_view import changes_of, load_observation
from controllers.shedding.law import LAW
from workers.models import Loop
from workers.steering import overrides
from workers.steering.scope import Scope


@action("override.set", loop_page)
def weigh(request: HttpRequest, loop_id: int) -> Done:
    """Put the requested bound and weights in force. Posted: them, reason, expiry."""
    loop, now = get_object_or_404(Loop, pk=loop_id, law=LAW.name), timezone.now()
    effective = overrides.effective_parameters(LAW, loop.parameters, overrides.list_effective(loop, now), now)
    changes = changes_of(request.POST, effective, load_observation(loop))
    made = loops.override(
        actor_of(request),
        Scope(loop),
        changes,
        reason=request.POST.get("reason", ""),
        now=now,
        expiry=expiry_of(request.POST),
    )
    return Done(
        f"A new table is calculated at the next decision.{instead_words(made)}",
        reverse("loop", args=[loop_id]),
        {"overrides": [table.pk for table in made]},
    )
