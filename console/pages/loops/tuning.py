"""Approve by hash, or reject, what was learned from a loop's record."""

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.parsing import parse_digits
from console.accounts.access import actor_of
from console.actions.proposals import tunings
from console.display.override_words import describe_end, describe_replaced_overrides
from console.input.form_values import parse_expiry
from console.pages.frame.action import ActionResult, declare_action
from console.pages.loops.loops import loop_page
from workers.models import Tuning


@declare_action("override.set", loop_page)
def decide(request: HttpRequest, loop_id: int) -> ActionResult:
    """Decide on a tuning. Posted: tuning (its number), decision (approve, reject), hash, reason, expiry."""
    number = request.POST.get("tuning", "")
    rows = Tuning.objects.select_related("loop").filter(loop=loop_id)
    tuning = get_object_or_404(rows, pk=parse_digits(number) or 0)
    actor, now, url = actor_of(request), timezone.now(), reverse("loop", args=[loop_id])
    reason = request.POST.get("reason", "")
    if request.POST.get("decision") == "reject":
        tunings.reject(actor, tuning, reason, now)
        return ActionResult(f"Tuning {tuning.pk} was rejected; nothing was changed.", url, {"tuning": tuning.pk})
    made = tunings.approve(
        actor, tuning, request.POST.get("hash", ""), reason=reason, now=now, expiry=parse_expiry(request.POST)
    )
    what = f"The values of tuning {tuning.pk} are in force {describe_end(made[0])}.{describe_replaced_overrides(made)}"
    return ActionResult(what, url, {"overrides": [override.pk for override in made]})
