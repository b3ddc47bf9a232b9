"""The tick of a loop: lease → observe → parameters → decide → guard → mode → record → apply.

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
`workers.control.loop_memory` describes what law and guard remember.

A loop that has decided to do nothing rests while there is nothing to decide at its target (`LoopKind.at_rest`): its
ticks are noted, but neither decided nor recorded, except one every REST_SECONDS. New load or a change by a person ends
the rest at the next tick.

Loops of this plant are ticked in groups of `TOGETHER`: their leases take one round trip and their records one
transaction. Each loop still has its own lease, number, and entry. Loops of an attached plant are ticked one by one,
because its server may be slow.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import NamedTuple

import redis
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q, QuerySet
from django.db.models.fields.json import KT

from controllers.framework import guard
from workers.control import acts, loop_memory
from workers.control.acts import ActionExecutor
from workers.control.decided import EvaluatedTick, decide, rests
from workers.control.ledger import ledger
from workers.control.parts.kind import REST_SECONDS
from workers.control.setting import resolve_setting
from workers.coordination.leases import LeaseGroup
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override
from workers.observability.spans import note, span
from workers.plants.plant import Plant
from workers.steering import overrides, stopped
from workers.steering.scope import list_active_loops

logger = logging.getLogger(__name__)
# Longer than a tick takes. A tick that is killed blocks its loops for at most this long.
LEASE_SECONDS = 4.0
# A tick that is slightly early because of jitter is on time; one that is much earlier is a duplicate delivery
# of the same beat.
EARLY_SHARE, EARLY_SECONDS = 0.2, 0.5
FRESH = timedelta(seconds=2)  # how long loops are ticked on the data that was read first
HERE = ""  # key that replaces an attached plant's name
# Loops in one transaction: other writers wait for it for a few tenths of a second at most.
TOGETHER = 250

Failed = Callable[[Loop, Exception], None]
Elsewhere = Callable[[str, Callable[[], object]], None]


class DueLoop(NamedTuple):
    """A loop that is due, as it was read when it was found."""

    pk: int
    fence: int
    ticked_at: datetime | None


class Circumstances(NamedTuple):
    """Inputs common to the loops of a tick: the plant's snapshot and all overrides in force at that time."""

    snapshot: Snapshot
    now: datetime
    overrides: list[Override]


def tick_due(
    plant: Plant,
    now: datetime,
    control: redis.Redis,
    clock: Callable[[], float] = monotonic,
    elsewhere: Elsewhere | None = None,
    laws: Collection[str] | None = None,
) -> list[LedgerEntry]:
    """Tick every due loop (of these laws, or of all) on one snapshot.

    The effects of earlier actions are judged and expired overrides are noted first.

    An error in one loop stops no other loop: it is logged, and that loop's tick records nothing. When earlier loops
    took long, the rest use a new snapshot and the overrides set since. clock: seconds that only increase. elsewhere:
    ticks the loops of an attached plant, by its name; None: they are ticked here, after the others. Raises what
    `observe` raises.
    """
    with span("observe"):
        seen = _observe_plant(plant, now)
    overrides.expire_due(now, control)
    _judge(seen.snapshot, now)
    several = _LoopGroups(plant, control, now, clock)
    entries: list[LedgerEntry] = []
    due_loops, resting = _list_due_loops(seen, laws)
    for name, due in due_loops.items():
        if name == HERE:
            entries += several.tick(due, TOGETHER, seen)
        elif elsewhere is None:
            entries += several.tick(due, 1, seen)
        else:
            elsewhere(name, partial(several.tick, due, 1))
    if resting:
        # No lease is needed: nothing is decided, and noting this twice is harmless.
        Loop.objects.filter(pk__in=resting, at_rest=True).update(ticked_at=now)
    return entries


def tick(
    loop: Loop, plant: Plant, now: datetime, control: redis.Redis, clock: Callable[[], float] = monotonic
) -> LedgerEntry | None:
    """Tick one loop on its own snapshot.

    Return None when another process holds the lease or has ticked the loop since.
    """

    def fails(loop: Loop, error: Exception) -> None:
        raise error

    due = DueLoop(loop.pk, loop.fence, loop.ticked_at)
    entries = _Tick(plant, _observe_plant(plant, now), clock, fails).run([due], control)
    return entries[0] if entries else None


def _observe_plant(plant: Plant, now: datetime) -> Circumstances:
    rows = overrides.list_active(now).select_related("loop", "node", "owner")
    return Circumstances(plant.observe(), now, list(rows))


def _log(loop: Loop, error: Exception) -> None:
    why = (type(error), error, error.__traceback__)
    logger.error("The tick of %s failed; it is retried at its next interval.", loop.name, exc_info=why)


