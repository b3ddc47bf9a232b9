"""Queues: created, changed, and their waiting events."""

from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status

from console.actions.queues import definitions as queue_definitions
from console.actions.queues import waiting_events
from console.actions.queues.waiting_events import FEW_EVENTS, ORDERS, PeekRequest
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.schemas.operating import QueueDefinition, QueueDifference, WaitingEventList, WaitingEventRow
from console.connections.control_server import control
from console.input.shown_digest import digest_of
from queues.models import Queue

router = Router(tags=["queues"])


class Peek(Schema):
    """node: of the container; order: newest or oldest first; events: at most 100."""

    node: str = ""
    order: str = ORDERS[0]
    events: int = FEW_EVENTS


@router.get("/queues/{queue}/waiting", response=WaitingEventList, summary="List waiting events of a queue")
def list_waiting_events(request: HttpRequest, queue: str, asked: Query[Peek]) -> WaitingEventList:
    """Return waiting events without changing anything; long texts are truncated.

    Recorded in the audit log.
    """
    actor = actor_for(request, "queue.peek")
    waiting = waiting_events.peek_at(actor, PeekRequest(queue, asked.node, asked.order, asked.events))
    return {
        "queue": queue,
        "node": asked.node,
        "order": asked.order,
        "events": [convert(WaitingEventRow, vars(event)) for event in waiting.events],
        "more": waiting.more,
    }


class Definition(RequestBody):
    """The changeable part of a queue; omitted fields keep their values."""

    handler: str | None = None
    handler_options: dict[str, Any] | None = None
    events_per_worker: int | None = None
    tries: int | None = None
    handler_timeout_seconds: float | None = None
    priority: int | None = None
    minimum_containers: int | None = None

    def get_field_values(self) -> dict[str, Any]:
        given = self.dict(include=set(queue_definitions.FIELDS))
        return {name: value for name, value in given.items() if value is not None}


class NewQueue(Definition):
    """kind: jobs or pipeline; points by node: equal on all nodes that accept any by default."""

    kind: str
    reason: str
    points: dict[str, int] | None = None


class QueueEdit(Definition):
    """digest: of the queue as GET …/definition returned it."""

    digest: str
    reason: str


@router.post("/queues/{queue}/create", response={201: QueueDefinition}, summary="Create a queue")
def create_queue(request: HttpRequest, queue: str, body: NewQueue) -> Status[QueueDefinition]:
    """Create a queue; return its definition.

    It is validated as topology; producers may publish to it at once.
    """
    actor = actor_for(request, "queue.define")
    now = timezone.now()
    queue_definitions.create(
        actor,
        queue,
        body.kind,
        body.get_field_values(),
        points=body.points,
        reason=body.reason,
        now=now,
        control=control(),
    )
    return Status(201, _load_definition(queue))


@router.get("/queues/{queue}/definition", response=QueueDefinition, summary=("Get the editable definition of a queue"))
def get_queue_definition(request: HttpRequest, queue: str) -> QueueDefinition:
    actor_for(request, "queue.define")
    return _load_definition(queue)


@router.post("/queues/{queue}/definition", response=QueueDifference, summary="Change a queue")
def change_queue(request: HttpRequest, queue: str, body: QueueEdit) -> QueueDifference:
    """Change a queue; return what has changed. Points of a queue change by a plan: POST …/points."""
    actor = actor_for(request, "queue.define")
    changed = queue_definitions.change(
        actor,
        queue,
        body.get_field_values(),
        digest=body.digest,
        reason=body.reason,
        now=timezone.now(),
        control=control(),
    )
    return {"queue": queue, "before": changed.before, "after": changed.after}


def _load_definition(name: str) -> QueueDefinition:
    row = Queue.objects.filter(name=name).first()
    if row is None:
        raise Http404(f"Queue {name} is unknown; GET /api/v1/queues lists the queues.")
    definition = queue_definitions.get_queue_definition(row)
    more = {"queue": name, "kind": row.kind, "digest": digest_of(definition)}
    return convert(QueueDefinition, {**definition, **more})
