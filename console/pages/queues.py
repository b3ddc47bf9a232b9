"""Queue pages, and what can be done about dead letters."""

import functools
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from console import audit, dead_letters
from console.access import actor_of, demand, requires
from console.pages.action import Done, action, text_of, wants_json
from console.pages.frame import show, snapshot_of
from queues.errors import BadInput
from queues.models import Node, Queue


@require_safe
@requires("plant.view")
def queues(request: HttpRequest) -> HttpResponse:
    return show(request, "queues.html", "queues")


@require_safe
@requires("plant.view")
def queue(request: HttpRequest, name: str) -> HttpResponse:
    """Context: name, queue (as configured), row (its part of the snapshot, or None), division, dead_letters,
    errors.
    """
    return queue_page(request, name)


def queue_page(request: HttpRequest, name: str, errors: Any = None, submitted: Any = None) -> HttpResponse:
    found = get_object_or_404(Queue, name=name)
    letters = dead_letters.letters_of(found)
    return show(
        request,
        "queue.html",
        "queues",
        name=name,
        queue=found,
        row=((snapshot_of(request) or {}).get("queues") or {}).get(name),
        division=division_of(found, snapshot_of(request)),
        dead_letters=letters.found,
        unreachable=letters.unreachable,
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
    return "offline" if seen is not None and seen["state"] == "OFFLINE" else ""


@require_http_methods(["GET", "HEAD", "POST"])
@requires("plant.view")
def letters(request: HttpRequest, name: str) -> HttpResponse:
    """GET: the letters as JSON, or their place on the queue's page. POST: requeue or discard them."""
    if request.method == "POST":
        return change_letters(request, name=name)
    found = get_object_or_404(Queue, name=name)
    if not wants_json(request):
        return redirect(reverse("queue", args=[name]) + "#dead-letters")
    page = dead_letters.letters_of(found)
    return JsonResponse({"dead_letters": [vars(x) for x in page.found], "unreachable": page.unreachable})


@action("dead_letters.requeue", queue_page)
def change_letters(request: HttpRequest, name: str) -> Done:
    """Posted: action (requeue, discard), letter (repeated) or all=1, reason; to discard, confirm (name)."""
    wanted = request.POST.get("action", "")
    if wanted not in ("requeue", "discard"):
        raise BadInput("action", "takes requeue or discard.")
    found = get_object_or_404(Queue, name=name)
    actor = actor_of(request)
    demand(actor, f"dead_letters.{wanted}")
    reason = text_of(request, "reason", "say why, for whoever reads the audit")
    if wanted == "discard" and request.POST.get("confirm", "") != name:
        raise BadInput("confirm", f"takes the name {name}: what is discarded can't be brought back.")
    ids = dead_letters.every_id(found) if request.POST.get("all") else request.POST.getlist("letter")
    chosen = dead_letters.choose(found, ids)
    # Noted before it is done: a node that fails half-way must not leave a change that nobody is named for.
    noted = functools.partial(audit.record, actor, f"dead_letters.{wanted}", name, reason=reason)
    noted(before={"letters": ids[:50]})
    count = {"requeue": dead_letters.requeue, "discard": dead_letters.discard}[wanted](chosen)
    noted(after={"letters": len(ids), "changed": count})
    return Done(_sentence(wanted, len(ids), count, name), reverse("queue", args=[name]) + "#dead-letters")


def _sentence(wanted: str, letters_count: int, count: int, name: str) -> str:
    if wanted == "discard":
        return f"{count} of {letters_count} dead letters of {name} discarded."
    return f"{count} events of {letters_count} dead letters are in {name} again."