def _list_due_loops(seen: Circumstances, laws: Collection[str] | None) -> tuple[dict[str, list[DueLoop]], list[int]]:
    """Return the loops to tick by plant (`HERE` first), and the due loops that are at rest.

    Wide columns are not read for loops that are not ticked.
    """
    resumed = {loop.pk for loop in _list_resumed_loops(seen)}
    due: dict[str, list[DueLoop]] = {HERE: []}
    loops = list_active_loops() if laws is None else list_active_loops().filter(law__in=laws)
    resting = _list_resting_loops(seen, loops)
    rows = loops.annotate(plant=KT("target__plant")).order_by("name")
    at_rest = []
    for pk, fence, ticked_at, seconds, plant in rows.values_list(
        "pk", "fence", "ticked_at", "interval_seconds", "plant"
    ):
        if pk in resumed or _is_due(ticked_at, seconds, seen.now):
            if pk in resting:
                at_rest.append(pk)
            else:
                due.setdefault(plant or HERE, []).append(DueLoop(pk, fence, ticked_at))
    return due, at_rest


def _list_resting_loops(seen: Circumstances, loops: QuerySet[Loop]) -> set[int]:
    """List the loops that recently recorded that there is nothing to do and would record it again."""
    snapshot, now = seen.snapshot, seen.now
    if snapshot.at is None or abs(now.timestamp() - snapshot.at) > guard.STALE_SECONDS:
        return set()
    since = (now - timedelta(seconds=REST_SECONDS), now)
    fields = ("pk", "law", "target", "decided_at", "mode", "state__mode")
    rows = loops.filter(at_rest=True, decided_at__range=since).values_list(*fields)
    resting = [
        Loop(pk=pk, law=law, target=target)
        for pk, law, target, decided_at, mode, decided_in in rows
        if mode == decided_in and _compute_rest_period(pk, decided_at) == _compute_rest_period(pk, now)
    ]
    in_force = overrides.spread(resting, seen.overrides)
    return {
        loop.pk
        for loop in resting
        if not in_force[loop.pk] and not _is_stopped(loop, snapshot) and rests(loop, snapshot)
    }


def _compute_rest_period(pk: int, at: datetime) -> float:
    """Return the number of the rest period.

    Each loop starts a new period at its own second, so that many loops do not start one at once.
    """
    return (at.timestamp() + pk) // REST_SECONDS


def _is_due(ticked_at: datetime | None, interval_seconds: float, now: datetime) -> bool:
    if ticked_at is None:
        return True
    # The absolute difference is compared: a clock set back by an hour must not stop the loop for an hour.
    return abs((now - ticked_at).total_seconds()) >= compute_min_seconds(interval_seconds)


def compute_min_seconds(interval_seconds: float) -> float:
    """Return the minimum time between two ticks of a loop: its interval less the tolerated jitter."""
    return interval_seconds - min(EARLY_SHARE * interval_seconds, EARLY_SECONDS)


def _list_resumed_loops(seen: Circumstances) -> list[Loop]:
    """List the loops whose hold has just ended, so that they are ticked at once."""
    handed_over = Q(state__mode__in=Loop.HANDED_OVER) | Q(state__held=True)
    loops = [
        active_loop
        for active_loop in list_active_loops().filter(handed_over)
        if not _is_stopped(active_loop, seen.snapshot)
    ]
    in_force = overrides.spread(loops, seen.overrides)
    return [
        loop
        for loop in loops
        if loop_memory.get_last_mode(loop.state) in Loop.HANDED_OVER
        and overrides.get_effective_mode(loop, in_force[loop.pk], seen.now) not in Loop.HANDED_OVER
    ]


def _is_stopped(loop: Loop, snapshot: Snapshot) -> bool:
    return bool(stopped.explain_hold(loop.target, snapshot))


def _judge(snapshot: Snapshot, now: datetime) -> None:
    """Judge the effects of earlier actions, if the snapshot is recent enough."""
    if snapshot.at is not None and abs(now.timestamp() - snapshot.at) <= guard.STALE_SECONDS:
        ledger.judge_due(now, snapshot)


class _LoopGroups:
    """Loops that are ticked in groups, starting at `now`."""

    def __init__(self, plant: Plant, control: redis.Redis, now: datetime, clock: Callable[[], float]) -> None:
        self._plant, self._control, self._clock = plant, control, clock
        self._now, self._began_seconds = now, clock()

    def tick(self, due: Sequence[DueLoop], together: int, seen: Circumstances | None = None) -> list[LedgerEntry]:
        """Tick the loops, `together` at a time. seen: None when the data that was read is too old."""
        entries: list[LedgerEntry] = []
        for first in range(0, len(due), together):
            now = self._now + timedelta(seconds=self._clock() - self._began_seconds)
            if seen is None or now - seen.now > FRESH:
                seen = _observe_plant(self._plant, now)
            of_some = _Tick(self._plant, seen, self._clock, _log)
            entries += of_some.run(due[first : first + together], self._control)
        return entries


