"""The tick of loops: observe → parameters → decide → guard → record → apply.

The record is written before the action, in one transaction with the law's state and under the lease's fencing
number. Therefore:

- a tick that was paused until another took its lease writes nothing and applies nothing;
- a tick that dies before its action leaves an open entry, which the next tick applies
  (`workers.control.ledger.ledger`);
- a tick that dies after its action leaves an open entry too, and the action's worker ids make the repetition
  harmless.

| mode | decides | state | applies |
|---|---|---|---|
| auto | the law, guarded | advances by what is applied | yes |
| advise | the law, guarded | advances as if nothing was applied | no: records what it would do |
| hold | the law, guarded | does not change | no: records what it would have done |
| manual | a person's value (override of the actuator), guarded | does not change | yes |

A loop whose queue is paused or whose worker host is drained is on hold for that time, whatever its mode.

Law and guard remember what is in force and not what was proposed: a limit that was not applied limits nothing, a budget
that was not spent remains, and a level of the remedy ladder that was not enabled was not tried. In advise, and after an
action that failed, the law therefore continues as if nothing had been done; in hold and manual its state does not
change. When the law starts to act, stops acting, or takes over again, it forgets values that have expired
(`Law.resume`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import redis
from django.db import InterfaceError, OperationalError

from common.errors import BadInput, WeirError
from common.parameter import build
from controllers import catalog, request
from controllers.framework import guard
from controllers.framework.guard import STALE_SECONDS, GuardedDecision, ObservationQuality
from controllers.framework.law import Law, assumes_applied, resume_state
from controllers.framework.reason import ADVICE_ONLY, format_not_applied
from controllers.framework.sensed import Counters, Measurement
from workers.control.kinds.registry import get_kind
from workers.control.ledger import ledger
from workers.control.ledger.ledger import EvaluatedTick
from workers.coordination.leases import LeaseGroup
from workers.documents import parts
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override
from workers.observability.spans import note, span
from workers.plants.plant import Plant
from workers.steering import overrides, plant_settings, scope
from workers.windows.occurrences import describe_window

logger = logging.getLogger(__name__)
# Longer than a tick takes. A tick that is killed blocks its loops for at most this long.
LEASE_SECONDS = 4.0
# An open action that is older than this many intervals is not repeated, because the plant has changed since the
# decision. A tick that died keeps its lease for 4 s; the next holder may still apply what that tick recorded.
REPEAT_INTERVALS, REPEAT_SECONDS = 3.0, 6.0
# How long it is trusted that no later tick has run, and how long a completed action may stay unconfirmed. A process
# that is frozen for longer asks the ledger before it acts.
CHECK_SECONDS = 0.25
# A tick counts as late from this fraction of its interval and this many seconds.
LATE_SHARE, LATE_SECONDS = 1.0, 2.0
HOST = "host"
Mode = Loop.Mode
KEEPING = (Mode.AUTO, Mode.HOLD)  # modes in which the values that the loop has set are kept alive
Document = Mapping[str, Any]
State = dict[str, Any]
Failed = Callable[[Loop, Exception], None]


class DueLoop(NamedTuple):
    """A due loop, with the values that the search for due loops read. queue, node: queue and node of its target."""

    pk: int
    fence: int
    ticked_at: datetime | None
    law: str = ""
    queue: str = ""
    node: str = ""


class Circumstances(NamedTuple):
    """Inputs common to the loops of a tick: the plant's snapshot and all overrides in force at that time."""

    snapshot: Snapshot
    now: datetime
    overrides: list[Override]


