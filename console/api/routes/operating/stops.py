"""Temporary stops: the intake or consumption of queues, and the work of worker hosts."""

from django.http import HttpRequest
from django.utils import timezone
from ninja import Status

from console.actions import loops
from console.actions.queues import stops
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.request.instant import GivenTime
from console.api.routes.control import build_override
from console.api.schemas.control import OverrideEnd, OverrideRow
from console.connections.control_server import control
from workers.steering.overrides import Expiry
from workers.steering.scope import DRAINING, Scope

router = Router(tags=["queues"])


class ExpiryRequest(RequestBody):
    """It expires after `minutes`, or at `expires_at`."""

    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None

    def build_expiry(self) -> Expiry:
        return Expiry(self.minutes, self.expires_at)


class PauseRequest(ExpiryRequest):
    """part: intake (publishers are rejected) or consumption (events wait)."""

    part: str


class Part(RequestBody):
    """part: intake or consumption."""

    part: str


@router.post("/queues/{queue}/pause", response={201: OverrideRow}, summary="Pause a queue")
def pause_queue(request: HttpRequest, queue: str, body: PauseRequest) -> Status[OverrideRow]:
    """Pause a queue; return the pause as an override, which can be ended early or extended.

    Nothing acknowledged is lost.
    """
    actor, now = actor_for(request, "queue.pause"), timezone.now()
    made = stops.pause_queue(
        actor, queue, body.part, reason=body.reason, now=now, expiry=body.build_expiry(), control=control()
    )
    return Status(201, build_override(made))


@router.post("/queues/{queue}/resume", response=OverrideEnd, summary="End a queue's pause now")
def resume_queue(request: HttpRequest, queue: str, body: Part) -> OverrideEnd:
    return _end_stop(request, Scope(queue=queue), body.part)


@router.post("/workers/{host}/drain", response={201: OverrideRow}, summary="Drain a worker host")
def drain_host(request: HttpRequest, host: str, body: ExpiryRequest) -> Status[OverrideRow]:
    """Give a host no new work, and let it finish running work.

    Return an override, which can be ended early or extended.
    """
    actor, now = actor_for(request, "host.drain"), timezone.now()
    made = stops.drain_host(actor, host, reason=body.reason, now=now, expiry=body.build_expiry(), control=control())
    return Status(201, build_override(made))


@router.post("/workers/{host}/return", response=OverrideEnd, summary=("Return a drained worker host to service"))
def return_host(request: HttpRequest, host: str) -> OverrideEnd:
    return _end_stop(request, Scope(host=host), DRAINING)


def _end_stop(request: HttpRequest, scope: Scope, name: str) -> OverrideEnd:
    actor, now = actor_for(request, "override.end"), timezone.now()
    stop = stops.find_active(scope, name, now)
    ended = loops.end_override(actor, stop, now=now, control=control())
    return {**build_override(stop), "ended": ended}
