"""How far the remedy ladders of queues may go."""

from django.http import HttpRequest
from django.utils import timezone

from console.actions.queues import ladders
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.schemas.control import LadderCap

router = Router(tags=["queues"])


class Cap(RequestBody):
    """cap: the highest level: rebalance, workers, nodes, throttle (never shed), or shed."""

    cap: str
    reason: str


@router.post(
    "/queues/{queue}/cap", response=LadderCap, summary="Limit a queue's remedies; below shed, no events are lost"
)
def cap_ladder(request: HttpRequest, queue: str, body: Cap) -> LadderCap:
    """Return {queue, before, after}; in force from the ladder's next decision on."""
    actor = actor_for(request, "ladder.cap")
    before, after = ladders.set_cap(actor, queue, body.cap, reason=body.reason, now=timezone.now())
    return {"queue": queue, "before": before, "after": after}
