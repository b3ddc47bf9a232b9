"""Ends and extensions of manual changes, whatever their kind: authorized and audited by the action of each kind."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta

import redis

from common.errors import BadInput
from common.parsing import parse_digits
from console.accounts.access import ACTIONS, Actor
from console.accounts.identity_settings import ROLES
from console.actions import alerts, loops, pipelines, plant_control, windows
from console.actions.proposals import plans
from console.actions.queues import ladders
from controllers.shedding.ladder import LEVELS
from queues.models import Node
from workers.alerts.actions import MAX_SNOOZE_MINUTES
from workers.alerts.lifecycle.models import Alert, Silence
from workers.alerts.rules import silences
from workers.documents.loops import ManualChange
from workers.documents.snapshot import Snapshot
from workers.models import Override
from workers.plants import holding
from workers.plants.foreign import adapters
from workers.plants.plant import ElasticPlant
from workers.plants.registry import LOCAL
from workers.plants.steered import PublishedPlant
from workers.steering.overrides import Expiry
from workers.steering.plant_settings import get_setting_value
from workers.windows import occurrences
from workers.windows.models import PlannedWindow

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
    "window": "window.end",
    "snooze": "alert.acknowledge",
}
EXTENSION_MINUTES = (10, 30, 120, 480, 1_440)  # that forms offer
UNEXPLAINED = "Ended in the list of manual changes"


def find_required_role(actor: Actor, change: ManualChange, snapshot: Snapshot | None, action: str) -> str:
    """Return the role that an action on a change requires, if the actor may not do it; "": the actor may."""
    actions = [action, *(["freeze.manage"] if _is_freeze(change, snapshot) else [])]
    missing = [ACTIONS[required] for required in actions if not actor.may_somewhere(required)]
    return max(missing, key=ROLES.index, default="")


def _is_freeze(change: ManualChange, snapshot: Snapshot | None) -> bool:
    freezes = [window for window in snapshot.windows if window.kind == PlannedWindow.Kind.FREEZE] if snapshot else []
    return any(change.key == f"window/{freeze.id}" for freeze in freezes)


def find_change(snapshot: Snapshot | None, key: str) -> ManualChange | None:
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
        raise BadInput("key", f"{key[:80]!r} is not a manual change. GET /api/v1/manual-changes lists them.")
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
        return alerts.end_silence(actor, _find_silence(name), now=now, reason=reason)
    if kind == "window":
        window, local_start = _find_window(name, now)
        windows.end_occurrence(actor, window, local_start, reason=why, now=now)
    elif kind == "snooze":
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
    with _open_plant(actor, plant, control) as elastic:
        return plant_control.end_hold(actor, elastic, plant, control, reason)


def _open_plant(actor: Actor, plant: str, control: redis.Redis) -> AbstractContextManager[ElasticPlant]:
    published = PublishedPlant(control, time.time)
    return nullcontext(published) if plant == LOCAL else adapters.open_plant(plant, published, actor.name)


# --- extensions: of each kind of change that has an end --------------------------------------------------------------


def _extend_override(actor: Actor, name: str, expiry: Expiry, now: datetime, control: redis.Redis) -> datetime | None:
    return loops.extend_override(actor, _find_override(name), expiry, now=now, control=control).expires_at


def _extend_tasks(actor: Actor, name: str, expiry: Expiry, now: datetime, control: redis.Redis) -> datetime | None:
    with _open_plant(actor, name, control) as elastic:
        return plant_control.extend_hold(actor, elastic, name, control, expiry, now=now)


def _extend_criterion(actor: Actor, name: str, expiry: Expiry, now: datetime, control: redis.Redis) -> datetime | None:
    application, _, criterion = name.partition("/")
    return pipelines.extend_criterion(actor, application, criterion, expiry, now=now, control=control)


def _extend_intervention(
    actor: Actor, name: str, expiry: Expiry, now: datetime, control: redis.Redis
) -> datetime | None:
    plant, _, rest = name.partition("/")
    kind, _, subject = rest.partition("/")
    return plant_control.extend_intervention(actor, plant, kind, subject, expiry, now=now, control=control)


def _extend_silence(actor: Actor, name: str, expiry: Expiry, now: datetime, control: redis.Redis) -> datetime | None:
    return alerts.extend_silence(actor, _find_silence(name), expiry, now=now)


def _extend_window(actor: Actor, name: str, expiry: Expiry, now: datetime, control: redis.Redis) -> datetime | None:
    window, local_start = _find_window(name, now)
    return windows.extend_occurrence(actor, window, local_start, expiry, now=now)


def _extend_snooze(actor: Actor, name: str, expiry: Expiry, now: datetime, control: redis.Redis) -> datetime | None:
    alert = Alert.objects.filter(pk=_parse_id(name), snoozed_until__gt=now).first()
    if alert is None:
        raise BadInput("key", f"alert {name} is not snoozed any more.")
    minutes = (expiry.compute_later(alert.snoozed_until, now) - now).total_seconds() / 60
    return alerts.snooze(actor, alert.pk, minutes=minutes, now=now).snoozed_until


@dataclass(frozen=True)
class Extension:
    """The extension of changes of a kind. most: the latest end from now; None: as for overrides."""

    permission: str
    extend: Callable[[Actor, str, Expiry, datetime, redis.Redis], datetime | None]
    most: timedelta | None = None


# By the first part of a change's key. The other kinds of changes last until they are ended.
EXTENSIONS: Mapping[str, Extension] = {
    "override": Extension("override.extend", _extend_override),
    "tasks": Extension("plant.scale", _extend_tasks, timedelta(seconds=holding.MAX_SECONDS)),
    "criterion": Extension("pipeline.steer", _extend_criterion),
    "intervention": Extension("plant.scale", _extend_intervention),
    "silence": Extension("silence.set", _extend_silence, timedelta(minutes=silences.MAX_MINUTES)),
    "window": Extension("window.set", _extend_window, occurrences.MAX_EXTENSION),
    "snooze": Extension("alert.snooze", _extend_snooze, timedelta(minutes=MAX_SNOOZE_MINUTES)),
}


def extend(actor: Actor, key: str, expiry: Expiry, *, now: datetime, control: redis.Redis) -> datetime | None:
    """Extend a change, or give it an end; return the end. Raises `BadInput` that names key, minutes, or expires_at."""
    kind, _, name = key.partition("/")
    if kind not in EXTENSIONS or not name:
        raise BadInput("key", f"{key[:80]!r} can't be extended: it lasts until you end it.")
    return EXTENSIONS[kind].extend(actor, name, expiry, now, control)


def list_extension_minutes(change: ManualChange, now: datetime) -> list[int]:
    """Return the minutes by which a change can be extended, as a form offers them."""
    extension = EXTENSIONS.get(change.key.partition("/")[0])
    if extension is None:
        return []
    most = extension.most or timedelta(days=get_setting_value("override.maximum_days"))
    left_seconds = max(0.0, (change.until or 0.0) - now.timestamp())
    return [minutes for minutes in EXTENSION_MINUTES if left_seconds + 60.0 * minutes <= most.total_seconds()]


# --- records of changes ----------------------------------------------------------------------------------------------


def _find_override(name: str) -> Override:
    override = Override.objects.select_related("loop", "node", "owner").filter(pk=_parse_id(name)).first()
    if override is None:
        raise BadInput("key", f"override {name[:40]} does not exist.")
    return override


def _find_silence(name: str) -> Silence:
    silence = Silence.objects.filter(pk=_parse_id(name)).first()
    if silence is None:
        raise BadInput("key", f"silence {name} does not exist.")
    return silence


def _find_window(name: str, now: datetime) -> tuple[PlannedWindow, str]:
    """Return a window and the local start of its active occurrence."""
    window = PlannedWindow.objects.filter(pk=_parse_id(name)).first()
    active = occurrences.list_active(now, [window]) if window else []
    if window is None or not active:
        raise BadInput("key", f"planned window {name} is not active.")
    return window, active[0].local_start


def _parse_id(name: str) -> int:
    number = parse_digits(name)
    if number is None:
        raise BadInput("key", f"{name[:40]!r} is not a number.")
    return number
