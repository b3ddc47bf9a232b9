"""User actions on loops and nodes: one implementation for pages and API, authorized and audited.

Each function authorizes the actor, makes the change, and writes the audit entry in one transaction. All raise
`PermissionDenied`, and `BadInput` that names the field.
"""

import functools
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import redis
from django.db import transaction

from common.errors import BadInput
from common.stored_document import convert
from console.accounts.access import Actor, require_permission
from console.actions.shorter_stop import require_later_end
from console.audit import audit_log
from console.display.override_words import describe_end, format_short_value
from controllers import catalog
from queues import projection
from queues.models import Node, Queue
from workers.control import advice
from workers.coordination.leases import lock_until_commit
from workers.documents.loops import AdviceEffect
from workers.models import Loop, ModeProposal, Override, Plan
from workers.steering import enforcing, overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope
from workers.windows.scope import OWN_PLANT, list_target_subjects

NEVER_SAID = Expiry()
THRESHOLDS = {"busy": "busy_threshold", "toobusy": "toobusy_threshold"}


def override_by_name(
    actor: Actor,
    name: str,
    value: object,
    *,
    loop: Loop | None = None,
    law: str = "",
    queue: str = "",
    node: str = "",
    reason: str,
    now: datetime,
    expiry: Expiry,
) -> list[Override]:
    """Override a value whose name may be `law/name`, on one loop or on the scope of the names of law, queue, and node.

    The law of the name must match the scope's; a missing queue or node is named.
    """
    of_law, _, name = name.rpartition("/")
    if not name:
        raise BadInput("name", "is missing. Choose a value to override.")
    if of_law and law not in (of_law, ""):
        raise BadInput("name", f"{name} belongs to {of_law}, but the scope is {law[:40]}. Choose one law.")
    law = "" if loop is not None else of_law or law
    if law:
        catalog.get_law(law)
    if queue and not Queue.objects.filter(name=queue).exists():
        raise BadInput("queue", f"{queue[:40]} is not a queue.")
    node_row = Node.objects.filter(name=node).first() if node else None
    if node and node_row is None:
        raise BadInput("node", f"{node[:40]} is not a node.")
    return override(actor, Scope(loop, law, queue, node_row), {name: value}, reason=reason, now=now, expiry=expiry)


@transaction.atomic
def override(
    actor: Actor, scope: Scope, values: Mapping[str, Any], *, reason: str, now: datetime, expiry: Expiry
) -> list[Override]:
    """Override values on one loop or on all loops of a scope, all or none.

    Values are parameters, guard settings, and the actuator; for a wide scope also the mode.
    """
    action = "loop.mode" if "mode" in values else "override.set"
    require_permission(actor, action, list_scope_queues(scope), list_scope_subjects(scope))
    if any(scope.is_itself(name) for name in values):
        raise BadInput("name", "is not a value of a loop. Set it on the page of its node, queue, or host.")
    if "mode" in values and not scope.is_wide:
        raise BadInput("name", "can't be mode for a single loop. Use the loop's mode switch, or choose a parameter.")
    if not values:
        raise BadInput("value", "is already in force. Change at least one value.")
    return [
        _put(actor, "override.set", name, value, scope, expiry, reason=reason, now=now, beside=values)
        for name, value in values.items()
    ]


