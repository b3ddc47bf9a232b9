"""One loop, always the same shape: lease → observe → parameters → decide → guard → mode → record → apply.

The record comes before the act, in one transaction with the law's state and under the lease's fencing number.
Then:

- a tick that was paused until another took its lease writes nothing, and so applies nothing;
- a tick that dies before its action leaves an open entry, which the next tick applies
  (`workers.control.ledger.ledger`);
- one that dies after its action leaves the same, and the action's worker ids make the repetition harmless.

| mode | decides | state | applies |
|---|---|---|---|
| auto | the law, guarded | advances by what is applied | yes |
| advise | the law, guarded | advances by nothing applied | no: it records what it would do |
| hold | the law, guarded | stands still | no: it records what it would have done |
| manual | a person's value (override of the actuator), guarded | stands still | yes |

A loop whose queue is paused or whose worker host is drained is on hold meanwhile, whatever its mode. What law
and guard remember is in `workers.control.loop_memory`.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import redis
from django.db import transaction

from controllers import catalog
from controllers.framework import guard
from controllers.framework.guard import Guarded, Measured
from controllers.framework.law import Law
from controllers.framework.reason import ADVICE_ONLY, not_applied
from controllers.framework.sensed import Counters, Sensed
from queues.errors import BadInput, WeirError
from workers.control import loop_memory
from workers.control.kinds.registry import kind_of
from workers.control.ledger import ledger
from workers.control.parts import quality
from workers.control.parts.kind import Proposer
from workers.coordination.leases import Lease
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override
from workers.observability.spans import note, span
from workers.plants.plant import Plant
from workers.steering import overrides, plant_settings, stopped
from workers.steering.scope import active_loops

logger = logging.getLogger(__name__)
Mode = Loop.Mode
KEEPING = (Mode.AUTO, Mode.HOLD)  # what the loop has set stays
# Longer than a tick takes; a tick killed in the middle keeps its loop still for at most this long.
LEASE_SECONDS = 4.0
# A tick a little early by jitter is in time; one much earlier is a second delivery of the same beat.
DUE_SHARE = 0.8
FRESH = timedelta(seconds=2)  # for so long a law's loops are ticked by what was read at first
# An open action older than this many intervals is not repeated: it was decided on a plant long gone.
REPEAT_INTERVALS = 3.0


@dataclass(frozen=True)
class _Setting:
    """What is in force for one tick: mode, parameters, guard, and in manual the person's value."""

    mode: str
    parameters: dict[str, Any]
    guard: dict[str, Any]
    manual: dict[str, Any] | None
    conflict: str = ""  # why the overrides of parameters and guard are left out
    stopped: str = ""  # what people have stopped that it steers

    def recorded(self) -> dict[str, Any]:
        """As the ledger keeps it."""
        manual = {} if self.manual is None else {"manual": self.manual}
        return {**self.parameters, "guard": self.guard, **manual}


def tick_law(
    law: str, plant: Plant, now: datetime, control: redis.Redis, clock: Callable[[], float] = monotonic
) -> list[LedgerEntry]:
    """Tick every due loop of a law on one snapshot, after judging what earlier actions did and noting expired
    overrides.

    An error in one loop stops no other: it is logged, and the loop's tick records nothing. Where loops before
    took long, as an order to another's plant may, the rest have a snapshot of their own, and what people have
    set since. `clock`: seconds that only rise. Raises what `observe` raises.
    """
    with span("observe"):
        snapshot = plant.observe()
    overrides.expire_due(now, control)
    if not _too_old(snapshot, now):
        ledger.judge_due(now, snapshot)
    loops = list(active_loops().filter(law=law).order_by("name"))
    in_force = overrides.by_loop(loops, now)
    loops = [loop for loop in loops if _due(loop, now) or _resumes(loop, in_force[loop.pk], snapshot, now)]
    entries = []
    began, this = clock(), now
    for place, loop in enumerate(loops):
        passed = timedelta(seconds=clock() - began)
        if now + passed - this > FRESH:
            this, snapshot = now + passed, plant.observe()
            in_force = overrides.by_loop(loops[place:], this)
        with span("tick", loop=loop.name):
            try:
                entry = _tick(loop, plant, snapshot, this, control, in_force[loop.pk])
            except Exception:
                logger.exception("The tick of %s failed; it is tried again at its next interval.", loop.name)
                continue
        if entry is not None:
            entries.append(entry)
    return entries


