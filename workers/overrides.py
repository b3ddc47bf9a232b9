"""A person's value in place of a parameter, a guard's setting, an actuator, a mode or a node's threshold.

Every override has an owner, a reason and an expiry. It reverts by itself: in force is only what has neither
ended nor reached `expires_at`, so no job has to run for it; `expire_due` merely notes the end, and tells the
agents.

| target | names | values |
|---|---|---|
| loop | a parameter of its law | the parameter's range (`controllers.catalog`) |
| loop | `guard.NAME` | the setting's range |
| loop | the actuator, e.g. `start` | the guard's range; applied while the loop is in manual |
| loop | `mode` | auto, advise, hold, manual |
| node | `busy_threshold`, `toobusy_threshold` | above 0 up to 1, busy below toobusy |
"""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import redis
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet

from controllers import catalog, guard
from controllers.law import Law
from queues import projection
from queues.errors import BadInput
from queues.models import Node
from workers.models import Loop, Override

PRESET_MINUTES = (2, 10, 30, 60, 240, 1_440, 10_080)
MAXIMUM_MINUTES = 7 * 24 * 60
MAXIMUM_REASON_LENGTH = 2_000
THRESHOLDS = ("busy_threshold", "toobusy_threshold")


def in_force(now: datetime) -> QuerySet[Override]:
    """The overrides that hold at this instant."""
    return Override.objects.filter(expires_at__gt=now, created_at__lte=now).filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=now)
    )


def effective(parameters: Mapping[str, Any], overrides: Iterable[Override], now: datetime) -> dict[str, Any]:
    """Parameters with the values of the overrides in force in their place; the later of two wins."""
    values = dict(parameters)
    for override in sorted(overrides, key=lambda each: (each.created_at, each.pk)):
        if override.name in values and holds(override, now):
            values[override.name] = override.value
    return values


def holds(override: Override, now: datetime) -> bool:
    """Whether it is in force: at `expires_at` it is not any more."""
    ended = override.ended_at is not None and override.ended_at <= now
    return not ended and now < override.expires_at


def value_of(name: str, overrides: Iterable[Override], now: datetime) -> Any:
    """The value in force under a name, or None."""
    return effective({name: None}, overrides, now)[name]


def node_thresholds(now: datetime) -> dict[str, dict[str, float]]:
    """{node: {"busy", "toobusy"}} as they hold now: the node's own, or the overrides'. For the projection."""
    thresholds = {node.name: _thresholds(node) for node in Node.objects.all()}
    by_age = in_force(now).filter(node__isnull=False, name__in=THRESHOLDS).order_by("created_at")
    for override in by_age.select_related("node"):
        thresholds[override.node.name][override.name] = float(override.value)
    return {name: _in_order(name, values) for name, values in thresholds.items()}


def set_override(
    *,
    name: str,
    value: Any,
    owner: AbstractBaseUser,
    reason: str,
    now: datetime,
    loop: Loop | None = None,
    node: Node | None = None,
    minutes: Any = None,
    expires_at: datetime | None = None,
    control: redis.Redis | None = None,
) -> Override:
    """Put a value in force until it expires; one under the same name on the same target ends.

    Give `minutes` or `expires_at`. With `control`, a node's thresholds are projected, so that its agent
    follows within a second. Raises `BadInput` naming the field (name, value, reason, minutes, expires_at);
    nothing is changed then.
    """
    if (loop is None) == (node is None):
        raise BadInput("target", "takes a loop or a node, one of the two")
    reason = read_reason(reason)
    until = _expiry(now, minutes, expires_at)
    with transaction.atomic():
        value, before = _checked(loop, node, name, value, now)
        in_force(now).filter(loop=loop, node=node, name=name).update(ended_at=now, ended_by=owner)
        override = Override.objects.create(
            loop=loop,
            node=node,
            name=name,
            value=value,
            instead_of=before,
            owner=owner,
            reason=reason,
            created_at=now,
            expires_at=until,
        )
        # Inside the transaction: when the agents can't be told, nothing has changed.
        _tell_agents(node, now, control)
    return override