@transaction.atomic
def override_thresholds(
    actor: Actor,
    node: Node,
    thresholds: Mapping[str, Any],
    *,
    reason: str,
    now: datetime,
    control: redis.Redis,
    expiry: Expiry,
) -> list[Override]:
    """Override `busy`, `toobusy`, or both for a node; errors name the wrong one."""
    require_permission(actor, "node.thresholds", subjects=[f"node/{node.name}"])
    held = enforcing.get_node_thresholds(now)[node.name]
    changed = {key: value for key, value in thresholds.items() if value != held[key]}
    if not changed:
        raise BadInput("busy", "is already in force. Change busy or toobusy.")
    # Upwards the upper one is changed first and downwards the lower one, so that they are in order in between.
    order = sorted(changed, key=lambda key: (key == "toobusy") == (changed[key] < held[key]))
    put = functools.partial(_put, actor, "node.thresholds", reason=reason, now=now)
    # In the same order as ending one locks them: the overrides, the projection, and the audit log last.
    list(overrides.list_active(now).filter(node=node).select_for_update(of=("self",)))
    projection.lock_revision()
    made = []
    for key in order:
        try:
            made.append(put(THRESHOLDS[key], changed[key], Scope(node=node), expiry))
        except BadInput as error:
            raise BadInput(key if error.field == "value" else error.field, error.message) from None
    # The last step of a change: before it, the change may be rolled back, and agents must not know of it.
    projection.project(control, enforcing.get_node_thresholds(now))
    return made


def _put(
    actor: Actor,
    action: str,
    name: str,
    value: object,
    scope: Scope,
    expiry: Expiry,
    *,
    reason: str,
    now: datetime,
    beside: Mapping[str, Any] | None = None,
) -> Override:
    if expiry.endless:
        require_permission(actor, "override.endless", list_scope_queues(scope))
    made = overrides.set_override(
        name=name,
        value=value,
        owner=actor.account,
        reason=reason,
        now=now,
        beside=beside,
        **scope.get_field_values(),
        **vars(expiry),
    )
    before = {name: made.instead_of}
    if made.replaces:
        before["replaces"] = made.replaces
    after = {name: made.value, "expires_at": _format_end_time(made.expires_at)}
    audit_log.record(actor, action, str(scope), reason=made.reason, before=before, after=after)
    return made


def _format_end_time(end: datetime | None) -> str | None:
    return end.isoformat() if end else None


@transaction.atomic
def extend_override(
    actor: Actor, override: Override, expiry: Expiry, *, now: datetime, control: redis.Redis | None = None
) -> Override:
    """Extend an override by minutes, or until a time; at most the setting's days from now."""
    require_permission(actor, "override.extend", list_scope_queues(Scope.build(override)))
    _read_anew(override)
    before = override.expires_at
    expires_at = expiry.compute_later(before if overrides.holds(override, now) else None, now)
    overrides.extend(override, now=now, expires_at=expires_at, control=control)
    span = {"expires_at": _format_end_time(before)}, {"expires_at": _format_end_time(override.expires_at)}
    audit_log.record(actor, "override.extend", str(Scope.build(override)), before=span[0], after=span[1])
    return override


@transaction.atomic
def end_override(actor: Actor, override: Override, *, now: datetime, control: redis.Redis, reason: str = "") -> bool:
    """End an override now; return False, without an audit entry, if it had ended already.

    Ending one restores the usual values, so the reason is optional.
    """
    require_permission(actor, "override.end", list_scope_queues(Scope.build(override)))
    reason = overrides.read_reason(reason) if reason.strip() else ""
    _read_anew(override)
    if not overrides.holds(override, now):
        return False
    _require_no_running_drain(override)
    overrides.end(override, by=actor.user, now=now, control=control)
    audit_log.record(
        actor,
        "override.end",
        str(Scope.build(override)),
        reason=reason,
        before={override.name: override.value, "expires_at": _format_end_time(override.expires_at)},
        after={override.name: override.instead_of},
    )
    return True


def _require_no_running_drain(override: Override) -> None:
    """Raise `BadInput` while a plan still empties the node."""
    if override.node is not None and override.name == "drained":
        running = Plan.objects.filter(empties=override.node.name, state__in=(Plan.State.APPROVED, Plan.State.RUNNING))
        if (plan := running.first()) is not None:
            raise BadInput("node", f"{override.node.name} is being drained. Stop plan {plan.pk} first.")