def tick(loop: Loop, plant: Plant, now: datetime, control: redis.Redis) -> LedgerEntry | None:
    """One tick of one loop on a snapshot of its own; None when another has the lease or was there since."""
    in_force = overrides.on(loop, now)
    return _tick(loop, plant, plant.observe(), now, control, in_force)


def _due(loop: Loop, now: datetime) -> bool:
    if loop.ticked_at is None:
        return True
    # The distance, not the difference: a clock set back by an hour must not stop the loop for an hour.
    return abs((now - loop.ticked_at).total_seconds()) >= DUE_SHARE * loop.interval_seconds


def _resumes(loop: Loop, in_force: list[Override], snapshot: Snapshot, now: datetime) -> bool:
    """Whether a hold has just ended: what was met meanwhile is judged at once, not an interval later."""
    if loop_memory.last_mode(loop.state) not in Loop.HANDED_OVER or stopped.why_held(loop.target, snapshot):
        return False
    return overrides.mode_of(loop, in_force, now) not in Loop.HANDED_OVER


def _too_old(snapshot: Snapshot, now: datetime) -> bool:
    at_seconds = snapshot.at
    return at_seconds is None or abs(now.timestamp() - at_seconds) > guard.STALE_SECONDS


def _tick(
    loop: Loop,
    plant: Plant,
    snapshot: Snapshot,
    now: datetime,
    control: redis.Redis,
    in_force: list[Override],
) -> LedgerEntry | None:
    lease = Lease(control, f"loop:{loop.pk}", LEASE_SECONDS, at_least=loop.fence)
    with lease as fence:
        if fence is None:
            return None
        # What was read before the lease was ours may be outdated: the state, and whether it is still our
        # turn.
        read_at = loop.ticked_at
        loop.refresh_from_db()
        if loop.ticked_at != read_at:
            return None
        own = effective(loop, catalog.law(loop.law), in_force, now)
        setting = _held(own, stopped.why_held(loop.target, snapshot))
        if (unfinished := ledger.open_entry(loop)) is not None:
            with lease.renewed():
                _finish(unfinished, setting.mode, loop, plant, now)
        entry = _record(loop, setting, snapshot, now, fence, in_force)
        if entry is not None:
            note({"weir.decision": entry.pk})
            # An order to another's server may take longer than the lease, and then be given twice.
            calls = entry.action is not None or kind_of(loop.law).keeper is not None
            with span("act", decision=entry.pk), lease.renewed() if calls else nullcontext():
                _follow(entry, loop, plant, snapshot, now)
        return entry


def _follow(entry: LedgerEntry, loop: Loop, plant: Plant, snapshot: Snapshot, now: datetime) -> None:
    """What comes of an entry: it is applied, or what was applied before is kept, or it is put to a person."""
    kind = kind_of(loop.law)
    if _acts(entry):
        if ledger.is_ours(entry):
            _apply(entry, loop, plant)
        else:
            logger.warning("A later tick of %s was there; this one does nothing any more.", loop.name)
    elif entry.mode in KEEPING and kind.keeper is not None:
        kind.keeper(entry, loop, plant)
    elif entry.action is not None and entry.mode == Mode.ADVISE and kind.proposer is not None:
        _propose(entry, kind.proposer, snapshot, now)


def _acts(entry: LedgerEntry) -> bool:
    return entry.action is not None and entry.mode in ledger.APPLYING_MODES


