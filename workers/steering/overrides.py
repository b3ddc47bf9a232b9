"""Overrides: a person's values in place of the plant's own, and temporary stops.

A value replaces a parameter, a guard setting, an actuator, a mode, or a node's threshold. A stop applies to a queue's
intake or consumption, or to the work of a worker host. Every override has an owner, a reason, and an expiry. It reverts
automatically: only overrides that have neither ended nor reached `expires_at` are in force, so no job has to run for
it; `expire_due` merely records the end, and notifies the agents.

| scope | names | values |
|---|---|---|
| one loop, or all of a law, queue, node, or several | a parameter of the law | its range (see the catalog) |
| | `guard.NAME`; `guard.direction`: up only, down only | the setting's range |
| | the actuator, e.g. `start` | the guard's range; applied while the loop is in manual |
| | `mode` | auto, advise, hold, manual |
| a node itself | `busy_threshold`, `toobusy_threshold` | above 0 up to 1, busy below toobusy |
| a queue itself | `intake`, `consumption` | paused |
| a worker host | `work` | draining |

Of two on the same loop under the same name, the newer one is in force, and says which one it replaces; if it ends
first, the older one is in force again. Each value's range is checked and, with all that is in force beside it,
`Law.check` for every loop in the scope: there a law also refuses what would make it unstable.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import redis
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet

from common import checks
from common.errors import BadInput
from controllers import catalog
from controllers.framework import guard
from controllers.framework.law import Law
from queues import projection
from queues.models import Node
from workers.coordination.leases import lock_until_commit
from workers.models import Loop, Override
from workers.steering import enforcing, ownership
from workers.steering.expiry import Expiry
from workers.steering.scope import THRESHOLDS, Scope, is_itself, is_threshold, list_active_loops

LOCK = "overrides"
MAXIMUM_REASON_LENGTH = 2_000
PAUSED, OPEN = "paused", "open"
DRAINED, AT_WORK = "draining", "at work"


def list_active(now: datetime) -> QuerySet[Override]:
    """Return the overrides in force now.

    An override that was set is in force, and one that has ended is over, also if the clock was set back since.
    """
    return Override.objects.filter(_filter_unexpired(now), ended_at__isnull=True)


def list_active_at(at: datetime) -> QuerySet[Override]:
    """Return those in force at an instant, for pages that show the past."""
    return Override.objects.filter(_filter_unexpired(at), created_at__lte=at).filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    )


def sort_by_expiry(rows: QuerySet[Override]) -> QuerySet[Override]:
    """Return overrides in the order in which they revert; those without an end last."""
    return rows.order_by(F("expires_at").asc(nulls_last=True), "pk")


def _filter_unexpired(now: datetime) -> Q:
    return Q(expires_at__gt=now) | Q(expires_at__isnull=True)


def group_by_loop(loops: Iterable[Loop], now: datetime) -> dict[int, list[Override]]:
    """Return {loop's id: the overrides in force on it, oldest first}, wide ones included, with one query."""
    return spread(loops, list_active(now).select_related("loop", "node", "owner"))


def spread(loops: Iterable[Loop], rows: Iterable[Override]) -> dict[int, list[Override]]:
    """Return the same from all overrides in force, which have been read already."""
    oldest_first = sorted(rows, key=lambda row: (row.created_at, row.pk))
    held = [(Scope.build(row), row) for row in oldest_first if not is_itself(row)]
    return {
        loop.pk: [row for scope, row in held if _applies_to_loop(scope, row.name, row.value, loop)] for loop in loops
    }


def _applies_to_loop(scope: Scope, name: str, value: Any, loop: Loop) -> bool:
    """Return whether an override is on the loop.

    A wide one doesn't put a loop on auto that has to be enabled individually.
    """
    lets_many_act = scope.is_wide and name == "mode" and value in Loop.ACTING
    return scope.covers(loop) and not (lets_many_act and ownership.needs_explicit_enabling(loop))


def list_for_loop(loop: Loop, now: datetime) -> list[Override]:
    """Return the overrides in force on a loop, the oldest first, wide ones included."""
    return group_by_loop([loop], now)[loop.pk]


def explain_conflict(loop: Loop, in_force: Iterable[Override], now: datetime) -> str:
    """Return why the overrides of parameters and guard don't apply, without the full stop; "" if they do.

    Overrides that agreed may contradict each other once one of them has ended, and a loop's own value may change: then
    the loop runs with its own values rather than with values that its law refuses.
    """
    law, rows = catalog.get_law(loop.law), list(in_force)
    if not rows:
        return ""
    try:
        law.check(get_effective_parameters(law, loop.parameters, rows, now))
        guard.read_settings(law, get_effective_guard(law, loop.guard, rows, now))
    except BadInput as error:
        return str(error).rstrip(".")
    return ""


def select_effective(loop: Loop, in_force: list[Override], now: datetime) -> list[Override]:
    """Return the overrides in force that the loop applies: if they conflict, only mode and actuator."""
    if not explain_conflict(loop, in_force, now):
        return in_force
    return [override for override in in_force if override.name in ("mode", catalog.get_law(loop.law).actuator)]


def list_effective(loop: Loop, now: datetime) -> list[Override]:
    """Return the same, of those in force on a loop now."""
    return select_effective(loop, list_for_loop(loop, now), now)


def apply_overrides(parameters: Mapping[str, Any], overrides: Iterable[Override], now: datetime) -> dict[str, Any]:
    """Return parameters with the values of the overrides in force in their place; the later of two wins."""
    values = dict(parameters)
    for override in sorted(overrides, key=lambda each: (each.created_at, each.pk)):
        if override.name in values and holds(override, now):
            values[override.name] = override.value
    return values


def holds(override: Override, now: datetime) -> bool:
    """Return whether it is in force; from `expires_at` on it is not."""
    return override.ended_at is None and (override.expires_at is None or now < override.expires_at)


def find_effective_value(name: str, overrides: Iterable[Override], now: datetime) -> Any:
    """Return the value in force under a name, or None."""
    return apply_overrides({name: None}, overrides, now)[name]


def get_effective_mode(loop: Loop, in_force: Iterable[Override], now: datetime) -> str:
    """Return the loop's mode: its own, or that of an override in its place."""
    return str(find_effective_value("mode", in_force, now) or loop.mode)


def get_node_thresholds(now: datetime) -> dict[str, dict[str, float]]:
    """Return {node: {"busy", "toobusy"}} as in force now: the node's own, or the overrides'.

    For the projection.
    """
    thresholds = {node.name: _thresholds(node) for node in Node.objects.all()}
    by_age = list_active(now).filter(node__isnull=False, name__in=THRESHOLDS).order_by("created_at")
    for override in by_age.select_related("node"):
        assert override.node is not None
        thresholds[override.node.name][override.name] = float(override.value)
    return {name: _order_thresholds(name, values) for name, values in thresholds.items()}


def set_override(
    *,
    name: str,
    value: Any,
    owner: User,
    reason: str,
    now: datetime,
    loop: Loop | None = None,
    law: str = "",
    queue: str = "",
    node: Node | None = None,
    host: str = "",
    minutes: Any = None,
    expires_at: datetime | None = None,
    endless: bool = False,
    control: redis.Redis | None = None,
    beside: Mapping[str, Any] | None = None,
    by: User | None = None,
) -> Override:
    """Put a value in force until it expires; one under the same name on the same scope ends.

    Give `minutes`, `expires_at`, or `endless`. `beside` are values that come into force with it: they must be valid
    together, not one after the other (gains are stable as a set). With `control`, an override on a node, a queue, or a
    host itself is in force there within a second. `by` is who sets it, if that is not the owner. Raises `BadInput`
    naming the field (scope, name, value, reason, minutes, expires_at); nothing is changed then.
    """
    scope = Scope(loop, law, queue, node, host)
    if not scope.is_sound:
        raise BadInput("scope", "must be a loop, or one or more of a law, a queue, and a node.")
    reason = read_reason(reason)
    until = Expiry(minutes, expires_at, endless).compute(now)
    with transaction.atomic():
        # Of two at once, the second is checked beside the first, and says what it replaces.
        lock_until_commit(LOCK)
        itself = scope.is_itself(name)
        if itself and endless and node is None:
            raise BadInput("expires_at", f"is missing; an override of {name} on {scope} must have an expiry.")
        checked = (
            _validate_value(scope, name, value, now, beside or {})
            if itself
            else _validate_override(scope, name, value, now, beside or {})
        )
        same = list_active(now).filter(name=name, **scope.get_field_values())
        replaced = [{**row, "ended": True} for row in map(_describe_replaced, same)]
        replaced += [] if itself else [_describe_replaced(row) for row in _list_overlapping(scope, name, now)]
        same.update(ended_at=now, ended_by=by or owner)
        override = Override.objects.create(
            **scope.get_field_values(),
            name=name,
            value=checked[0],
            instead_of=checked[1],
            replaces=replaced,
            owner=owner,
            reason=reason,
            created_at=now,
            expires_at=until,
        )
        # Inside the transaction: if the targets can't be reached, nothing has changed.
        _enforce(override, now, control)
    return override


def _list_overlapping(scope: Scope, name: str, now: datetime) -> list[Override]:
    """Return the overrides of the same name on other scopes that share a loop with this one."""
    loops = list(Loop.objects.all())
    rows = list_active(now).filter(name=name).select_related("loop", "node", "owner")
    others = [(Scope.build(row), row) for row in rows if not is_itself(row)]
    return [row for other, row in others if other != scope and scope.meets(other, loops)]


def _describe_replaced(row: Override) -> dict[str, Any]:
    """Describe an older override, as the newer one names it."""
    return {
        "id": row.pk,
        "scope": str(Scope.build(row)),
        "value": row.value,
        "owner": row.owner.get_username(),
        "reason": row.reason,
        "ended": False,
    }


def extend(
    override: Override,
    *,
    now: datetime,
    minutes: Any = None,
    expires_at: datetime | None = None,
    control: redis.Redis | None = None,
) -> Override:
    """Extend an override, counted from now. Raises `BadInput` (field override if it is over)."""
    until = Expiry(minutes, expires_at).compute(now)
    if override.expires_at is None:
        raise BadInput("override", "has no expiry to extend. End it, or set it again with an expiry.")
    # One conditional write: an override that somebody ended just now is not restored.
    still = Override.objects.filter(pk=override.pk, expires_at__gt=now, ended_at__isnull=True)
    with transaction.atomic():
        if not still.update(expires_at=until):
            raise BadInput("override", "has already ended; set a new override with a reason")
        override.refresh_from_db()
        if not is_threshold(override):
            _enforce(override, now, control)
    return override


def end(override: Override, *, by: User | None, now: datetime, control: redis.Redis | None = None) -> Override:
    """End it now. Ending twice changes nothing: the first end stays."""
    with transaction.atomic():
        still = Override.objects.filter(_filter_unexpired(now), pk=override.pk, ended_at__isnull=True)
        if still.update(ended_at=now, ended_by=by):
            override.ended_at = now
            _enforce(override, now, control)
    override.refresh_from_db()
    return override


def expire_due(now: datetime, control: redis.Redis | None = None) -> list[Override]:
    """Record once, on each expired override, that it ended when it expired; return those."""
    due = list(Override.objects.filter(ended_at__isnull=True, expires_at__lte=now).select_related("node"))
    if not due:
        return []
    with transaction.atomic():
        noted = [override for override in due if _note_expiry(override)]
        if any(is_threshold(override) for override in noted):
            _project(control, now)
    return noted


def _note_expiry(override: Override) -> bool:
    override.ended_at = override.expires_at
    untouched = Override.objects.filter(pk=override.pk, ended_at__isnull=True, expires_at=override.expires_at)
    return bool(untouched.update(ended_at=override.expires_at))


def _validate_override(
    scope: Scope, name: str, value: Any, now: datetime, beside: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return the value, and the one that it replaces (None if they differ).

    Raise `BadInput` if the value is invalid.
    """
    covered = (
        [scope.loop]
        if scope.loop
        else [active_loop for active_loop in list_active_loops() if scope.covers(active_loop)]
    )
    if not covered:
        raise BadInput("scope", f"{scope} has no loops; choose another law, queue, or node.")
    loops = [override for override in covered if _applies_to_loop(scope, name, value, override)]
    if not loops:
        raise BadInput("scope", f"{scope} has only loops of attached plants; enable them one by one.")
    if name == "mode":
        if value not in Loop.Mode.values:
            raise BadInput("value", f"must be one of {', '.join(Loop.Mode.values)}, not {value!r}")
        require_single_owner(loops, value, now, "value")
        return value, _find_common_value(loop.mode for loop in loops)
    if name.startswith("guard.") and scope.is_wide:
        loops = [loop for loop in loops if _knows(loop, name)] or loops
    elif len({loop.law for loop in loops}) > 1:
        raise BadInput("name", f"{name} belongs to one law, but {scope} has loops of several laws; also choose a law.")
    checked = [_validate_parameter(loop, scope, name, value, now, beside) for loop in loops]
    return checked[0][0], _find_common_value(before for _, before in checked)


def require_single_owner(loops: Iterable[Loop], mode: str, now: datetime, field: str) -> None:
    """Raise `BadInput` naming the field if loops may not act (`mode`).

    They may not if another loop sets the same tasks of an attached plant, or would once an override has ended; or if
    they only advise there.
    """
    chosen = list(loops)
    begins = [loop for loop in chosen if mode in Loop.ACTING and "plant" in loop.target]
    if not begins:
        return
    if len(chosen) == 1 and (why := ownership.explain_never(chosen[0])):
        raise BadInput(field, why)
    others = list(list_active_loops().filter(target__has_key="plant"))
    held = group_by_loop(others, now)
    act = [other for other in others if {other.mode, get_effective_mode(other, held[other.pk], now)} & set(Loop.ACTING)]
    for loop in begins:
        if (competitor := ownership.find_competing_loop(loop, [*act, *begins])) is not None:
            raise BadInput(field, ownership.explain_refusal(loop, competitor))


def _knows(loop: Loop, name: str) -> bool:
    """Return whether the guard of a loop's law has the setting."""
    return name.removeprefix("guard.") in {
        setting.name for setting in guard.list_guard_settings(catalog.get_law(loop.law))
    }


def _find_common_value(values: Iterable[Any]) -> Any:
    """Return the value that all have, None if they differ."""
    first, *others = values
    return first if all(other == first for other in others) else None


def _validate_parameter(
    loop: Loop, scope: Scope, name: str, value: Any, now: datetime, beside: Mapping[str, Any]
) -> tuple[Any, Any]:
    law = catalog.get_law(loop.law)
    if (why := ownership.explain_fixed(loop.law, name)) is not None:
        raise BadInput("name", why)
    try:
        value = catalog.get_parameter(law, name).check(value, "value")
    except BadInput as error:
        raise BadInput("name" if error.field == "name" else "value", error.message) from None
    if name == law.actuator:
        return value, None
    others = [
        other_override
        for other_override in list_for_loop(loop, now)
        if other_override.name != name or Scope.build(other_override) != scope
    ]
    try:
        # Each is in its range, but they may still contradict each other.
        return value, _find_replaced_value(law, loop, others, {**beside, name: value}, name, now)
    except BadInput as error:
        raise BadInput("value", str(error)) from None


def _find_replaced_value(
    law: Law, loop: Loop, others: list[Override], new: Mapping[str, Any], name: str, now: datetime
) -> Any:
    """Return what was in force under this name.

    Raise `BadInput` if the whole with the new values is not valid.
    """
    if name.startswith("guard."):
        settings, key = get_effective_guard(law, loop.guard, others, now), name.removeprefix("guard.")
        settings_new = {
            override.removeprefix("guard."): new[override] for override in new if override.startswith("guard.")
        }
        guard.read_settings(law, {**settings, **settings_new})
        return settings[key]
    parameters = get_effective_parameters(law, loop.parameters, others, now)
    law.check({**parameters, **{override: new[override] for override in new if override in parameters}})
    return parameters[name]


def get_effective_parameters(
    law: Law, parameters: Mapping[str, Any], overrides: Iterable[Override], now: datetime
) -> dict[str, Any]:
    """Return all parameters of a law by name, defaults filled in, overrides in their place."""
    return apply_overrides(_read_parameters(law.name, json.dumps(parameters)), overrides, now)


def get_effective_guard(
    law: Law, settings: Mapping[str, Any], overrides: Iterable[Override], now: datetime
) -> dict[str, Any]:
    """Return the guard's settings by name, overrides `guard.NAME` in their place."""
    named = {f"guard.{key}": value for key, value in _read_settings(law.name, json.dumps(settings)).items()}
    return {key.removeprefix("guard."): value for key, value in apply_overrides(named, overrides, now).items()}


# Each tick of each loop reads its own; they seldom change, and many loops have the same.
@lru_cache(maxsize=1_024)
def _read_parameters(law: str, given: str) -> Mapping[str, Any]:
    return catalog.read_parameters(catalog.get_law(law), json.loads(given))


@lru_cache(maxsize=1_024)
def _read_settings(law: str, given: str) -> Mapping[str, Any]:
    return guard.read_settings(catalog.get_law(law), json.loads(given))


def _validate_value(scope: Scope, name: str, value: Any, now: datetime, beside: Mapping[str, Any]) -> tuple[Any, Any]:
    if scope.node is not None:
        return _validate_threshold(scope.node, name, value, now, beside)
    stopped, usual = (DRAINED, AT_WORK) if scope.host else (PAUSED, OPEN)
    if value != stopped:
        raise BadInput("value", f"must be {stopped}, not {checks.shorten_for_message(value)}")
    return value, usual


def _validate_threshold(
    node: Node, name: str, value: Any, now: datetime, beside: Mapping[str, Any]
) -> tuple[float, float]:
    if name not in THRESHOLDS:
        raise BadInput("name", f"must be {' or '.join(THRESHOLDS)} for a node, not {name!r}")
    checks.accept_greater_than(0, 1, "a share of capacity").validate(value, "value")
    holding = get_node_thresholds(now)[node.name]
    key = name.removesuffix("_threshold")
    others = {override.removesuffix("_threshold"): float(beside[override]) for override in beside}
    proposed = {**holding, **others, key: float(value)}
    if not proposed["busy"] < proposed["toobusy"]:
        busy, toobusy = f"above busy ({holding['busy']:g})", f"below toobusy ({holding['toobusy']:g})"
        raise BadInput("value", f"must be a share {toobusy if key == 'busy' else busy}, not {value:g}")
    return float(value), holding[key]


def _thresholds(node: Node) -> dict[str, float]:
    return {"busy_threshold": node.busy_threshold, "toobusy_threshold": node.toobusy_threshold}


def _order_thresholds(name: str, values: Mapping[str, float]) -> dict[str, float]:
    """Order the thresholds.

    Two overrides that were in order together may not be once one has expired: then BUSY is put just below TOOBUSY, so
    that the agents always get an order that they accept.
    """
    busy, toobusy = values["busy_threshold"], values["toobusy_threshold"]
    if busy >= toobusy:
        busy = math.nextafter(toobusy, 0.0)
    return {"busy": busy, "toobusy": toobusy}


def read_reason(reason: Any) -> str:
    """Return a person's reason, stripped. Raises `BadInput` if it is empty or too long."""
    text = reason.strip() if isinstance(reason, str) else ""
    if not text:
        raise BadInput("reason", "is missing; give a reason in one sentence, for the on-call team")
    if len(text) > MAXIMUM_REASON_LENGTH:
        raise BadInput("reason", f"must have at most {MAXIMUM_REASON_LENGTH} characters, not {len(text)}")
    return text


def _enforce(override: Override, now: datetime, control: redis.Redis | None) -> None:
    """Write an override on a node, a queue, or a host itself to where it is enforced."""
    if is_threshold(override):
        _project(control, now)
    elif control is not None and is_itself(override):
        enforcing.enforce(control, override, now)


def _project(control: redis.Redis | None, now: datetime) -> None:
    """Write the topology with the thresholds in force now, where the agents read it."""
    if control is not None:
        projection.project(control, get_node_thresholds(now))