def _read_anew(override: Override) -> None:
    """Lock and return its current row: it may have been extended or ended since it was read."""
    override.refresh_from_db(from_queryset=Override.objects.select_for_update())


@transaction.atomic
def undo_override(actor: Actor, override: Override, *, now: datetime, control: redis.Redis) -> list[overrides.Undone]:
    """Undo an override and everything set with it.

    Overrides that it ended are in force again for their remaining time. Does nothing if it had ended already.
    """
    for row in (override, *overrides.set_together(override, now)):
        require_permission(actor, "override.undo", list_scope_queues(Scope.build(row)))
    undone = overrides.undo(override, by=actor.user, now=now, control=control)
    for ended, again in undone:
        after = {ended.name: ended.instead_of}
        if again is not None:
            after = {
                ended.name: again.value,
                "expires_at": _format_end_time(again.expires_at),
                "owner": str(again.owner),
            }
        before = {ended.name: ended.value, "expires_at": _format_end_time(ended.expires_at)}
        audit_log.record(actor, "override.undo", str(Scope.build(ended)), before=before, after=after)
    return undone


@transaction.atomic
def set_mode(
    actor: Actor,
    loop: Loop,
    mode: str,
    *,
    reason: str,
    now: datetime,
    expiry: Expiry = NEVER_SAID,
    value: object = None,
) -> list[Override]:
    """Set the mode of a loop; return the overrides that were set, the mode's first.

    hold and manual need an expiry; auto and advise without one become the loop's own mode and end a hold. A hold in
    place of a longer one is rejected. `value` is what manual applies.
    """
    require_permission(actor, "loop.mode", list_scope_queues(Scope(loop)), list_scope_subjects(Scope(loop)))
    if mode not in Loop.Mode.values:
        raise BadInput("mode", f"must be one of {', '.join(Loop.Mode.values)}, not {mode!r}.")
    if value is not None and mode != Loop.Mode.MANUAL:
        raise BadInput("value", f"is only for mode manual. Omit it for mode {mode}.")
    if expiry == NEVER_SAID:
        if mode in Loop.HANDED_OVER:
            raise BadInput("minutes", f"is missing. Mode {mode} is temporary and needs a duration.")
        _own_mode(actor, loop, mode, reason, now)
        return []
    if mode == Loop.Mode.HOLD:
        require_later_end(Scope(loop), "mode", mode, expiry, now, "mode")
    put = functools.partial(_put, actor, scope=Scope(loop), expiry=expiry, reason=reason, now=now)
    made = [put("loop.mode", "mode", mode)]
    if value is not None:
        actuator = catalog.get_law(loop.law).actuator
        if actuator is None:
            raise BadInput("value", f"{loop.law} has no single value to set manually.")
        made.append(put("override.set", actuator, value))
    return made


@transaction.atomic
def approve_mode_proposal(actor: Actor, loop: Loop, hash: str, *, reason: str, now: datetime) -> ModeProposal:
    """Set a loop to auto as its advice of a day supports, within the advised range where its guard has one.

    Raises `BadInput` naming hash or proposal, and what `set_mode` raises.
    """
    require_permission(actor, "loop.mode", list_scope_queues(Scope(loop)), list_scope_subjects(Scope(loop)))
    proposal = _open_mode_proposal(loop)
    if hash != proposal.hash:
        raise BadInput("hash", "does not match the proposal. Reload the loop's page and approve the proposal shown.")
    effect = convert(AdviceEffect, proposal.figures)
    row = Loop.objects.select_for_update().get(pk=loop.pk)
    if row.mode != Loop.Mode.ADVISE or advice.compute_hash(row, effect) != proposal.hash:
        raise BadInput("proposal", "is out of date: the loop's settings have changed. Wait for the next proposal.")
    set_mode(actor, row, Loop.Mode.AUTO, reason=reason, now=now)
    if advice.is_bounded(row):
        guard = {**row.guard, "minimum": float(effect.least), "maximum": float(effect.most)}
        Loop.objects.filter(pk=row.pk).update(guard=guard)
        audit_log.record(
            actor, "settings.change", f"{row.name} guard", reason=reason.strip(), before=row.guard, after=guard
        )
    return _close_mode_proposal(actor, proposal, ModeProposal.State.APPROVED, proposal.until, now)