def tick_loops(
    due: Sequence[DueLoop],
    seen: Circumstances,
    plant: Plant,
    control: redis.Redis,
    clock: Callable[[], float],
    failed: Failed,
) -> list[LedgerEntry]:
    """Tick some loops on one snapshot and return the entries of those that were ticked.

    Loops are left out if their lease was taken or another process ticked them in between. failed: called for an error
    of one of them, which stops no other. clock: seconds that only increase.
    """
    snapshot, now = seen.snapshot, seen.now
    leases = LeaseGroup(control, {f"loop:{due_loop.pk}": due_loop.fence for due_loop in due}, LEASE_SECONDS)
    with span("tick", loops=len(due)), leases as fences:
        # They are read again under their leases, because they may have changed or no longer be due.
        ticked_at = {due_loop.pk: due_loop.ticked_at for due_loop in due if f"loop:{due_loop.pk}" in fences}
        rows = Loop.objects.filter(pk__in=ticked_at).order_by("name")
        loops = [loop for loop in rows if loop.ticked_at == ticked_at[loop.pk]]
        in_force = overrides.spread(loops, seen.overrides)
        unfinished = ledger.open_entries(loop.pk for loop in loops)
        ticks: list[EvaluatedTick] = []
        for loop in loops:
            with span("decide", loop=loop.name):
                try:
                    held = in_force[loop.pk]
                    if loop.pk in unfinished:
                        with leases.keep_renewed():
                            finish(unfinished[loop.pk], resolve_setting(loop, held, snapshot, now), loop, plant, now)
                    ticks.append(evaluate_loop(loop, held, snapshot, now, fences[f"loop:{loop.pk}"]))
                except Exception as error:
                    failed(loop, error)
        checked_at = clock()
        recorded = record(ticks, now, failed)
        # A call of a server may take longer than a lease, and the work would then be done twice.
        long = any(tick.entry.action is not None or get_kind(tick.loop.law).keeper is not None for tick in recorded)
        with leases.keep_renewed() if long else nullcontext():
            apply(recorded, plant, snapshot, now, clock, failed, checked_at)
    return [tick.entry for tick in recorded]


