"""Queue pages."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from console.access import requires
from console.pages.frame import show, snapshot_of
from queues.models import Queue


@require_safe
@requires("plant.view")
def queues(request: HttpRequest) -> HttpResponse:
    return show(request, "queues.html", "queues")


@require_safe
@requires("plant.view")
def queue(request: HttpRequest, name: str) -> HttpResponse:
    """Context: name, queue (as configured), row (its part of the snapshot, or None), dead_letters."""
    found = get_object_or_404(Queue, name=name)
    row = ((snapshot_of(request) or {}).get("queues") or {}).get(name)
    return show(request, "queue.html", "queues", name=name, queue=found, row=row, dead_letters=[])
