"""Ends of manual changes, whatever their kind: authorized and audited by the action of each kind."""

import time
from datetime import datetime

import redis

from common.errors import BadInput
from common.parsing import parse_digits
from console.accounts.access import Actor
from console.actions import alerts, loops, pipelines, plant_control
from console.actions.proposals import plans
from console.actions.queues import ladders
from controllers.shedding.ladder import LEVELS
from queues.models import Node
from workers.alerts.lifecycle.models import Silence
from workers.documents.loops import ManualChange
from workers.documents.snapshot import Snapshot
from workers.models import Override
from workers.plants.foreign import adapters
from workers.plants.registry import LOCAL
from workers.plants.steered import PublishedPlant
from workers.steering.overrides import Expiry

# The permission that ends a change, by the first part of its key.
PERMISSIONS = {
    "override": "override.end",
    "cap": "ladder.cap",
    "node": "node.use",
    "tasks": "plant.scale",
    "criterion": "pipeline.steer",
    "stop": "pipeline.steer",
    "intervention": "plant.scale",
    "silence": "silence.end",
    "snooze": "alert.acknowledge",
}
EXTENDABLE = ("override",)
UNEXPLAINED = "Ended in the list of manual changes"


def find_change(snapshot: Snapshot | None, key: str) -> ManualChange | None:
    """Return the change of this key in the snapshot."""
    return next((change for change in (snapshot.hands if snapshot else ()) if change.key == key), None)


def end(
    actor: Actor,
    key: str,
    *,
    reason: str,
    now: datetime,
    control: redis.Redis,
    snapshot: Snapshot | None,
    anyway: bool = False,
) -> bool:
    """End a manual change now; return False if it had ended already.

    anyway: also if the snapshot says that ending it would hurt. Raises `BadInput` that names key or anyway, and what
    the action of its kind raises.
    """
    kind, _, name = key.partition("/")
    if kind not in PERMISSIONS or not name:
        raise BadInput("key", f"{key[:80]!r} is not a manual change; GET /api/v1/manual-changes lists them.")
    shown = find_change(snapshot, key)
    if shown is not None and shown.warning and not anyway:
        raise BadInput("anyway", f"is required: {shown.warning}")
    return _end_by_kind(actor, kind, name, reason, now, control)


def _end_by_kind(actor: Actor, kind: str, name: str, reason: str, now: datetime, control: redis.Redis) -> bool:
    why = reason.strip() or UNEXPLAINED
    first, _, rest = name.partition("/")
    if kind == "override":
        return loops.end_override(actor, _find_override(name), now=now, control=control, reason=reason)
    if kind == "silence":
        silence = Silence.objects.filter(pk=_parse_id(name)).first()
        if silence is None:
            raise BadInput("key", f"silence {name} does not exist.")
        return alerts.end_silence(actor, silence, now=now, reason=reason)
    if kind == "snooze":
        alerts.withdraw(actor, _parse_id(name), now=now, reason=reason)
    elif kind == "cap":
        ladders.set_cap(actor, name, LEVELS[-1], reason=why, now=now)
    elif kind == "node":
        if not Node.objects.filter(name=first).exists():
            raise BadInput("key", f"{first[:40]} is not a node.")
        plans.take_back(actor, first, why, now, control)
    elif kind == "tasks":
        return _release_tasks(actor, name, reason, control)
    elif kind == "criterion":
        pipelines.release_criterion(actor, first, rest, control, reason=reason)
    elif kind == "stop":
        pipelines.start(actor, name, why, control)
    else:
        intervention, _, subject = rest.partition("/")
        plant_control.undo_intervention(actor, first, intervention, subject, control, reason=why)
    return True


def _release_tasks(actor: Actor, plant: str, reason: str, control: redis.Redis) -> bool:
    published = PublishedPlant(control, time.time)
    if plant == LOCAL:
        return plant_control.end_hold(actor, published, plant, control, reason)
    with adapters.open_plant(plant, published, actor.name) as elastic:
        return plant_control.end_hold(actor, elastic, plant, control, reason)


def extend(actor: Actor, key: str, expiry: Expiry, *, now: datetime, control: redis.Redis) -> Override:
    """Extend a change, or give it an end. Raises `BadInput` that names key, minutes, or expires_at."""
    kind, _, name = key.partition("/")
    if kind not in EXTENDABLE:
        raise BadInput("key", f"{key[:80]!r} can't be extended; end it, and make the change again.")
    return loops.extend_override(
        actor, _find_override(name), now=now, control=control, minutes=expiry.minutes, expires_at=expiry.expires_at
    )


def _find_override(name: str) -> Override:
    override = Override.objects.select_related("loop", "node", "owner").filter(pk=_parse_id(name)).first()
    if override is None:
        raise BadInput("key", f"override {name[:40]} does not exist.")
    return override


def _parse_id(name: str) -> int:
    number = parse_digits(name)
    if number is None:
        raise BadInput("key", f"{name[:40]!r} is not a number.")
    return number
