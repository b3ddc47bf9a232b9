"""Loop pages: what steers, with which parameters, and what people put in their place."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.access import requires
from console.pages.frame import show
from workers.models import Loop

LATEST_ENTRIES = 50


@require_safe
@requires("plant.view")
def loops(request: HttpRequest) -> HttpResponse:
    """Context: loops (see `describe`)."""
    return show(
        request, "loops.html", "loops", loops=[describe(loop) for loop in Loop.objects.order_by("name")]
    )


@require_safe
@requires("plant.view")
def loop(request: HttpRequest, loop_id: int) -> HttpResponse:
    """Context: loop (see `describe`), parameters, guard, entries (last 50)."""
    found = get_object_or_404(Loop, pk=loop_id)
    entries = found.entries.order_by("-at")[:LATEST_ENTRIES]
    return show(
        request, "loop.html", "loops", loop=describe(found), parameters=[], guard=found.guard, entries=entries
    )


def describe(loop: Loop) -> dict[str, Any]:
    overrides = loop.overrides.filter(ended_at=None, expires_at__gt=timezone.now())
    return {
        "id": loop.pk,
        "name": loop.name,
        "law": loop.law,
        "target": loop.target,
        "base_mode": loop.mode,
        "mode": next((o.value for o in overrides if o.name == "mode"), loop.mode),
        "parameters": loop.parameters,
        "effective": loop.parameters,
        "overrides": list(overrides),
    }
