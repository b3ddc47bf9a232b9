"""Pages that show the plant as it is: overview, nodes, workers, pipeline."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from console.access import requires
from console.pages.frame import show, snapshot_of
from console.pages.standing import worst_first
from queues.models import Node
from workers.models import LedgerEntry

LATEST_DECISIONS = 8
WORST = 5


@require_safe
@requires("plant.view")
def overview(request: HttpRequest) -> HttpResponse:
    """Context: decisions (latest 8 that acted or were limited), worst (5 nodes and queues, worst first)."""
    acted = LedgerEntry.objects.exclude(action=None, limited_by=None).select_related("loop")
    return show(
        request,
        "overview.html",
        "overview",
        decisions=acted.order_by("-at")[:LATEST_DECISIONS],
        worst=worst_first(snapshot_of(request))[:WORST],
    )


@require_safe
@requires("plant.view")
def nodes(request: HttpRequest) -> HttpResponse:
    return show(request, "nodes.html", "nodes")


@require_safe
@requires("plant.view")
def node(request: HttpRequest, name: str) -> HttpResponse:
    """Context: name, node (the configured row), row (its part of the snapshot, or None)."""
    found = get_object_or_404(Node, name=name)
    row = ((snapshot_of(request) or {}).get("nodes") or {}).get(name)
    return show(request, "node.html", "nodes", name=name, node=found, row=row)


@require_safe
@requires("plant.view")
def workers(request: HttpRequest) -> HttpResponse:
    return show(request, "workers.html", "workers")


@require_safe
@requires("plant.view")
def pipeline(request: HttpRequest) -> HttpResponse:
    return show(request, "pipeline.html", "pipeline")
