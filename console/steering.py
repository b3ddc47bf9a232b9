"""What people do to loops and nodes: one way for pages and API, authorised and audited.

Each function asks whether the actor may, changes, and writes the audit in the same transaction: all of it
happens or nothing. All raise PermissionDenied, and BadInput naming the field.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import redis
from django.db import transaction

from console import audit
from console.access import Actor, demand
from controllers import catalog
from queues import projection
from queues.errors import BadInput
from queues.models import Node
from workers import overrides
from workers.models import Loop, Override

HANDED_OVER = (Loop.Mode.HOLD, Loop.Mode.MANUAL)  # modes in which nobody steers but a person: these expire
THRESHOLDS = {"busy": "busy_threshold", "toobusy": "toobusy_threshold"}


@transaction.atomic
def override_loop(
    actor: Actor,
    loop: Loop,
    values: Mapping[str, Any],
    *,
    reason: str,
    now: datetime,
    minutes: Any = None,
    expires_at: datetime | None = None,
) -> list[Override]:
    """Put values in force for parameters, guard settings or the actuator of a loop, all or none."""
    demand(actor, "override.set")
    if "mode" in values:
        raise BadInput("name", "mode is changed with the mode switch; choose a parameter here.")
    if not values:
        raise BadInput("value", "is the one in force already; change at least one.")
    end = {"minutes": minutes, "expires_at": expires_at}
    return [
        _put(actor, "override.set", name, value, reason=reason, now=now, loop=loop, **end)
        for name, value in values.items()
    ]


@transaction.atomic
def override_thresholds(
    actor: Actor,
    node: Node,
    wanted: Mapping[str, float],
    *,
    reason: str,
    now: datetime,
    control: redis.Redis,
    minutes: Any = None,
    expires_at: datetime | None = None,
) -> list[Override]:
    """Put `busy`, `toobusy` or both in force for a node; errors name the one that is wrong."""
    demand(actor, "node.thresholds")
    held = overrides.node_thresholds(now)[node.name]
    changed = {key: value for key, value in wanted.items() if value != held[key]}
    if not changed:
        raise BadInput("busy", "is the one in force already; change busy or toobusy.")
    # Upwards the upper one goes first and downwards the lower one, so that they are in order in between.
    order = sorted(changed, key=lambda key: (key == "toobusy") == (changed[key] < held[key]))
    end = {"minutes": minutes, "expires_at": expires_at}
    made = []
    for key in order:
        try:
            made.append(
                _put(
                    actor,
                    "node.thresholds",
                    THRESHOLDS[key],
                    changed[key],
                    reason=reason,
                    now=now,
                    node=node,
                    **end,
                )
            )
        except BadInput as error:
            raise BadInput(key if error.field == "value" else error.field, error.message) from None
    _tell_agents(control, now)
    return made


def _tell_agents(control: redis.Redis, now: datetime) -> None:
    """The last step of a change: before it, it may still be taken back, and agents must not know of it."""
    projection.project(control, overrides.node_thresholds(now))


def _put(actor: Actor, action: str, name: str, value: Any, *, reason: str, **more: Any) -> Override:
    made = overrides.set_override(name=name, value=value, owner=actor.user, reason=reason, **more)
    audit.record(
        actor,
        action,
        target_of(made),
        reason=made.reason,
        before={name: made.instead_of},
        after={name: made.value, "expires_at": made.expires_at.isoformat()},
    )
    return made


@transaction.atomic
def extend_override(
    actor: Actor,
    override: Override,
    *,
    now: datetime,
    minutes: Any = None,
    expires_at: datetime | None = None,
) -> Override:
    """Let an override run `minutes` longer, or until a time; never more than 7 days from now."""
    demand(actor, "override.extend")
    before = override.expires_at
    if expires_at is None:
        expires_at = before + timedelta(minutes=_some_minutes(minutes))
    elif minutes is not None:
        raise BadInput("expires_at", "takes minutes or a time, one of the two.")
    overrides.extend(override, now=now, expires_at=expires_at)
    span = {"expires_at": before.isoformat()}, {"expires_at": override.expires_at.isoformat()}
    audit.record(actor, "override.extend", target_of(override), before=span[0], after=span[1])
    return override


@transaction.atomic
def end_override(actor: Actor, override: Override, *, now: datetime, control: redis.Redis) -> bool:
    """End an override now; False when it was over already, and then nothing is noted."""
    demand(actor, "override.end")
    if not overrides.holds(override, now):
        return False
    overrides.end(override, by=actor.user, now=now)
    audit.record(
        actor,
        "override.end",
        target_of(override),
        before={override.name: override.value, "expires_at": override.expires_at.isoformat()},
        after={override.name: override.instead_of},
    )
    if override.node_id:
        _tell_agents(control, now)
    return True


@transaction.atomic
def set_mode(
    actor: Actor,
    loop: Loop,
    mode: str,
    *,
    reason: str,
    now: datetime,
    minutes: Any = None,
    value: Any = None,
) -> Override | None:
    """Change how a loop works: hold and manual take `minutes` and revert by themselves; auto and advise
    without minutes become the loop's own mode and end a hold. `value` is what manual applies.
    """
    demand(actor, "loop.mode")
    if mode not in Loop.Mode.values:
        raise BadInput("mode", f"takes {', '.join(Loop.Mode.values)}, not {mode!r}.")
    if mode in HANDED_OVER and minutes is None:
        raise BadInput("minutes", f"is missing; {mode} reverts by itself, say after how long.")
    if minutes is None:
        return _own_mode(actor, loop, mode, reason, now)
    made = _put(actor, "loop.mode", "mode", mode, reason=reason, now=now, loop=loop, minutes=minutes)
    if mode == Loop.Mode.MANUAL and value is not None:
        actuator = actuator_of(loop)
        _put(actor, "override.set", actuator, value, reason=reason, now=now, loop=loop, minutes=minutes)
    return made


def _own_mode(actor: Actor, loop: Loop, mode: str, reason: str, now: datetime) -> None:
    if not reason.strip():
        raise BadInput("reason", "is missing; say in a sentence why.")
    held = list(overrides.in_force(now).filter(loop=loop, name="mode"))
    for override in held:
        overrides.end(override, by=actor.user, now=now)
    before = held[-1].value if held else loop.mode
    Loop.objects.filter(pk=loop.pk).update(mode=mode)
    audit.record(
        actor, "loop.mode", loop.name, reason=reason.strip(), before={"mode": before}, after={"mode": mode}
    )


def actuator_of(loop: Loop) -> str:
    """The name under which a person sets the loop's actuator by hand."""
    actuator = catalog.law(loop.law).actuator
    if actuator is None:
        raise BadInput("value", f"{loop.law} has no single value to set by hand.")
    return actuator


def target_of(override: Override) -> str:
    """The name of the loop or node it is on."""
    return override.loop.name if override.loop_id else override.node.name


def _some_minutes(minutes: Any) -> float:
    good = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if not good or not 0 < minutes <= overrides.MAXIMUM_MINUTES:
        raise BadInput("minutes", f"takes minutes above 0 up to {overrides.MAXIMUM_MINUTES} (7 days).")
    return float(minutes)
