"""Pages that create and change a queue: its handler, and the behavior of its workers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from common.errors import BadInput
from console.accounts.access import ConfirmationNeeded, actor_of, requires
from console.actions.queues import definitions as queue_definitions
from console.actions.queues.definitions import FIELDS
from console.connections.control_server import control
from console.input.form_values import digest_of, parse_number, parse_row_id
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
    text_of,
)
from queues.durability import DURABILITIES, Durability
from queues.models import Queue
from workers.consumer.registry import HANDLERS

NUMBERS = ("events_per_worker", "tries", "handler_timeout_seconds", "priority", "minimum_containers")


@dataclass(frozen=True, kw_only=True)
class QueueDefinitionPage(FormPage):
    """The definition of a queue; name: "" for a new one. fields: values of the form."""

    TEMPLATE, NAME = "queues/queue_definition.html", "queues"

    name: str
    kind: str
    kinds: Sequence[str]
    fields: Mapping[str, str]
    handlers: Sequence[str]
    durabilities: Sequence[Durability]
    digest: str


@declare_page("queue.define")
def new_page(request: HttpRequest) -> HttpResponse:
    """Show the form of a new queue."""
    empty = queue_definitions.get_queue_definition(Queue())
    return _render_definition(request, "", Queue.Kind.JOBS, empty)


@declare_page("queue.define")
def definition_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form that changes a queue."""
    queue = get_object_or_404(Queue, name=name)
    return _render_definition(request, name, queue.kind, queue_definitions.get_queue_definition(queue))


def _render_definition(request: HttpRequest, name: str, kind: str, now: Mapping[str, Any]) -> HttpResponse:
    submitted = get_rejected_form(request).submitted
    shown = {field: _format_value(now[field]) for field in FIELDS}
    typed = {field: str(submitted[field]) for field in FIELDS if field in submitted}
    page = QueueDefinitionPage(
        name=name,
        kind=kind,
        kinds=Queue.Kind.values,
        fields={**shown, **typed},
        handlers=sorted(HANDLERS),
        durabilities=list(DURABILITIES.values()),
        digest=digest_of(now),
    )
    return render_page(request, page, "frame")


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def read_fields(posted: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields as typed.

    An empty field keeps its value, but an empty `requirements` field removes all requirements. Raises `BadInput`
    that names the field.
    """
    given: dict[str, Any] = {}
    for name in FIELDS:
        text = posted.get(name, "").strip()
        if name == "requirements" and name in posted:
            given[name] = text.split()
        if name == "requirements" or not text:
            continue
        given[name] = parse_number(text, name) if name in NUMBERS else text
        if name == "handler_options":
            try:
                given[name] = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise BadInput(name, f"must be JSON ({str(error)[:80]}).") from None
            if not isinstance(given[name], dict):
                raise BadInput(name, 'must be a JSON object, such as {"rows": 500}.')
    return given


@require_POST
@requires("queue.define")
def preview(request: HttpRequest, name: str) -> HttpResponse:
    """Return what the posted form would change, as {"sentence", "rows"}; nothing is changed."""
    queue = get_object_or_404(Queue, name=name)
    try:
        previewed = queue_definitions.preview(actor_of(request), queue, read_fields(request.POST))
    except ConfirmationNeeded as needed:
        return JsonResponse({"sentence": str(needed), "rows": []})
    except BadInput as error:
        return JsonResponse({"sentence": f"{error.field.replace('_', ' ').capitalize()} {error.message}", "rows": []})
    lines = previewed.list_changed_lines()
    said = f"{len(lines)} field{'' if len(lines) == 1 else 's'} would change." if lines else "Nothing would change."
    return JsonResponse({"sentence": said, "rows": [{"title": line} for line in lines]})


@declare_action("queue.define", definition_page)
def change(request: HttpRequest, name: str) -> ActionResult:
    """Change a queue. Posted: the fields, digest (of the queue as shown), reason."""
    changed = queue_definitions.change(
        actor_of(request),
        name,
        read_fields(request.POST),
        digest=request.POST.get("digest", ""),
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        control=control(),
    )
    url = reverse("queue", args=[name])
    return ActionResult(f"{name} was changed: {'; '.join(changed.list_changed_lines())}.", url, {"go": url})


@declare_action("queue.define", definition_page)
def roll_back(request: HttpRequest, name: str) -> ActionResult:
    """Undo the last change of a queue. Posted: entry (of the audit log, as shown), reason."""
    changed = queue_definitions.roll_back(
        actor_of(request),
        name,
        parse_row_id(request.POST.get("entry", "")) or 0,
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        control=control(),
    )
    return ActionResult(
        f"Queue {name} was rolled back: {'; '.join(changed.list_changed_lines())}.", reverse("queue", args=[name])
    )


@declare_action("queue.define", new_page)
def create(request: HttpRequest) -> ActionResult:
    """Create a queue with equal points on all nodes that accept any. Posted: name, kind, the fields, reason."""
    name = text_of(request, "name", "Enter a name")
    queue_definitions.create(
        actor_of(request),
        name,
        request.POST.get("kind", ""),
        read_fields(request.POST),
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        control=control(),
    )
    url = reverse("queue", args=[name])
    return ActionResult(f"Queue {name} was created. Producers may publish to it.", url, {"go": url})