def extend(
    override: Override,
    *,
    now: datetime,
    minutes: Any = None,
    expires_at: datetime | None = None,
) -> Override:
    """Let it run until later, counted from now. Raises `BadInput` (field override when over)."""
    until = _expiry(now, minutes, expires_at)
    # One conditional write: an override that somebody ended a moment ago does not come back to life.
    still = Override.objects.filter(pk=override.pk, expires_at__gt=now, ended_at__isnull=True)
    if not still.update(expires_at=until):
        raise BadInput("override", "is over already; set it again, with a reason")
    override.refresh_from_db()
    return override


def end(
    override: Override, *, by: AbstractBaseUser, now: datetime, control: redis.Redis | None = None
) -> Override:
    """End it now. Ending twice changes nothing: the first end stays."""
    with transaction.atomic():
        still = Override.objects.filter(pk=override.pk, expires_at__gt=now, ended_at__isnull=True)
        if still.update(ended_at=now, ended_by=by):
            _tell_agents(override.node, now, control)
    override.refresh_from_db()
    return override


def expire_due(now: datetime, control: redis.Redis | None = None) -> list[Override]:
    """Note once, on each override that has run out, that it ended when it expired; give those back."""
    due = list(Override.objects.filter(ended_at__isnull=True, expires_at__lte=now).select_related("node"))
    if not due:
        return []
    with transaction.atomic():
        noted = [each for each in due if _note_expiry(each)]
        if any(each.node_id for each in noted):
            _project(control, now)
    return noted


def _note_expiry(override: Override) -> bool:
    override.ended_at = override.expires_at
    untouched = Override.objects.filter(pk=override.pk, ended_at__isnull=True, expires_at=override.expires_at)
    return bool(untouched.update(ended_at=override.expires_at))


def _checked(loop: Loop | None, node: Node | None, name: str, value: Any, now: datetime) -> tuple[Any, Any]:
    """The value, and the one it takes the place of; `BadInput` when it can't."""
    if node is not None:
        return _checked_threshold(node, name, value, now)
    assert loop is not None
    if name == "mode":
        if value not in Loop.Mode.values:
            raise BadInput("value", f"takes one of {', '.join(Loop.Mode.values)}, not {value!r}")
        return value, loop.mode
    return _checked_parameter(loop, name, value, now)


def _checked_parameter(loop: Loop, name: str, value: Any, now: datetime) -> tuple[Any, Any]:
    law = catalog.law(loop.law)
    try:
        value = catalog.parameter(law, name).check(value, "value")
    except BadInput as error:
        raise BadInput("name" if error.field == "name" else "value", error.message) from None
    if name == law.actuator:
        return value, None
    others = list(in_force(now).filter(loop=loop).exclude(name=name))
    try:
        # Each in its range, they may still contradict each other.
        return value, _instead_of(law, loop, others, name, value, now)
    except BadInput as error:
        raise BadInput("value", str(error)) from None


def _instead_of(law: Law, loop: Loop, others: list[Override], name: str, value: Any, now: datetime) -> Any:
    """What held under this name; raises `BadInput` when the whole no longer fits with the new value in it."""
    if name.startswith("guard."):
        settings, key = effective_guard(law, loop.guard, others, now), name.removeprefix("guard.")
        guard.read_settings(law, {**settings, key: value})
        return settings[key]
    parameters = effective_parameters(law, loop.parameters, others, now)
    law.check({**parameters, name: value})
    return parameters[name]


def effective_parameters(
    law: Law, parameters: Mapping[str, Any], overrides: Iterable[Override], now: datetime
) -> dict[str, Any]:
    """All parameters of a law by name, defaults filled in, overrides in their place."""
    return effective(catalog.read_parameters(law, parameters), overrides, now)


