"""Queues: created, changed, paused, and their waiting events; drained worker hosts."""

from typing import Annotated, Any, TypedDict

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Schema

from common.stored_document import Events, Instant, Seconds, describe
from console.actions import loops
from console.actions.queues import definitions as queue_definitions
from console.actions.queues import ladders, stops, waiting_events
from console.actions.queues.waiting_events import FEW_EVENTS, ORDERS, PeekRequest
from console.api.request.answers import Created, Document, Router, build_answer, convert
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, RequestBody
from console.api.routes.control import OverrideEnd, OverrideRow, build_override, build_override_end
from console.api.routes.dead_letters import DeadLetterEvent
from console.connections.control_server import control
from console.input.form_values import digest_of
from queues.durability import NAMES as DURABILITY_NAMES
from queues.durability import SUMMARY as DURABILITY_HELP
from queues.models import Queue
from queues.topology import KINDS
from workers.steering.overrides import Expiry
from workers.steering.scope import DRAINING, Scope

router = Router(tags=["queues"])


class WaitingEventRow(TypedDict):
    """A waiting event."""

    block: Annotated[str, describe("The ID of its block.")]
    inserted_at: Annotated[Instant, describe("Time by the node's clock.")]
    event: Annotated[DeadLetterEvent | None, describe("The event; null: the block can't be read.")]
    error: Annotated[str, describe("Why the block can't be read.")]


class WaitingEventList(TypedDict):
    """Events of one container."""

    queue: str
    node: str
    order: Annotated[str, describe(values=ORDERS)]
    events: list[WaitingEventRow]
    more: Annotated[bool, describe("Whether there may be more events.")]


class QueueDefinition(TypedDict):
    """The definition of a queue, without its points."""

    queue: str
    kind: Annotated[str, describe(values=KINDS)]
    handler: str
    handler_options: Document
    events_per_worker: Events
    tries: int
    handler_timeout_seconds: Seconds
    priority: int
    minimum_containers: int
    requirements: Annotated[list[str], describe("Capabilities that worker hosts need.")]
    durability: Annotated[str, describe(DURABILITY_HELP, values=DURABILITY_NAMES)]
    digest: Annotated[str, describe("Digest to send with a change.")]


class QueueDifference(TypedDict):
    """The fields that changed."""

    queue: str
    before: Document
    after: Document


class Peek(Schema):
    """node: of the container; order: newest or oldest first; events: at most 100."""

    node: str = ""
    order: str = ORDERS[0]
    events: int = FEW_EVENTS