@transaction.atomic
def reject_mode_proposal(actor: Actor, loop: Loop, *, reason: str, now: datetime) -> ModeProposal:
    """Let a loop advise for another week before it is evaluated again. Raises `BadInput` naming proposal or reason."""
    require_permission(actor, "loop.mode", list_scope_queues(Scope(loop)), ())
    proposal, why = _open_mode_proposal(loop), overrides.read_reason(reason)
    audit_log.record(actor, "mode_proposal.reject", loop.name, reason=why, after={"hash": proposal.hash[:8]})
    return _close_mode_proposal(actor, proposal, ModeProposal.State.REJECTED, now + advice.WEEK - advice.DAY, now)


def _open_mode_proposal(loop: Loop) -> ModeProposal:
    """Return the open proposal, locked until the transaction ends."""
    proposal = ModeProposal.objects.select_for_update().filter(loop=loop, state=ModeProposal.State.PROPOSED).first()
    if proposal is None:
        raise BadInput("proposal", f"does not exist: {loop.name} has no open proposal.")
    return proposal


def _close_mode_proposal(
    actor: Actor, proposal: ModeProposal, state: str, until: datetime, now: datetime
) -> ModeProposal:
    proposal.state, proposal.until, proposal.decided_by, proposal.decided_at = state, until, actor.user, now
    proposal.save(update_fields=["state", "until", "decided_by", "decided_at"])
    return proposal


def _own_mode(actor: Actor, loop: Loop, mode: str, reason: str, now: datetime) -> None:
    if not reason.strip():
        raise BadInput("reason", "is missing. Give a reason in a sentence.")
    held = [row for row in overrides.list_for_loop(loop, now) if row.name == "mode" and row.occurrence is None]
    if wide := [override_ for override_ in held if override_.loop_id is None]:
        where = f"{Scope.build(wide[-1])} by {wide[-1].owner}"
        raise BadInput("mode", f"is overridden for {where}. End that override, or set {mode} for a limited time.")
    for override in held:
        overrides.end(override, by=actor.user, now=now)
    lock_until_commit(overrides.LOCK)
    overrides.require_single_owner([loop], mode, now, "mode")
    before = held[-1].value if held else loop.mode
    Loop.objects.filter(pk=loop.pk).update(mode=mode)
    audit_log.record(
        actor, "loop.mode", loop.name, reason=reason.strip(), before={"mode": before}, after={"mode": mode}
    )


def require_no_override(loop: Loop, name: str, field: str, now: datetime) -> None:
    """Reject a permanent value while an override replaces it, since it would have no effect."""
    held = [override_ for override_ in overrides.list_for_loop(loop, now) if override_.name == name]
    if held:
        newest, owner = held[-1], held[-1].owner.get_username()
        by = f"with {format_short_value(newest.value)} on {Scope.build(newest)} by {owner} {describe_end(newest)}"
        raise BadInput(field, f"is overridden {by}. End that override first.")


def list_scope_queues(scope: Scope) -> list[str] | None:
    """Return the queue that everything within a scope is about; None for the whole plant."""
    queue = scope.loop.target.get("queue") if scope.loop is not None else scope.queue
    return [queue] if queue else None


def list_scope_subjects(scope: Scope) -> list[str]:
    """Return what a change in a scope changes: its queue, node, application, and plant; else the whole plant."""
    target = dict(scope.loop.target) if scope.loop is not None else {"queue": scope.queue}
    if scope.node is not None:
        target["node"] = scope.node.name
    return list_target_subjects(target) or [OWN_PLANT]