def effective_guard(
    law: Law, settings: Mapping[str, Any], overrides: Iterable[Override], now: datetime
) -> dict[str, Any]:
    """The guard's settings by name, overrides `guard.NAME` in their place."""
    named = {f"guard.{key}": value for key, value in guard.read_settings(law, settings).items()}
    return {key.removeprefix("guard."): value for key, value in effective(named, overrides, now).items()}


def _checked_threshold(node: Node, name: str, value: Any, now: datetime) -> tuple[float, float]:
    if name not in THRESHOLDS:
        raise BadInput("name", f"takes {' or '.join(THRESHOLDS)} for a node, not {name!r}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise BadInput("value", f"takes a share of capacity above 0 up to 1, not {value!r}")
    holding = node_thresholds(now)[node.name]
    key = name.removesuffix("_threshold")
    proposed = {**holding, key: float(value)}
    if not proposed["busy"] < proposed["toobusy"]:
        busy, toobusy = f"above busy ({holding['busy']:g})", f"below toobusy ({holding['toobusy']:g})"
        raise BadInput("value", f"takes a share {toobusy if key == 'busy' else busy}, not {value:g}")
    return float(value), holding[key]


def _thresholds(node: Node) -> dict[str, float]:
    return {"busy_threshold": node.busy_threshold, "toobusy_threshold": node.toobusy_threshold}


def _in_order(name: str, values: Mapping[str, float]) -> dict[str, float]:
    """Two overrides that were in order together may not be once one has expired: then BUSY is put just below
    TOOBUSY, so that the agents always get an order they accept.
    """
    busy, toobusy = values["busy_threshold"], values["toobusy_threshold"]
    if busy >= toobusy:
        busy = math.nextafter(toobusy, 0.0)
    return {"busy": busy, "toobusy": toobusy}


def read_reason(reason: Any) -> str:
    """A person's reason, stripped. Raises `BadInput` when there is none, or too much."""
    text = reason.strip() if isinstance(reason, str) else ""
    if not text:
        raise BadInput("reason", "is missing; say in a sentence why, for who reads it at night")
    if len(text) > MAXIMUM_REASON_LENGTH:
        raise BadInput("reason", f"takes at most {MAXIMUM_REASON_LENGTH} characters, not {len(text)}")
    return text


def _expiry(now: datetime, minutes: Any, expires_at: datetime | None) -> datetime:
    if (minutes is None) == (expires_at is None):
        raise BadInput(
            "expires_at", "takes an expiry: give minutes or a time, one of the two; none lasts for ever"
        )
    field, until = (
        ("minutes", _in_minutes(now, minutes)) if expires_at is None else ("expires_at", expires_at)
    )
    assert until is not None
    if until.tzinfo is None:
        raise BadInput(field, "takes a time with its time zone")
    if not now < until <= now + timedelta(minutes=MAXIMUM_MINUTES):
        raise BadInput(field, "takes a time from now on, at most 7 days ahead")
    return until


def _in_minutes(now: datetime, minutes: Any) -> datetime:
    good = (
        isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= MAXIMUM_MINUTES
    )
    if not good:
        raise BadInput("minutes", f"takes minutes above 0 up to {MAXIMUM_MINUTES} (7 days), not {minutes!r}")
    return now + timedelta(minutes=minutes)


def _tell_agents(node: Node | None, now: datetime, control: redis.Redis | None) -> None:
    if node is not None:
        _project(control, now)


def _project(control: redis.Redis | None, now: datetime) -> None:
    """Write the topology with the thresholds that hold now, where the agents read it."""
    if control is not None:
        projection.project(control, node_thresholds(now))


def document(override: Override) -> dict[str, Any]:
    """An override as the snapshot has it; its end in seconds since 1970."""
    return {
        "id": override.pk,
        "loop": override.loop.name if override.loop else None,
        "node": override.node.name if override.node else None,
        "name": override.name,
        "value": override.value,
        "instead_of": override.instead_of,
        "owner": override.owner.get_username(),
        "reason": override.reason,
        "expires_at": override.expires_at.timestamp(),
    }