def _record(
    loop: Loop,
    setting: _Setting,
    snapshot: Snapshot,
    now: datetime,
    fence: int,
    in_force: list[Override],
) -> LedgerEntry | None:
    """Decide and write the entry and the state, together and only if no later tick was there."""
    law, kind = catalog.law(loop.law), kind_of(loop.law)
    before = loop_memory.before(loop, law, setting.mode, setting.parameters)
    with span("decide"):
        sensed = _sensed(loop, snapshot, setting, before["sensor"], now)
        guarded = _decide(law, setting, before, sensed, now)
    with span("record"), transaction.atomic():
        # The greatest number wins: a tick that lost its lease on the way finds its own refused, and leaves no
        # trace.
        ours = Loop.objects.filter(pk=loop.pk, fence__lt=fence)
        state = loop_memory.after(setting.mode, before, guarded, sensed)
        if not ours.update(fence=fence, state=state, ticked_at=now):
            logger.warning("A later tick of %s was there; this one leaves no trace.", loop.name)
            return None
        return ledger.write(
            loop,
            at=now,
            fence=fence,
            mode=setting.mode,
            parameters=setting.recorded(),
            state_before=before,
            observation={**sensed.observation, **_quality(loop, sensed.measured, setting, snapshot, now)},
            guarded=guarded,
            reason=_reason(setting, guarded, in_force, now),
            baseline=kind.readings(loop.target, snapshot),
        )


def _sensed(
    loop: Loop, snapshot: Snapshot, setting: _Setting, counters: Counters | None, now: datetime
) -> Sensed:
    """What the loop observes: its sensor, what became of its proposals, and what a start excuses."""
    kind = kind_of(loop.law)
    sensed = kind.sensor(loop.target, snapshot, counters, now.timestamp())
    if kind.recall is not None and setting.mode == Mode.ADVISE:
        recalled = kind.recall(loop, sensed.observation)
        sensed = replace(sensed, observation={**sensed.observation, **recalled})
    measured = quality.excused(sensed.measured, loop.target, snapshot, now.timestamp())
    return replace(sensed, measured=replace(measured, unit_cost=_unit_cost(loop, snapshot, setting)))


def _unit_cost(loop: Loop, snapshot: Snapshot, setting: _Setting) -> float | None:
    """Money for a unit of the actuator, where a cap needs it; None where it has no price."""
    hours = kind_of(loop.law).unit_hours
    if not setting.guard["cost_cap"] or hours is None:
        return None
    of_one, price = (
        hours(loop.target, snapshot, setting.parameters),
        plant_settings.value("price.worker_hour"),
    )
    return None if of_one is None or price is None else float(of_one * price)


def effective(loop: Loop, law: Law, in_force: list[Override], now: datetime) -> _Setting:
    """The loop's mode, parameters and guard with the overrides in force in their place.

    Overrides that agreed may contradict each other once one of them has ended: then the loop's own values
    hold, and `conflict` says why, rather than that the loop steers with what its law refuses.
    """
    mode, manual = overrides.mode_of(loop, in_force, now), None
    if mode == Mode.MANUAL:
        value = overrides.value_of(str(law.actuator), in_force, now)
        manual = {} if value is None else {str(law.actuator): value}
    applied, conflict = in_force, ""
    try:
        law.check(overrides.effective_parameters(law, loop.parameters, applied, now))
        guard.read_settings(law, overrides.effective_guard(law, loop.guard, applied, now))
    except BadInput as error:
        applied, conflict = [], str(error).rstrip(".")
    return _Setting(
        mode=mode,
        parameters=overrides.effective_parameters(law, loop.parameters, applied, now),
        guard=overrides.effective_guard(law, loop.guard, applied, now),
        manual=manual,
        conflict=conflict,
    )


def _held(setting: _Setting, why: str) -> _Setting:
    """On hold while what the loop steers is stopped."""
    return replace(setting, mode=Mode.HOLD, manual=None, stopped=why) if why else setting