@router.get("/queues/{queue}/waiting", summary="List waiting events of a queue")
def list_waiting_events(request: HttpRequest, queue: str, asked: Query[Peek]) -> WaitingEventList:
    """Return waiting events without changing anything; long texts are truncated. Recorded in the audit log."""
    actor = actor_for(request, "queue.peek")
    waiting = waiting_events.peek_at(actor, PeekRequest(queue, asked.node, asked.order, asked.events))
    return {
        "queue": queue,
        "node": asked.node,
        "order": asked.order,
        "events": [build_answer(WaitingEventRow, event) for event in waiting.events],
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
    requirements: list[str] | None = None
    durability: str | None = None

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


@router.post("/queues/{queue}/create", summary="Create a queue")
def create_queue(request: HttpRequest, queue: str, body: NewQueue) -> Created[QueueDefinition]:
    """Create a queue; return its definition. It is validated as topology; producers may publish to it at once."""
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
    return _load_definition(queue)


@router.get("/queues/{queue}/definition", summary=("Get the editable definition of a queue"))
def get_queue_definition(request: HttpRequest, queue: str) -> QueueDefinition:
    actor_for(request, "queue.define")
    return _load_definition(queue)


@router.post("/queues/{queue}/definition", summary="Change a queue")
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
        raise Http404(f"Queue {name} is unknown. GET /api/v1/queues lists the queues.")
    definition = queue_definitions.get_queue_definition(row)
    more = {"queue": name, "kind": row.kind, "digest": digest_of(definition)}
    return convert(QueueDefinition, {**definition, **more})


class ExpiryRequest(RequestBody):
    """It expires after `minutes`, or at `expires_at`."""

    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None


class PauseRequest(ExpiryRequest):
    """part: intake (publishers are rejected) or consumption (events wait)."""

    part: str


class Part(RequestBody):
    """part: intake or consumption."""

    part: str


@router.post("/queues/{queue}/pause", summary="Pause a queue")
def pause_queue(request: HttpRequest, queue: str, body: PauseRequest) -> Created[OverrideRow]:
    """Pause a queue; return the pause as an override, which can be ended or extended. No acknowledged event is lost."""
    actor, now = actor_for(request, "queue.pause"), timezone.now()
    made = stops.pause_queue(
        actor,
        queue,
        body.part,
        reason=body.reason,
        now=now,
        expiry=Expiry(body.minutes, body.expires_at),
        control=control(),
    )
    return build_override(made)


@router.post("/queues/{queue}/resume", summary="End a queue's pause now")
def resume_queue(request: HttpRequest, queue: str, body: Part) -> OverrideEnd:
    return _end_stop(request, Scope(queue=queue), body.part)


class CircuitRequest(ExpiryRequest):
    """circuit: open (workers make no calls) or closed (all first attempts; retries still wait for the retry budget)."""

    circuit: str


@router.post("/queues/{queue}/circuit", summary="Hold the circuit of a queue's destination open or closed")
def hold_circuit(request: HttpRequest, queue: str, body: CircuitRequest) -> Created[OverrideRow]:
    """Hold the circuit; return the hold as an override, which can be ended or extended."""
    actor, now = actor_for(request, "queue.circuit"), timezone.now()
    expiry = Expiry(body.minutes, body.expires_at)
    made = stops.hold_circuit(actor, queue, body.circuit, reason=body.reason, now=now, expiry=expiry, control=control())
    return build_override(made)


@router.post("/workers/{host}/drain", summary="Drain a worker host")
def drain_host(request: HttpRequest, host: str, body: ExpiryRequest) -> Created[OverrideRow]:
    """Let a host finish its work, and give it no new work. Return an override, which can be ended or extended."""
    actor, now = actor_for(request, "host.drain"), timezone.now()
    made = stops.drain_host(
        actor, host, reason=body.reason, now=now, expiry=Expiry(body.minutes, body.expires_at), control=control()
    )
    return build_override(made)


@router.post("/workers/{host}/return", summary=("Return a drained worker host to service"))
def return_host(request: HttpRequest, host: str) -> OverrideEnd:
    return _end_stop(request, Scope(host=host), DRAINING)


def _end_stop(request: HttpRequest, scope: Scope, name: str) -> OverrideEnd:
    actor, now = actor_for(request, "override.end"), timezone.now()
    stop = stops.find_active(scope, name, now)
    ended = loops.end_override(actor, stop, now=now, control=control())
    return build_override_end(stop, ended)


class LadderCap(TypedDict):
    """The highest level that the remedies of a queue may reach."""

    queue: str
    before: str
    after: str


class Cap(RequestBody):
    """cap: the highest level: rebalance, workers, nodes, throttle (never shed), or shed."""

    cap: str
    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None


@router.post("/queues/{queue}/cap", summary="Limit a queue's remedies; below shed, no events are lost")
def cap_ladder(request: HttpRequest, queue: str, body: Cap) -> LadderCap:
    """Return {queue, before, after}; in force from the ladder's next decision on, until its end if it has one."""
    actor = actor_for(request, "ladder.cap")
    endless = body.minutes is None and body.expires_at is None
    expiry = Expiry(minutes=body.minutes, expires_at=body.expires_at, endless=endless)
    before, after, _ = ladders.set_cap(actor, queue, body.cap, reason=body.reason, now=timezone.now(), expiry=expiry)
    return {"queue": queue, "before": before, "after": after}
