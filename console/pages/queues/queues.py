"""Queue pages."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from console.accounts.access import requires
from console.actions import dead_letters
from console.pages.frame.frame import show, snapshot_of
from console.pages.queues.ladder_view import ladder_of
from controllers.shedding.ladder import LEVELS
from queues.models import Node, Queue
from queues.nodes.node_state import OFFLINE

LETTERS = 5


@require_safe
@requires("plant.view")
def queues(request: HttpRequest) -> HttpResponse:
    return show(request, "queues/queues.html", "queues", view="frame")


@require_safe
@requires("plant.view")
def queue(request: HttpRequest, name: str) -> HttpResponse:
    """Context: name, queue (as configured), row (its part of the snapshot, or None), division, dead_letters,
    ladder (`ladder_of`), errors.
    """
    return queue_page(request, name)


def queue_page(request: HttpRequest, name: str, errors: Any = None, submitted: Any = None) -> HttpResponse:
    found = get_object_or_404(Queue, name=name)
    letters = dead_letters.newest(found, LETTERS)
    return show(
        request,
        "queues/queue.html",
        "queues",
        view=f"queue:{name}",
        name=name,
        queue=found,
        row=((snapshot_of(request) or {}).get("queues") or {}).get(name),
        division=division_of(found, snapshot_of(request)),
        dead_letters=letters.letters,
        unreachable=letters.unreachable,
        ladder=ladder_of(name),
        rungs=LEVELS,
        errors=errors or {},
        submitted=submitted or {},
    )


def division_of(queue: Queue, snapshot: dict[str, Any] | None) -> list[dict[str, Any]]:
    """{node, points, closed} per node: its points as configured, and why it takes no more ("" if it does).

    What a plan is computed from are the points in the database, not those of the last snapshot.
    """
    held = dict(queue.containers.values_list("node__name", "points"))
    seen = (snapshot or {}).get("nodes", {})
    return [
        {"node": node.name, "points": held.get(node.name, 0), "closed": _closed(node, seen.get(node.name))}
        for node in Node.objects.order_by("name")
    ]


def _closed(node: Node, seen: dict[str, Any] | None) -> str:
    if node.drained:
        return "drained"
    if node.cordoned:
        return "cordoned"
    return "offline" if seen is not None and seen["state"] == OFFLINE else ""
