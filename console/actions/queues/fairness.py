"""Fairness of a jobs queue and the weights of its keys, changed by people: authorized and audited.

All raise `PermissionDenied`, `BadInput` that names the field, and `redis.RedisError`.
"""

import math
from datetime import datetime
from typing import Any

import redis
from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from queues import fairness
from queues.events.block import MAX_TEXT
from queues.fairness import MAX_WEIGHT, MIN_WEIGHT, Fairness, FairnessSettings, KeyWeight
from queues.models import Queue
from workers.steering.overrides import Expiry, read_reason

MAX_KEYS = 100  # overridden keys of a queue: publishers and workers read all of them


def get_fairness(queue: str, now: datetime, control: redis.Redis) -> Fairness | None:
    """Return the fairness of a queue; None if it is disabled."""
    _check_queue(queue)
    return fairness.load_fairness(control, queue, now.timestamp())


@transaction.atomic
def enable(
    actor: Actor, queue: str, ordinary_weight: float, *, reason: str, now: datetime, control: redis.Redis
) -> None:
    """Enable fairness, or change the weight of the ordinary keys, in shares of one key."""
    require_permission(actor, "queue.fairness", [queue])
    before, why = get_fairness(queue, now, control), read_reason(reason)
    settings = FairnessSettings(ordinary_weight=_check_weight(ordinary_weight, "ordinary_weight"))
    after = {"ordinary_weight": settings.ordinary_weight}
    audit_log.record(actor, "queue.fairness", queue, reason=why, before=_describe(before), after=after)
    fairness.enable(control, queue, settings)


@transaction.atomic
def disable(actor: Actor, queue: str, *, reason: str, now: datetime, control: redis.Redis) -> None:
    """Disable fairness, and end the weights of all keys."""
    require_permission(actor, "queue.fairness", [queue])
    before, why = get_fairness(queue, now, control), read_reason(reason)
    audit_log.record(actor, "queue.fairness", queue, reason=why, before=_describe(before), after=None)
    fairness.disable(control, queue)


@transaction.atomic
def set_weight(
    actor: Actor,
    queue: str,
    key: str,
    weight: float,
    *,
    reason: str,
    now: datetime,
    expiry: Expiry,
    control: redis.Redis,
) -> None:
    """Override the weight of a key, in shares of one ordinary key, until the expiry."""
    require_permission(actor, "queue.fairness", [queue])
    current, why, until = get_fairness(queue, now, control), read_reason(reason), expiry.compute(now)
    if current is None:
        raise BadInput("queue", f"{queue} is not fair. Enable fairness first.")
    if not key or len(key) > MAX_TEXT:
        raise BadInput("key", f"must have 1 to {MAX_TEXT} characters.")
    if key not in current.overrides and len(current.overrides) >= MAX_KEYS:
        raise BadInput("key", f"{queue} already has {MAX_KEYS} overridden weights. End one of them first.")
    if until is None:
        raise BadInput("expires_at", "is missing. Set either minutes or expires_at.")
    checked = _check_weight(weight, "weight")
    before, after = _describe_weight(current, key), {"key": key, "weight": checked, "until": until.timestamp()}
    audit_log.record(actor, "queue.fairness.weight", queue, reason=why, before=before, after=after)
    for ended in fairness.list_ended_keys(control, queue, now.timestamp()):
        fairness.end_weight(control, queue, ended)
    made = KeyWeight(weight=checked, until=until.timestamp(), reason=why, by=actor.name)
    fairness.set_weight(control, queue, key, made)


@transaction.atomic
def end_weight(actor: Actor, queue: str, key: str, *, now: datetime, control: redis.Redis) -> None:
    """End the override of a key's weight now."""
    require_permission(actor, "queue.fairness", [queue])
    current = get_fairness(queue, now, control)
    if current is None or key not in current.overrides:
        raise BadInput("key", f"{key[:40]!r} has no overridden weight in {queue}. Reload the page.")
    audit_log.record(actor, "queue.fairness.weight", queue, before=_describe_weight(current, key), after=None)
    fairness.end_weight(control, queue, key)


def _check_queue(name: str) -> None:
    row = Queue.objects.filter(name=name).first()
    if row is None:
        raise BadInput("queue", f"{name[:40]!r} is not a queue. Choose a jobs queue.")
    if row.kind != Queue.Kind.JOBS:
        raise BadInput("queue", f"{name} is read by the pipeline. Only jobs queues can be fair.")


def _check_weight(weight: float, field: str) -> float:
    if not (math.isfinite(weight) and MIN_WEIGHT <= weight <= MAX_WEIGHT):
        raise BadInput(field, f"must be a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}.")
    return float(weight)


def _describe(current: Fairness | None) -> dict[str, Any] | None:
    if current is None:
        return None
    weights = {key: override.weight for key, override in current.overrides.items()}
    return {"ordinary_weight": current.settings.ordinary_weight, "weights": weights}


def _describe_weight(current: Fairness, key: str) -> dict[str, Any] | None:
    override = current.overrides.get(key)
    return None if override is None else {"key": key, "weight": override.weight, "until": override.until}
