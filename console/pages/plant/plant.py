"""Pages that show the plant as it is: overview, nodes, workers, pipeline."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions.loops import THRESHOLDS, override_thresholds
from console.connections.control_server import control
from console.display.override_words import ending_of
from console.display.worst_first import worst_first
from console.input.form_values import expiry_of, number_of
from console.pages.frame.action import Done, action
from console.pages.frame.frame import show, snapshot_of
from console.pages.frame.past import time_shown
from queues.models import Node
from workers.models import LedgerEntry
from workers.steering.overrides import in_force

LATEST_DECISIONS = 8
WORST = 5


@require_safe
@requires("plant.view")
def overview(request: HttpRequest) -> HttpResponse:
    """Context: decisions (latest 8 that acted or were limited), worst (5 nodes and queues, worst first),
    worst_queues (for a phone, which lists the nodes above).
    """
    acted = LedgerEntry.objects.filter(at__lte=time_shown(request)).exclude(action=None, limited_by=None)
    return show(
        request,
        "plant/overview.html",
        "overview",
        view="flow",
        decisions=acted.select_related("loop").order_by("-at")[:LATEST_DECISIONS],
        worst=worst_first(snapshot_of(request))[:WORST],
        worst_queues=[row for row in worst_first(snapshot_of(request)) if row["kind"] == "queue"][:WORST],
    )


@require_safe
@requires("plant.view")
def nodes(request: HttpRequest) -> HttpResponse:
    """Context: errors (of an action on a node that is not known)."""
    return nodes_page(request)


def nodes_page(request: HttpRequest, errors: Any = None, submitted: Any = None) -> HttpResponse:
    return show(
        request, "plant/nodes.html", "nodes", view="nodes", errors=errors or {}, submitted=submitted or {}
    )


@require_safe
@requires("plant.view")
def node(request: HttpRequest, name: str) -> HttpResponse:
    """Context: name, node (as configured), row (its part of the snapshot, or None), held (queues that have a
    container here), overrides, errors.
    """
    return node_page(request, name)


def node_page(request: HttpRequest, name: str, errors: Any = None, submitted: Any = None) -> HttpResponse:
    found = get_object_or_404(Node, name=name)
    queues = (snapshot_of(request) or {}).get("queues") or {}
    return show(
        request,
        "plant/node.html",
        "nodes",
        view=f"node:{name}",
        name=name,
        node=found,
        row=((snapshot_of(request) or {}).get("nodes") or {}).get(name),
        held=[queue for queue, shown in queues.items() if name in shown["containers"]],
        overrides=in_force(time_shown(request)).filter(node=found).select_related("owner"),
        errors=errors or {},
        submitted=submitted or {},
    )


@action("node.thresholds", node_page)
def thresholds(request: HttpRequest, name: str) -> Done:
    """Posted: busy, toobusy (one or both; shares of capacity), reason, expiry."""
    found = get_object_or_404(Node, name=name)
    wanted = {
        key: number_of(request.POST[key], key) for key in THRESHOLDS if request.POST.get(key, "").strip()
    }
    made = override_thresholds(
        actor_of(request),
        found,
        wanted,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        control=control(),
        expiry=expiry_of(request.POST),
    )
    what = " and ".join(f"{each.name.removesuffix('_threshold')} at {each.value:g}" for each in made)
    message = f"{name} is {what} of capacity {ending_of(made[0])}."
    return Done(message, reverse("node", args=[name]), {"overrides": [each.pk for each in made]})


@require_safe
@requires("plant.view")
def workers(request: HttpRequest) -> HttpResponse:
    return show(request, "plant/workers.html", "workers")