def _decide(law: Law, setting: _Setting, before: dict[str, Any], sensed: Sensed, now: datetime) -> Guarded:
    return guard.decide(
        law,
        setting.parameters,
        before["law"],
        sensed.observation,
        settings=setting.guard,
        guard_state=before["guard"],
        now_seconds=now.timestamp(),
        measured=sensed.measured,
        manual=setting.manual,
        applies=setting.mode != Mode.ADVISE,
    )


def _quality(
    loop: Loop, measured: Measured, setting: _Setting, snapshot: Snapshot, now: datetime
) -> dict[str, Any]:
    """As the ledger keeps it; lateness and cause only where there are any."""
    since = None if loop.ticked_at is None else abs((now - loop.ticked_at).total_seconds())
    late = quality.late_seconds(since, loop.interval_seconds)
    stale = float(setting.guard["stale_seconds"])
    cause = quality.cause(measured, stale, late, loop.target, snapshot, now.timestamp())
    found = {"age_seconds": measured.age_seconds, "unfit": measured.invalid, "idle": measured.idle}
    known = {"late_seconds": late or None, "cause": cause or None, "unit_cost": measured.unit_cost}
    return {**found, **{name: value for name, value in known.items() if value is not None}}


def _reason(setting: _Setting, guarded: Guarded, in_force: list[Override], now: datetime) -> str:
    reason = guarded.decision.reason
    if setting.conflict:
        reason = f"{reason} The overrides contradict each other and are left out: {setting.conflict}."
    if setting.mode == Mode.ADVISE:
        return not_applied(reason, ADVICE_ONLY)
    if setting.stopped:
        return not_applied(reason, f"on hold, {setting.stopped}")
    if setting.mode == Mode.HOLD:
        return not_applied(reason, f"on hold{_until(in_force, now)}")
    return reason


def _until(in_force: list[Override], now: datetime) -> str:
    """When the mode reverts, in words; nothing where it does not."""
    holding = [each for each in in_force if each.name == "mode" and overrides.holds(each, now)]
    if not holding or holding[-1].expires_at is None:
        return ""
    return f" until {holding[-1].expires_at:%Y-%m-%d %H:%M:%S} UTC"


def _apply(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Do it, and note that it was done; an error of the plant is the entry's, and the loop goes on at its
    next tick.
    """
    try:
        kind_of(loop.law).actuator(entry, loop, plant)
    except Exception as error:
        logger.warning("%s could not be applied: %s", loop.name, error)
        _give_up(entry, loop, f"{type(error).__name__}: {error}")
        return
    ledger.confirm(entry)


def _give_up(entry: LedgerEntry, loop: Loop, error: str) -> None:
    """The entry says why its action was not applied, and the law does not go on as if it had been."""
    ledger.fail(entry, error)
    loop_memory.undo(entry, loop)


def _propose(entry: LedgerEntry, proposer: Proposer, snapshot: Snapshot, now: datetime) -> None:
    """Put advice before a person; what can't be proposed is the entry's error."""
    try:
        proposer(entry, snapshot, now)
    except WeirError as error:
        ledger.fail(entry, str(error))


def _finish(entry: LedgerEntry, mode: str, loop: Loop, plant: Plant, now: datetime) -> None:
    """Apply what a tick that died had recorded, unless too much time has passed, or the loop may not act any
    more as it did then; the entry says so.
    """
    age_seconds = abs((now - entry.at).total_seconds())
    ended = "Its tick ended before the action was confirmed; not repeated"
    if mode != entry.mode:
        _give_up(entry, loop, f"{ended}: the loop was in mode {entry.mode}, and is in mode {mode} now.")
    elif age_seconds > REPEAT_INTERVALS * loop.interval_seconds:
        _give_up(entry, loop, f"{ended} after {age_seconds:.0f} s.")
    else:
        _apply(entry, loop, plant)