class _Tick:
    """A tick of some loops on one snapshot. failed: called for an error of one of them."""

    def __init__(self, plant: Plant, seen: Circumstances, clock: Callable[[], float], failed: Failed) -> None:
        self._plant, self._seen, self._clock, self._failed = plant, seen, clock, failed

    def run(self, due: Sequence[DueLoop], control: redis.Redis) -> list[LedgerEntry]:
        """Return the entries of the loops that were ticked.

        Loops are left out if their lease was taken or another process ticked them in between.
        """
        leases = LeaseGroup(control, {f"loop:{due_loop.pk}": due_loop.fence for due_loop in due}, LEASE_SECONDS)
        with span("tick", loops=len(due)), leases as fences:
            loops = _read([due_loop for due_loop in due if f"loop:{due_loop.pk}" in fences])
            in_force = overrides.spread(loops, self._seen.overrides)
            unfinished = ledger.open_entries(loop.pk for loop in loops)
            decisions = [
                self._decide_loop(loop, fences[f"loop:{loop.pk}"], in_force[loop.pk], unfinished.get(loop.pk), leases)
                for loop in loops
            ]
            recorded = self._record_decisions([decision for decision in decisions if decision is not None])
            self._follow(recorded, leases)
        return [decision.entry for decision in recorded]

    def _decide_loop(
        self, loop: Loop, fence: int, in_force: list[Override], unfinished: LedgerEntry | None, leases: LeaseGroup
    ) -> EvaluatedTick | None:
        snapshot, now = self._seen.snapshot, self._seen.now
        with span("decide", loop=loop.name):
            try:
                setting = resolve_setting(loop, in_force, snapshot, now)
                if unfinished is not None:
                    with leases.keep_renewed():
                        acts.finish(unfinished, setting, loop, self._plant, now)
                return decide(loop, fence, setting, in_force, snapshot, now)
            except Exception as error:
                self._failed(loop, error)
                return None

    def _record_decisions(self, found: list[EvaluatedTick]) -> list[EvaluatedTick]:
        """Record the decisions together and return those that were written.

        If one of them fails, they are recorded one by one.
        """
        try:
            with span("record"):
                return record(found, self._seen.now)
        except (OperationalError, InterfaceError) as error:  # an error of the database, which affects all loops
            for decision in found:
                self._failed(decision.loop, error)
            return []
        except Exception as error:
            if len(found) > 1:
                return [written for decision in found for written in self._record_decisions([decision])]
            self._failed(found[0].loop, error)
            return []

    def _follow(self, recorded: list[EvaluatedTick], leases: LeaseGroup) -> None:
        long = any(acts.takes_long(decision.entry, decision.loop) for decision in recorded)
        following = ActionExecutor([decision.entry for decision in recorded], self._plant, self._clock)
        with leases.keep_renewed() if long else nullcontext():
            try:
                for decision in recorded:
                    self._follow_one(decision, following)
            finally:
                following.confirm()

    def _follow_one(self, each: EvaluatedTick, following: ActionExecutor) -> None:
        with span("act", loop=each.loop.name, decision=each.entry.pk):
            note({"weir.decision": each.entry.pk})
            try:
                following.follow(each.entry, each.loop, self._seen.snapshot, self._seen.now)
            except Exception as error:
                self._failed(each.loop, error)


def _read(due: Sequence[DueLoop]) -> list[Loop]:
    """Read the loops again under their leases, because they may have changed or no longer be due."""
    ticked_at = {due_loop.pk: due_loop.ticked_at for due_loop in due}
    loops = Loop.objects.filter(pk__in=ticked_at).order_by("name")
    return [loop for loop in loops if loop.ticked_at == ticked_at[loop.pk]]


def _is_next(each: EvaluatedTick, passed: int | None) -> bool:
    """Return whether no process has ticked the loop since it was read and its number is the greatest."""
    return passed == each.before < each.fence


def record(found: Sequence[EvaluatedTick], now: datetime) -> list[EvaluatedTick]:
    """Write entries and states in one transaction and return those that were written.

    A tick that lost its lease, or read before another tick wrote, leaves no trace.
    """
    if not found:
        return []
    with transaction.atomic():
        rows = Loop.objects.select_for_update().filter(pk__in=[decision.loop.pk for decision in found])
        passed = dict(rows.order_by("pk").values_list("pk", "fence"))
        ours = [decision for decision in found if _is_next(decision, passed.get(decision.loop.pk))]
        for decision in ours:
            decision.loop.fence, decision.loop.state, decision.loop.at_rest = (
                decision.fence,
                decision.state,
                decision.at_rest,
            )
            decision.loop.ticked_at = decision.loop.decided_at = now
        Loop.objects.bulk_create(
            [decision.loop for decision in ours],
            update_conflicts=True,
            unique_fields=["pk"],
            update_fields=["fence", "state", "ticked_at", "decided_at", "at_rest"],
        )
        LedgerEntry.objects.bulk_create([decision.entry for decision in ours])
    for decision in found:
        if not _is_next(decision, passed.get(decision.loop.pk)):
            logger.warning("A later tick of %s has run; this tick is not recorded.", decision.loop.name)
    return ours