def evaluate_loop(
    loop: Loop, in_force: list[Override], snapshot: Snapshot, now: datetime, fence: int = 0, *, recalls: bool = True
) -> EvaluatedTick:
    """Return the loop's decision on this snapshot with these overrides in force, and what the loop remembers then.

    The twin (`workers.twin`) calls this function, too. recalls: whether to read declined proposals from the database
    (`LoopKind.recall`).
    """
    law, kind = catalog.get_law(loop.law), get_kind(loop.law)
    setting = resolve_setting(loop, in_force, snapshot, now)
    before = load_memory(loop, law, setting.mode, setting.parameters)
    sensed = observe(loop, setting, before["sensor"], snapshot, now, recalls)
    guarded = guard.decide(  # asks the law, unless the measurement is invalid
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
    entry = ledger.build_entry(
        loop,
        at=now,
        fence=fence,
        mode=setting.mode,
        parameters=setting.build_record(),
        state_before=before,
        observation={**sensed.observation, **describe_quality(loop, sensed, setting, snapshot, now)},
        guarded=guarded,
        reason=setting.format_reason(guarded.decision.reason, in_force, now),
        baseline=kind.readings(loop.target, snapshot),
    )
    memory = build_memory(setting.mode, before, guarded, sensed)
    return EvaluatedTick(loop, loop.fence, entry, memory, _is_at_rest(entry, loop, in_force, snapshot))


@dataclass(frozen=True)
class TickSetting:
    """Settings of a tick: mode, parameters, guard, and in manual the person's value."""

    mode: str
    parameters: dict[str, Any]
    guard: dict[str, Any]
    manual: dict[str, Any] | None
    conflict: str = ""  # why the overrides of parameters and guard are ignored
    stopped: str = ""  # the pauses and drains of what the loop controls

    def build_record(self) -> dict[str, Any]:
        """Build the record that the ledger stores."""
        manual = {} if self.manual is None else {"manual": self.manual}
        return {**self.parameters, "guard": self.guard, **manual}

    def format_reason(self, decided: str, in_force: list[Override], now: datetime) -> str:
        """Return the decision's reason, and why the decision is not applied."""
        if self.conflict:
            decided = f"{decided} The overrides contradict each other and are ignored: {self.conflict}."
        if self.stopped:
            return format_not_applied(decided, f"on hold, {self.stopped}")
        modes = [override for override in in_force if override.name == "mode" and overrides.holds(override, now)]
        if modes and modes[-1].occurrence is not None and modes[-1].value == self.mode:
            return format_not_applied(decided, describe_window(modes[-1].occurrence))
        if self.mode == Mode.ADVISE:
            return format_not_applied(decided, ADVICE_ONLY)
        if self.mode != Mode.HOLD:
            return decided
        end = modes[-1].expires_at if modes else None
        until = "" if end is None else f" until {end:%Y-%m-%d %H:%M:%S} UTC"
        return format_not_applied(decided, f"on hold{until}")


def resolve_setting(loop: Loop, in_force: list[Override], snapshot: Snapshot, now: datetime) -> TickSetting:
    """Return the loop's mode, parameters, and guard with these overrides applied.

    The mode is hold while its target is paused or drained. Overrides that were consistent may conflict after one of
    them ends. The loop's own values then apply, and `conflict` says why, so that the loop does not run with values that
    its law rejects.
    """
    values = overrides.compute_effective_values(loop, in_force, now)
    if why := scope.explain_hold(loop.target, snapshot):
        return TickSetting(Mode.HOLD, values.parameters, values.guard, None, values.conflict, why)
    mode, manual = overrides.get_effective_mode(loop, in_force, now), None
    if mode == Mode.MANUAL:
        actuator = str(catalog.get_law(loop.law).actuator)
        value = overrides.find_effective_value(actuator, in_force, now)
        manual = {} if value is None else {actuator: value}
    return TickSetting(mode, values.parameters, values.guard, manual, values.conflict)


def get_last_mode(stored: Document | None) -> str:
    """Return the mode of the tick that stored this memory. Old versions stored only whether the law had decided."""
    stored = stored or {}
    return str(stored.get("mode") or (Mode.HOLD if stored.get("held") else Mode.AUTO))


def resumes(last: str, mode: str) -> bool:
    """Return whether the law decides after a tick in another mode, so that its memory is outdated."""
    return last != mode and mode not in Loop.HANDED_OVER


def load_memory(loop: Loop, law: Law, mode: str, parameters: Document) -> State:
    """Return {"law", "guard", "sensor"} as stored, or the initial memory.

    After a change of mode, the law resumes from the stored memory. A loop whose memory is unusable starts with a new
    one instead of failing forever.
    """
    stored = loop.state or {}
    try:
        law_state = catalog.read_state(law, parameters, stored.get("law"))
    except BadInput as error:
        logger.warning("%s starts with an empty state: the stored state is invalid (%s).", loop.name, error)
        law_state = catalog.read_state(law, parameters, None)
    guard_state = guard.read_state(stored.get("guard"))
    if resumes(get_last_mode(stored), mode):
        law_state, guard_state = merge_memory(law, law_state, guard_state)
    elif law.lapsed is not None and guard_state["value"] is None:
        guard_state = {**guard_state, "value": law.lapsed}
    return {"law": law_state, "guard": guard_state, "sensor": stored.get("sensor")}


def merge_memory(law: Law, law_state: State, guard_state: State) -> tuple[State, State]:
    """Return the memory of law and guard when the law decides again, without expired values."""
    value = guard_state["value"] if law.lapsed is None else law.lapsed
    return resume_state(law, law_state), {**guard_state, "value": value}


def build_memory(mode: str, before: State, guarded: GuardedDecision, sensed: Measurement) -> State:
    """Build the memory to store.

    The sensor's counters advance in every mode, law and guard not in hold; in manual the law's state does not change
    either (`guard.decide`).
    """
    counters = sensed.counters or None
    if mode == Mode.HOLD:
        return {**before, "sensor": counters, "mode": mode}
    return {"law": guarded.state, "guard": guarded.guard_state, "sensor": counters, "mode": mode}


def observe(
    loop: Loop, setting: TickSetting, counters: Counters | None, snapshot: Snapshot, now: datetime, recalls: bool = True
) -> Measurement:
    """Return the loop's observation.

    It has the sensor's reading, the part that depends on the mode, the price of one unit of the actuator where a cost
    cap needs it, and start-up excuses.
    """
    kind = get_kind(loop.law)
    sensed = kind.sensor(loop.target, snapshot, counters, now.timestamp())
    observation, unit_cost, hours = sensed.observation, None, kind.tuning.unit_hours
    if kind.recall is not None and recalls:
        observation = {**observation, **kind.recall(loop, setting.mode, observation)}
    if setting.guard["cost_cap"] and hours is not None:
        of_one = hours(loop.target, snapshot, build(kind.law.Parameters, setting.parameters))
        price = plant_settings.get_setting_value("price.worker_hour")
        unit_cost = None if of_one is None or price is None else float(of_one * price)
    measured = excuse_start(sensed.measured, loop.target, snapshot, now.timestamp())
    if unit_cost is not None:
        measured = replace(measured, unit_cost=unit_cost)
    return Measurement(observation, measured, sensed.counters)


def list_needed_parts(target: Document, snapshot: Snapshot) -> Iterator[str]:
    """List the parts that a loop on this target requires."""
    if "application" in target:
        yield parts.CONSUMERS["pipeline"]
    if "host" in target:
        yield parts.CONSUMERS["jobs"]
    if "queue" in target:
        queue = snapshot.queues.get(target["queue"])
        yield from (parts.CONSUMERS[kind] for kind in (queue.kind if queue else None,) if kind in parts.CONSUMERS)
    if "node" in target:
        yield parts.format_node_part(target["node"])
    if not {"application", "host", "queue", "plant"} & set(target):
        yield from (parts.format_node_part(name) for name in snapshot.nodes)


def excuse_start(measured: ObservationQuality, target: Document, snapshot: Snapshot, now: float) -> ObservationQuality:
    """Return the measurement, marked as idle where it is invalid because a part is still starting.

    Such a loop has nothing to decide; that is not a failure of the loop.
    """
    if measured.invalid is None and measured.age_seconds is not None:
        return measured
    name = parts.find_starting(snapshot.parts, list_needed_parts(target, snapshot))
    if name is None or snapshot.at is None:
        return measured
    age = round(abs(now - snapshot.at), 3)  # of the part that is starting
    return replace(measured, age_seconds=age, invalid=None, idle=f"{name} is starting")


def compute_late_seconds(since_last: float | None, interval_seconds: float, rest_seconds: float = 0.0) -> float:
    """Return how much later than due a tick is; 0 for a usual delay and for the first tick.

    rest_seconds: how long the loop may have been at rest since its last known tick.
    """
    if since_last is None:
        return 0.0
    late = since_last - interval_seconds - rest_seconds
    return round(late, 1) if late > max(LATE_SECONDS, LATE_SHARE * interval_seconds) else 0.0


def find_cause(
    measured: ObservationQuality, stale_seconds: float, late: float, target: Document, snapshot: Snapshot, now: float
) -> str | None:
    """Return the cause of an invalid measurement; None where it is valid, or the cause is unknown.

    It is one word, the same for all loops that it affects, so that alerts can be grouped by it:

        host        the tick or the snapshot is late, or most nodes are: this host's processes lack CPU time
        node NAME   the node is silent
        pipeline, workers.jobs, workers.control   the part is silent or has failed
    """
    is_old = measured.age_seconds is None or measured.age_seconds > stale_seconds
    if measured.invalid is None and (measured.idle is not None or not is_old):
        return None
    if late or snapshot.at is None or abs(now - snapshot.at) > STALE_SECONDS or are_most_nodes_late(snapshot):
        return HOST
    needed = list_needed_parts(target, snapshot)
    return next((name for name in needed if name in snapshot.parts and snapshot.parts[name].state != "running"), None)


def are_most_nodes_late(snapshot: Snapshot) -> bool:
    """Return whether most of several nodes are late. This points to the present host instead of the nodes."""
    stale = sum(row.stale for row in snapshot.nodes.values())
    return stale > 1 and 2 * stale > len(snapshot.nodes)


def describe_quality(
    loop: Loop, sensed: Measurement, setting: TickSetting, snapshot: Snapshot, now: datetime
) -> dict[str, Any]:
    """Return the quality of the measurement as stored in the ledger, with any lateness and cause."""
    measured = sensed.measured
    since = None if loop.ticked_at is None else abs((now - loop.ticked_at).total_seconds())
    late = compute_late_seconds(since, loop.interval_seconds)
    stale = float(setting.guard["stale_seconds"])
    cause = find_cause(measured, stale, late, loop.target, snapshot, now.timestamp())
    known = {"late_seconds": late or None, "cause": cause or None, "unit_cost": measured.unit_cost}
    return {
        "age_seconds": measured.age_seconds,
        "unfit": measured.invalid,
        "idle": measured.idle,
        **{name: value for name, value in known.items() if value is not None},
    }


def rests(loop: Loop, snapshot: Snapshot) -> bool:
    """Return whether the loop's kind has nothing to decide in this snapshot."""
    kind = get_kind(loop.law)
    return kind.at_rest is not None and kind.at_rest(loop.target, snapshot)


def _is_at_rest(entry: LedgerEntry, loop: Loop, in_force: list[Override], snapshot: Snapshot) -> bool:
    """Return whether the law itself decided to do nothing, with nothing limiting it.

    A law that acts at every tick also counts when there was nothing to decide.
    """
    by_itself = entry.mode in (Mode.AUTO, Mode.ADVISE) and not in_force
    does_nothing = entry.action is None or not get_kind(loop.law).display.is_news
    return by_itself and does_nothing and entry.limited_by is None and rests(loop, snapshot)


def record(ticks: list[EvaluatedTick], now: datetime, failed: Failed) -> list[EvaluatedTick]:
    """Record the decisions together, or one by one if one of them fails; return those that were written."""
    try:
        with span("record"):
            return ledger.record(ticks, now)
    except (OperationalError, InterfaceError) as error:  # an error of the database, which affects all loops
        for tick in ticks:
            failed(tick.loop, error)
        return []
    except Exception as error:
        if len(ticks) > 1:
            return [written for tick in ticks for written in record([tick], now, failed)]
        failed(ticks[0].loop, error)
        return []


def apply(
    recorded: Sequence[EvaluatedTick],
    plant: Plant,
    snapshot: Snapshot,
    now: datetime,
    clock: Callable[[], float],
    failed: Failed,
    checked_at: float,
) -> None:
    """Apply, keep alive, or propose the entries in order, depending on their modes.

    The check for later ticks and the confirmation of actions are each done for all entries together, every
    `CHECK_SECONDS`. A process that ends before it confirms therefore leaves several open entries instead of one; the
    next tick applies them under the same ids. checked_at: a time on the clock before the entries were recorded, which
    is the first check.
    """
    acting = {tick.entry.pk: tick.entry for tick in recorded if ledger.is_applied_by_tick(tick.entry)}
    done: list[LedgerEntry] = []
    current = set(acting)
    try:
        for tick in recorded:
            entry, loop, kind = tick.entry, tick.loop, get_kind(tick.loop.law)
            with span("act", loop=loop.name, decision=entry.pk):
                note({"weir.decision": entry.pk})
                try:
                    if entry.pk in acting:
                        # A process that was paused may find that a later tick has run.
                        if clock() - checked_at > CHECK_SECONDS:
                            ledger.confirm(*done)
                            done.clear()
                            current, checked_at = ledger.find_current_ids(acting.values()), clock()
                        if entry.pk not in current:
                            logger.warning("A later tick of %s has run. This tick does nothing more.", loop.name)
                            continue
                        del acting[entry.pk]
                        if _apply_action(entry, loop, plant):
                            done.append(entry)
                    elif entry.mode in KEEPING and kind.keeper is not None:
                        kind.keeper(entry, loop, plant)
                    elif entry.action is not None and entry.mode == Mode.ADVISE and kind.proposer is not None:
                        try:
                            kind.proposer(entry, snapshot, now)
                        except WeirError as error:
                            ledger.fail(entry, str(error))
                except Exception as error:
                    failed(loop, error)
    finally:
        ledger.confirm(*done)


def finish(entry: LedgerEntry, setting: TickSetting, loop: Loop, plant: Plant, now: datetime) -> None:
    """Apply the open action that an interrupted tick recorded, or give it up.

    The action is given up when too much time has passed, the loop's mode has changed, or a person has set another value
    since. The entry records the reason.
    """
    age_seconds = abs((now - entry.at).total_seconds())
    if setting.mode != entry.mode:
        why = f"the loop was in mode {entry.mode}, and is now in mode {setting.mode}"
    elif entry.parameters.get("manual") != setting.manual:
        why = "the manual value has changed"
    elif age_seconds > max(REPEAT_INTERVALS * loop.interval_seconds, REPEAT_SECONDS):
        why = f"it is {age_seconds:.0f} s old"
    else:
        if _apply_action(entry, loop, plant):
            ledger.confirm(entry)
        return
    _give_up(entry, loop, f"The action was not confirmed and is not repeated: {why}.")


def _apply_action(entry: LedgerEntry, loop: Loop, plant: Plant) -> bool:
    """Apply the action and return whether it succeeded.

    An error of the plant is recorded in the entry, and the loop continues at its next tick.
    """
    try:
        get_kind(loop.law).actuator(entry, loop, plant)
    except Exception as error:
        logger.warning("%s could not be applied: %s", loop.name, error)
        _give_up(entry, loop, f"{type(error).__name__}: {error}")
        return False
    return True


def _give_up(entry: LedgerEntry, loop: Loop, error: str) -> None:
    """Record why the action was not applied, and reset the law's memory as if it had not been decided.

    The guard's memory stays: it is unknown how much was done, and the possible cost counts as spent.
    """
    ledger.fail(entry, error)
    if not assumes_applied(catalog.get_law(loop.law)):
        return
    loop.refresh_from_db(fields=["state"])
    loop.state = build_undone_memory(entry, loop)
    Loop.objects.filter(pk=loop.pk, fence=entry.fence).update(state=loop.state)


def build_undone_memory(entry: LedgerEntry, loop: Loop) -> State:
    """Return what the loop remembers after the entry's action failed."""
    law, memory = catalog.get_law(loop.law), dict(loop.state or {})
    with suppress(BadInput):  # a record that is no longer valid for the law
        memory["law"] = request.decide_once(law, ledger.export(entry), applies=False).state
    return memory
