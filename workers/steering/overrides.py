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
| | `drained`, `cordoned` | the name itself |
| a queue itself | `intake`, `consumption`, or `circuit` (of its destination) | paused; open or closed |
| a worker host | `work` | draining |

Of two on the same loop under the same name, the newer one is in force, and says which one it replaces; if it ends
first, the older one is in force again. Each value's range is checked and, with all that is in force beside it,
`Law.check` for every loop in the scope: there a law also refuses what would make it unstable.
"""

import marshal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
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
from controllers.framework.law import Law, check_parameters
from queues.circuit_hold import HOLDS
from queues.models import Node
from workers.coordination.leases import lock_until_commit
from workers.documents.loops import OverrideStatus
from workers.models import Loop, Override
from workers.steering import enforcing, plant_settings
from workers.steering.scope import (
    CIRCUIT,
    IN_USE,
    NODE_USES,
    Scope,
    explain_fixed,
    explain_never,
    explain_refusal,
    filter_unexpired,
    find_competing_loop,
    format_time,
    is_itself,
    is_node_use,
    is_threshold,
    list_active_loops,
    needs_explicit_enabling,
)
from workers.windows.loop_modes import list_window_modes

LOCK = "overrides"
MAXIMUM_REASON_LENGTH = 2_000
PAUSED, OPEN, DRAINED, AT_WORK, AUTOMATIC = "paused", "open", "draining", "at work", "automatic"
# An ended override, and the one that is in force again in its place.
Undone = tuple[Override, Override | None]


@dataclass(frozen=True)
class Expiry:
    """An expiry. Exactly one is given: `minutes` from now, `expires_at` with its zone, or `endless`."""

    minutes: object = None
    expires_at: datetime | None = None
    endless: bool = False

    def compute(self, now: datetime) -> datetime | None:
        """Return the end; None if there is none. Raises `BadInput` naming minutes or expires_at."""
        given = (self.minutes is not None) + (self.expires_at is not None) + self.endless
        if given != 1:
            raise BadInput("expires_at", "is ambiguous or missing. Set either minutes or expires_at.")
        if self.endless:
            return None
        most = timedelta(days=plant_settings.get_setting_value("override.maximum_days"))
        if self.expires_at is None:
            return now + parse_minutes(self.minutes, most)
        if self.expires_at.tzinfo is None:
            raise BadInput("expires_at", "must be a time with a time zone, such as 2026-01-31T12:00:00Z")
        if not now < self.expires_at <= now + most:
            raise BadInput("expires_at", f"must be a future time, at most {most.days} days from now")
        return self.expires_at

    def compute_later(self, before: datetime | None, now: datetime) -> datetime:
        """Return the new end of a change that ends at `before`: minutes are added to it, and a time has to be later.

        Raises `BadInput` naming minutes or expires_at.
        """
        if self.minutes is None or self.expires_at is not None or self.endless:
            until = self.compute(now)
            if until is None or (before is not None and until <= before):
                takes = "a time" if before is None else f"later than the current end, {format_time(before, now)}"
                raise BadInput("expires_at", f"must be {takes}. A change can't be shortened. End it instead.")
            return until
        most = timedelta(days=plant_settings.get_setting_value("override.maximum_days"))
        until = (before or now) + parse_minutes(self.minutes, most)
        if until > now + most:
            raise BadInput("minutes", f"must be a smaller number: a change can end at most {most.days} days from now.")
        return until


def parse_minutes(minutes: object, most: timedelta) -> timedelta:
    """Return a period of minutes above 0 up to `most`. Raises `BadInput` naming minutes."""
    limit = most.total_seconds() / 60
    if not checks.is_number(minutes, 0, limit) or minutes <= 0:
        span = f"{limit:.0f} ({most.days} days)"
        raise BadInput("minutes", f"must be above 0 and at most {span}, not {checks.shorten_for_message(minutes)}")
    return timedelta(minutes=minutes)


def list_active(now: datetime) -> QuerySet[Override]:
    """Return the overrides in force now.

    An override that was set is in force, and one that has ended is over, also if the clock was set back since.
    """
    return Override.objects.filter(filter_unexpired(now), ended_at__isnull=True)


def list_active_at(at: datetime) -> QuerySet[Override]:
    """Return those in force at an instant, for pages that show the past."""
    return Override.objects.filter(filter_unexpired(at), created_at__lte=at).filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=at)
    )


def sort_by_expiry(rows: QuerySet[Override]) -> QuerySet[Override]:
    """Return overrides in the order in which they revert; those without an end last."""
    return rows.order_by(F("expires_at").asc(nulls_last=True), "pk")


def group_by_loop(loops: Iterable[Loop], now: datetime) -> dict[int, list[Override]]:
    """Return {loop's id: the overrides in force on it, oldest first}, wide ones included, with two queries."""
    return spread(loops, list_in_force(now))


def list_in_force(now: datetime) -> list[Override]:
    """Return the overrides in force on loops and others, with the modes that planned windows set."""
    return [*list_active(now).select_related("loop", "node", "owner"), *list_window_modes(now)]


def spread(loops: Iterable[Loop], rows: Iterable[Override]) -> dict[int, list[Override]]:
    """Return the same from all overrides in force, which have been read already."""
    oldest_first = sorted(rows, key=lambda row: (row.created_at, row.pk or 0))
    held = [(Scope.build(row), row) for row in oldest_first if not is_itself(row)]
    return {
        loop.pk: [row for scope, row in held if _applies_to_loop(scope, row.name, row.value, loop)] for loop in loops
    }


def _applies_to_loop(scope: Scope, name: str, value: object, loop: Loop) -> bool:
    """Return whether an override is on the loop. A wide one sets no loop to auto that is enabled individually."""
    lets_many_act = scope.is_wide and name == "mode" and value in Loop.ACTING
    return scope.covers(loop) and not (lets_many_act and needs_explicit_enabling(loop))


def list_for_loop(loop: Loop, now: datetime) -> list[Override]:
    """Return the overrides in force on a loop, the oldest first, wide ones included."""
    return group_by_loop([loop], now)[loop.pk]


@dataclass(frozen=True)
class EffectiveValues:
    """Parameters and guard of a loop with the overrides in force.

    conflict: why the overrides don't apply, without the full stop; "" if they do.
    """

    parameters: dict[str, Any]
    guard: dict[str, Any]
    conflict: str = ""


def compute_effective_values(loop: Loop, in_force: Iterable[Override], now: datetime) -> EffectiveValues:
    """Return the parameters and the guard of a loop with these overrides.

    Overrides that agreed may contradict each other once one of them has ended, and a loop's own value may change: then
    the loop runs with its own values rather than with values that its law refuses.
    """
    law, rows = catalog.get_law(loop.law), list(in_force)
    parameters = get_effective_parameters(law, loop.parameters, rows, now)
    settings = get_effective_guard(law, loop.guard, rows, now)
    if not rows:  # the loop's own values, which were validated when they were read
        return EffectiveValues(parameters, settings)
    try:
        check_parameters(law, get_effective_parameters(law, loop.parameters, rows, now))
        guard.read_settings(law, get_effective_guard(law, loop.guard, rows, now))
    except BadInput as error:
        own = get_effective_parameters(law, loop.parameters, (), now), get_effective_guard(law, loop.guard, (), now)
        return EffectiveValues(*own, str(error).rstrip("."))
    return EffectiveValues(parameters, settings)


def select_effective(loop: Loop, in_force: list[Override], now: datetime) -> list[Override]:
    """Return the overrides in force that the loop applies: if they conflict, only mode and actuator."""
    if not in_force or not compute_effective_values(loop, in_force, now).conflict:
        return in_force
    return [override for override in in_force if override.name in ("mode", catalog.get_law(loop.law).actuator)]


def list_effective(loop: Loop, now: datetime) -> list[Override]:
    """Return the same, of those in force on a loop now."""
    return select_effective(loop, list_for_loop(loop, now), now)


def apply_overrides(parameters: Mapping[str, Any], overrides: Iterable[Override], now: datetime) -> dict[str, Any]:
    """Return parameters with the values of the overrides in force in their place; the later of two wins."""
    values = dict(parameters)
    for override in sorted(overrides, key=lambda override: (override.created_at, override.pk or 0)):
        if override.name in values and holds(override, now):
            values[override.name] = override.value
    return values


def holds(override: Override, now: datetime) -> bool:
    """Return whether it is in force; from `expires_at` on it is not."""
    return override.ended_at is None and (override.expires_at is None or now < override.expires_at)


def find_effective_value(name: str, overrides: Iterable[Override], now: datetime) -> object:
    """Return the value in force under a name, or None."""
    return apply_overrides({name: None}, overrides, now)[name]


def get_effective_mode(loop: Loop, in_force: Iterable[Override], now: datetime) -> str:
    """Return the loop's mode: its own, or that of an override in its place."""
    return str(find_effective_value("mode", in_force, now) or loop.mode)


def set_override(
    *,
    name: str,
    value: object,
    owner: User,
    reason: str,
    now: datetime,
    loop: Loop | None = None,
    law: str = "",
    queue: str = "",
    node: Node | None = None,
    host: str = "",
    minutes: object = None,
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
            raise BadInput("expires_at", f"is missing. An override of {name} on {scope} must have an expiry.")
        value, instead_of = _validate_override(scope, name, value, now, beside or {})
        active = list_active(now).filter(name=name).select_related("loop", "node", "owner")
        same = active.filter(**scope.get_field_values())
        replaced = [_describe_replaced(row, ended=True) for row in same]
        if not itself:
            # Overrides of the same name on other scopes that share a loop with this one.
            loops, others = list(Loop.objects.all()), [(Scope.build(row), row) for row in active if not is_itself(row)]
            replaced += [
                _describe_replaced(row) for other, row in others if other != scope and scope.meets(other, loops)
            ]
        same.update(ended_at=now, ended_by=by or owner)
        override = Override.objects.create(
            **scope.get_field_values(),
            name=name,
            value=value,
            instead_of=instead_of,
            replaces=replaced,
            owner=owner,
            reason=reason,
            created_at=now,
            expires_at=until,
        )
        # Inside the transaction: if the targets can't be reached, nothing has changed.
        if itself:
            enforcing.enforce(control, override, now)
    return override


def _describe_replaced(row: Override, ended: bool = False) -> dict[str, Any]:
    """Describe an older override, as the newer one names it."""
    return {
        "id": row.pk,
        "scope": str(Scope.build(row)),
        "value": row.value,
        "owner": row.owner.get_username(),
        "reason": row.reason,
        "ended": ended,
    }


def extend(
    override: Override,
    *,
    now: datetime,
    minutes: object = None,
    expires_at: datetime | None = None,
    control: redis.Redis | None = None,
) -> Override:
    """Extend an override, or give it an end, counted from now. Raises `BadInput` (field override if it is over)."""
    until = Expiry(minutes, expires_at).compute(now)
    # One conditional write: an override that somebody ended just now is not restored.
    still = Override.objects.filter(filter_unexpired(now), pk=override.pk, ended_at__isnull=True)
    with transaction.atomic():
        if not still.update(expires_at=until):
            raise BadInput("override", "has already ended. Set a new override with a reason.")
        override.refresh_from_db()
        if not is_threshold(override):
            enforcing.enforce(control, override, now)
    return override


def end(override: Override, *, by: User | None, now: datetime, control: redis.Redis | None = None) -> Override:
    """End it now. Ending twice changes nothing: the first end stays."""
    with transaction.atomic():
        still = Override.objects.filter(filter_unexpired(now), pk=override.pk, ended_at__isnull=True)
        if still.update(ended_at=now, ended_by=by):
            override.ended_at = now
            if is_itself(override):
                enforcing.enforce(control, override, now)
    override.refresh_from_db()
    return override


def expire_due(now: datetime, control: redis.Redis | None = None) -> list[Override]:
    """Record once, on each expired override, that it ended when it expired; return those."""
    due = list(Override.objects.filter(ended_at__isnull=True, expires_at__lte=now).select_related("node"))
    if not due:
        return []
    with transaction.atomic():
        noted = []
        for override in due:
            override.ended_at = override.expires_at
            untouched = Override.objects.filter(pk=override.pk, ended_at__isnull=True, expires_at=override.expires_at)
            if untouched.update(ended_at=override.expires_at):
                noted.append(override)
        # All thresholds are enforced at once.
        thresholds = [override for override in noted if is_threshold(override)][:1]
        for override in (*thresholds, *filter(is_node_use, noted)):
            enforcing.enforce(control, override, now)
    return noted


def _validate_override(
    scope: Scope, name: str, value: object, now: datetime, beside: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return the value, and the one that it replaces (None if they differ). Raise `BadInput` for an invalid value."""
    if scope.is_itself(name):
        if name in NODE_USES:
            if value != name:
                raise BadInput("value", f"must be {name}, not {checks.shorten_for_message(value)}")
            return value, IN_USE
        if scope.node is not None:
            return enforcing.validate_threshold(scope.node, name, value, now, beside)
        if name == CIRCUIT:
            return checks.accept_choice(HOLDS).validate(value, "value"), AUTOMATIC
        stopped, usual = (DRAINED, AT_WORK) if scope.host else (PAUSED, OPEN)
        if value != stopped:
            raise BadInput("value", f"must be {stopped}, not {checks.shorten_for_message(value)}")
        return value, usual
    covered = [scope.loop] if scope.loop else [loop for loop in list_active_loops() if scope.covers(loop)]
    if not covered:
        raise BadInput("scope", f"{scope} has no loops. Choose another law, queue, or node.")
    loops = [loop for loop in covered if _applies_to_loop(scope, name, value, loop)]
    if not loops:
        raise BadInput("scope", f"{scope} has only loops of attached plants. Enable them one by one.")
    if name == "mode":
        if value not in Loop.Mode.values:
            raise BadInput("value", f"must be one of {', '.join(Loop.Mode.values)}, not {value!r}")
        require_single_owner(loops, value, now, "value")
        return value, _find_common_value(loop.mode for loop in loops)
    if name.startswith("guard.") and scope.is_wide:
        # The guard of another law may not have the setting.
        loops = [
            loop
            for loop in loops
            if name.removeprefix("guard.")
            in {setting.name for setting in guard.list_guard_settings(catalog.get_law(loop.law))}
        ] or loops
    elif len({loop.law for loop in loops}) > 1:
        raise BadInput("name", f"{name} belongs to one law, but {scope} has loops of several laws. Also choose a law.")
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
    if len(chosen) == 1 and (why := explain_never(chosen[0])):
        raise BadInput(field, why)
    others = list(list_active_loops().filter(target__has_key="plant"))
    held = group_by_loop(others, now)
    act = [other for other in others if {other.mode, get_effective_mode(other, held[other.pk], now)} & set(Loop.ACTING)]
    for loop in begins:
        if (competitor := find_competing_loop(loop, [*act, *begins])) is not None:
            raise BadInput(field, explain_refusal(loop, competitor))


def _find_common_value(values: Iterable[Any]) -> object:
    """Return the value that all have, None if they differ."""
    first, *others = values
    return first if all(other == first for other in others) else None


def _validate_parameter(
    loop: Loop, scope: Scope, name: str, value: object, now: datetime, beside: Mapping[str, Any]
) -> tuple[Any, Any]:
    law = catalog.get_law(loop.law)
    if (why := explain_fixed(loop.law, name)) is not None:
        raise BadInput("name", why)
    try:
        value = catalog.get_parameter(law, name).check(value, "value")
    except BadInput as error:
        raise BadInput("name" if error.field == "name" else "value", error.message) from None
    if name == law.actuator:
        return value, None
    others = [row for row in list_for_loop(loop, now) if row.name != name or Scope.build(row) != scope]
    new = {**beside, name: value}
    try:
        # Each is in its range, but they may still contradict each other.
        if name.startswith("guard."):
            settings = get_effective_guard(law, loop.guard, others, now)
            changed = {key.removeprefix("guard."): new[key] for key in new if key.startswith("guard.")}
            guard.read_settings(law, {**settings, **changed})
            return value, settings[name.removeprefix("guard.")]
        parameters = get_effective_parameters(law, loop.parameters, others, now)
        check_parameters(law, {**parameters, **{key: new[key] for key in new if key in parameters}})
        return value, parameters[name]
    except BadInput as error:
        raise BadInput("value", str(error)) from None


def get_effective_parameters(
    law: Law, parameters: Mapping[str, Any], overrides: Iterable[Override], now: datetime
) -> dict[str, Any]:
    """Return all parameters of a law by name, defaults filled in, overrides in their place."""
    return apply_overrides(_read_parameters(law.name, _freeze(parameters)), overrides, now)


def get_effective_guard(
    law: Law, settings: Mapping[str, Any], overrides: Collection[Override], now: datetime
) -> dict[str, Any]:
    """Return the guard's settings by name, overrides `guard.NAME` in their place."""
    own = _read_settings(law.name, _freeze(settings))
    if not overrides:
        return dict(own)
    named = {f"guard.{key}": value for key, value in own.items()}
    return {key.removeprefix("guard."): value for key, value in apply_overrides(named, overrides, now).items()}


# Each tick of each loop reads its own; they seldom change, and many loops have the same.
@lru_cache(maxsize=1_024)
def _read_parameters(law: str, given: bytes) -> Mapping[str, Any]:
    return catalog.read_parameters(catalog.get_law(law), marshal.loads(given))


@lru_cache(maxsize=1_024)
def _read_settings(law: str, given: bytes) -> Mapping[str, Any]:
    return guard.read_settings(catalog.get_law(law), marshal.loads(given))


def _freeze(document: Mapping[str, Any]) -> bytes:
    """Return a JSON object as a key of a cache; version 2 of the format gives equal bytes for equal objects."""
    return marshal.dumps(dict(document), 2)


def read_reason(reason: object) -> str:
    """Return a person's reason, stripped. Raises `BadInput` if it is empty or too long."""
    text = reason.strip() if isinstance(reason, str) else ""
    if not text:
        raise BadInput("reason", "is missing. Give a reason in one sentence, for the on-call team.")
    if len(text) > MAXIMUM_REASON_LENGTH:
        raise BadInput("reason", f"must have at most {MAXIMUM_REASON_LENGTH} characters, not {len(text)}")
    return text


def build_statuses(rows: Iterable[Override]) -> list[OverrideStatus]:
    """Return overrides as the snapshot has them; the setting is read once for all."""
    seconds = plant_settings.get_setting_value("override.notice_seconds")
    return [build_status(row, seconds) for row in rows]


def build_status(override: Override, notice_seconds: float | None = None) -> OverrideStatus:
    """Return an override as the snapshot has it, with the start of the notice of its end."""
    notice, expires_at = None, override.expires_at
    if expires_at is not None:
        seconds = notice_seconds or plant_settings.get_setting_value("override.notice_seconds")
        # an override that is short gives notice for half of its duration
        notice = expires_at - min(timedelta(seconds=seconds), (expires_at - override.created_at) / 2)
    return OverrideStatus(
        id=override.pk,
        scope=str(Scope.build(override)),
        loop=override.loop.name if override.loop else None,
        law=override.law or None,
        queue=override.queue or None,
        node=override.node.name if override.node else None,
        host=override.host or None,
        name=override.name,
        value=override.value,
        instead_of=override.instead_of,
        owner=override.owner.get_username(),
        reason=override.reason,
        replaces=override.replaces,
        created_at=override.created_at.timestamp(),
        expires_at=expires_at.timestamp() if expires_at else None,
        notice_at=notice.timestamp() if notice else None,
    )


def undo(override: Override, *, by: User | None, now: datetime, control: redis.Redis | None = None) -> list[Undone]:
    """End an override and those that were set with it, and restore those that they ended.

    Overrides end as far as they are in force. Restored are those that have time left, under their owner and reason,
    until their own end. Does nothing if the override is over already. Raises `BadInput` if what was in force before is
    no longer valid beside what has been set since; nothing is changed then.
    """
    with transaction.atomic():
        pairs = [(row, _find_ended_override(row, now)) for row in set_together(override, now)]
        # Those without an older one first: restored values are checked without them.
        for ended, older in pairs:
            if older is None:
                end(ended, by=by, now=now, control=control)
        beside = {older.name: older.value for _, older in pairs if older is not None}
        undone = [(ended, older and _restore_override(older, by, now, control, beside)) for ended, older in pairs]
        for ended, _ in undone:
            ended.refresh_from_db()
        return undone


def set_together(override: Override, now: datetime) -> list[Override]:
    """Return what its owner set at the same time, itself included, as far as it is in force."""
    if not holds(override, now):
        return []
    same = list_active(now).filter(owner_id=override.owner_id, created_at=override.created_at)
    return list(same.select_related("loop", "node", "owner").order_by("pk"))


def _find_ended_override(override: Override, now: datetime) -> Override | None:
    """Return the override that this one ended, if it would still run."""
    ids = [row["id"] for row in override.replaces if row["ended"]]
    rows = Override.objects.filter(pk__in=ids).select_related("loop", "node", "owner").order_by("-created_at")
    return next((row for row in rows if row.expires_at is None or row.expires_at > now), None)


def _restore_override(
    older: Override, by: User | None, now: datetime, control: redis.Redis | None, beside: dict[str, Any]
) -> Override:
    # It replaces the undone one in one step: a queue that stays paused lets nothing pass.
    return set_override(
        name=older.name,
        value=older.value,
        owner=older.owner,
        reason=older.reason,
        now=now,
        **Scope.build(older).get_field_values(),
        expires_at=older.expires_at,
        endless=older.expires_at is None,
        control=control,
        beside=beside,
        by=by,
    )


def select_due_overrides(before: datetime) -> QuerySet[Override]:
    """Return the overrides that ended before this time."""
    return Override.objects.filter(ended_at__lt=before)
