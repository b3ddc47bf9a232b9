"""Fairness of queues, and the weights of their keys."""

from typing import Annotated, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Instant, describe
from console.actions.queues import fairness
from console.api.request.answers import Router
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, RequestBody
from console.connections.control_server import control
from queues.fairness import FairnessSettings
from workers.steering.overrides import Expiry

router = Router(tags=["queues"])


class KeyWeightRow(TypedDict):
    """The weight of a key until its expiry."""

    key: str
    weight: Annotated[float, describe("Weight of the key, in shares of one ordinary key.")]
    expires_at: Instant
    reason: str
    by: str


class QueueFairness(TypedDict):
    """The fairness of a jobs queue."""

    queue: str
    enabled: bool
    ordinary_weight: Annotated[
        float | None, describe("Weight of the ordinary keys together, in shares of one key; null: disabled.")
    ]
    weights: list[KeyWeightRow]


class FairnessRequest(RequestBody):
    """ordinary_weight: weight of the ordinary keys together, about the number of active keys."""

    reason: str
    enabled: bool = True
    ordinary_weight: float = FairnessSettings().ordinary_weight


class WeightRequest(RequestBody):
    """weight: in shares of one ordinary key. It expires after `minutes`, or at `expires_at`."""

    key: str
    weight: float
    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None


class WeightEnd(RequestBody):
    key: str


@router.get("/queues/{queue}/fairness", summary="Get the fairness of a queue and the weights of its keys")
def get_fairness(request: HttpRequest, queue: str) -> QueueFairness:
    actor_for(request, "plant.view")
    return _load(queue)


@router.post("/queues/{queue}/fairness", summary="Enable or disable the fairness of a queue")
def change_fairness(request: HttpRequest, queue: str, body: FairnessRequest) -> QueueFairness:
    """Enable or disable fairness, and return the new state. If you disable it, all overrides of weights end."""
    actor, now = actor_for(request, "queue.fairness"), timezone.now()
    if body.enabled:
        fairness.enable(actor, queue, body.ordinary_weight, reason=body.reason, now=now, control=control())
    else:
        fairness.disable(actor, queue, reason=body.reason, now=now, control=control())
    return _load(queue)


@router.post("/queues/{queue}/weight", summary="Override the weight of a key of a fair queue")
def set_weight(request: HttpRequest, queue: str, body: WeightRequest) -> QueueFairness:
    """Override the weight of a key until its expiry, and return the fairness of the queue."""
    actor, now = actor_for(request, "queue.fairness"), timezone.now()
    expiry = Expiry(body.minutes, body.expires_at)
    fairness.set_weight(
        actor, queue, body.key, body.weight, reason=body.reason, now=now, expiry=expiry, control=control()
    )
    return _load(queue)


@router.post("/queues/{queue}/weight/end", summary="End the override of a key's weight now")
def end_weight(request: HttpRequest, queue: str, body: WeightEnd) -> QueueFairness:
    actor, now = actor_for(request, "queue.fairness"), timezone.now()
    fairness.end_weight(actor, queue, body.key, now=now, control=control())
    return _load(queue)


def _load(queue: str) -> QueueFairness:
    current = fairness.get_fairness(queue, timezone.now(), control())
    if current is None:
        return {"queue": queue, "enabled": False, "ordinary_weight": None, "weights": []}
    rows: list[KeyWeightRow] = [
        {
            "key": key,
            "weight": override.weight,
            "expires_at": override.until,
            "reason": override.reason,
            "by": override.by,
        }
        for key, override in sorted(current.overrides.items())
    ]
    return {"queue": queue, "enabled": True, "ordinary_weight": current.settings.ordinary_weight, "weights": rows}
