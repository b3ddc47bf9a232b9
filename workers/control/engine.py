"""A tick, always in the same shape: lease → observe → parameters → decide → guard → mode → record → apply.

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

A loop that has decided by itself that nothing is to be done is at rest while there is nothing to decide at
its target (`LoopKind.at_rest`): its ticks are noted, and neither decided nor recorded, but for one in
REST_SECONDS. Whatever comes, or a person sets, ends the rest at the next tick.

Loops of this plant go together, `TOGETHER` at a time: their leases are one round trip, their records one
transaction, and each has a lease, a number and an entry of its own as if it had ticked alone. Those of an
attached plant go one by one: its server may be slow.
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
from workers.control.acts import Acts
from workers.control.decided import Decided, decide, rests
from workers.control.ledger import ledger
from workers.control.parts.kind import REST_SECONDS
from workers.control.setting import resolve_setting
from workers.coordination.leases import LeaseGroup
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override
from workers.observability.spans import note, span
from workers.plants.plant import Plant
from workers.steering import overrides, stopped
from workers.steering.scope import active_loops

logger = logging.getLogger(__name__)
# Longer than a tick takes; a tick killed in the middle keeps its loops still for at most this long.
LEASE_SECONDS = 4.0
# A tick a little early by jitter is in time; one much earlier is a second delivery of the same beat.
EARLY_SHARE, EARLY_SECONDS = 0.2, 0.5
FRESH = timedelta(seconds=2)  # for so long loops are ticked by what was read at first
HERE = ""  # in place of an attached plant's name
# Loops in one transaction: others wait for it no longer than some tenths of a second.
TOGETHER = 250

Failed = Callable[[Loop, Exception], None]
Elsewhere = Callable[[str, Callable[[], object]], None]


class DueLoop(NamedTuple):
    """A loop that is to be ticked, as it was when that was found."""

    pk: int
    fence: int
    ticked_at: datetime | None


class Circumstances(NamedTuple):
    """What loops are ticked by: the plant, and all overrides in force, as they were then."""

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
    """Tick every loop that is due (of these laws, or of all) on one snapshot, after judging what earlier
    actions did and noting expired overrides.

    An error in one loop stops no other: it is logged, and the loop's tick records nothing. Where loops before
    took long, the rest have a snapshot of their own, and what people have set since. `clock`: seconds that
    only rise. elsewhere: who is to tick the loops of an attached plant, by its name; None: they are ticked
    here, after the others. Raises what `observe` raises.
    """
    with span("observe"):
        seen = _observe_plant(plant, now)
    overrides.expire_due(now, control)
    _judge(seen.snapshot, now)
    several = _Several(plant, control, now, clock)
    entries: list[LedgerEntry] = []
    found, resting = _due(seen, laws)
    for name, due in found.items():
        if name == HERE:
            entries += several.tick(due, TOGETHER, seen)
        elif elsewhere is None:
            entries += several.tick(due, 1, seen)
        else:
            elsewhere(name, partial(several.tick, due, 1))
    if resting:
        # No lease: nothing is decided, and two that note it do no harm.
        Loop.objects.filter(pk__in=resting, at_rest=True).update(ticked_at=now)
    return entries


def tick(
    loop: Loop, plant: Plant, now: datetime, control: redis.Redis, clock: Callable[[], float] = monotonic
) -> LedgerEntry | None:
    """One tick of one loop on a snapshot of its own; None when another has the lease or was there since."""

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
    logger.error("The tick of %s failed; it is tried again at its next interval.", loop.name, exc_info=why)


def _due(seen: Circumstances, laws: Collection[str] | None) -> tuple[dict[str, list[DueLoop]], list[int]]:
    """{`HERE` or an attached plant: the loops that are to be ticked}, `HERE` first, and those that are due,
    and at rest. Of those that are not to be ticked, nothing wide is read.
    """
    resumed = {loop.pk for loop in _list_resumed_loops(seen)}
    due: dict[str, list[DueLoop]] = {HERE: []}
    loops = active_loops() if laws is None else active_loops().filter(law__in=laws)
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
    """Loops that have written that there is nothing to do, not too long ago, and would write it again."""
    snapshot, now = seen.snapshot, seen.now
    if snapshot.at is None or abs(now.timestamp() - snapshot.at) > guard.STALE_SECONDS:
        return set()
    since = (now - timedelta(seconds=REST_SECONDS), now)
    fields = ("pk", "law", "target", "decided_at", "mode", "state__mode")
    rows = loops.filter(at_rest=True, decided_at__range=since).values_list(*fields)
    found = [
        Loop(pk=pk, law=law, target=target)
        for pk, law, target, decided_at, mode, decided_in in rows
        if mode == decided_in and _rest_of(pk, decided_at) == _rest_of(pk, now)
    ]
    in_force = overrides.spread(found, seen.overrides)
    return {
        loop.pk
        for loop in found
        if not in_force[loop.pk] and not _is_stopped(loop, snapshot) and rests(loop, snapshot)
    }


def _rest_of(pk: int, at: datetime) -> float:
    """Rests are counted: each loop begins another at a second of its own, so that many do not at once."""
    return (at.timestamp() + pk) // REST_SECONDS


def _is_due(ticked_at: datetime | None, interval_seconds: float, now: datetime) -> bool:
    if ticked_at is None:
        return True
    # The distance, not the difference: a clock set back by an hour must not stop the loop for an hour.
    return abs((now - ticked_at).total_seconds()) >= least_seconds(interval_seconds)


def least_seconds(interval_seconds: float) -> float:
    """Between two ticks of a loop: its interval, less what a tick may come early by."""
    return interval_seconds - min(EARLY_SHARE * interval_seconds, EARLY_SECONDS)


def _list_resumed_loops(seen: Circumstances) -> list[Loop]:
    """Those whose hold has just ended: what was met meanwhile is judged at once, not an interval later."""
    handed_over = Q(state__mode__in=Loop.HANDED_OVER) | Q(state__held=True)
    loops = [
        active_loop
        for active_loop in active_loops().filter(handed_over)
        if not _is_stopped(active_loop, seen.snapshot)
    ]
    in_force = overrides.spread(loops, seen.overrides)
    return [
        loop
        for loop in loops
        if loop_memory.last_mode(loop.state) in Loop.HANDED_OVER
        and overrides.mode_of(loop, in_force[loop.pk], seen.now) not in Loop.HANDED_OVER
    ]


def _is_stopped(loop: Loop, snapshot: Snapshot) -> bool:
    return bool(stopped.explain_hold(loop.target, snapshot))


def _judge(snapshot: Snapshot, now: datetime) -> None:
    """Judge what earlier actions did, by a snapshot that is not too old to say so."""
    if snapshot.at is not None and abs(now.timestamp() - snapshot.at) <= guard.STALE_SECONDS:
        ledger.judge_due(now, snapshot)


class _Several:
    """Loops that are ticked some at a time, from `now` on."""

    def __init__(self, plant: Plant, control: redis.Redis, now: datetime, clock: Callable[[], float]) -> None:
        self._plant, self._control, self._clock = plant, control, clock
        self._now, self._began_seconds = now, clock()

    def tick(
        self, due: Sequence[DueLoop], together: int, seen: Circumstances | None = None
    ) -> list[LedgerEntry]:
        """So many of them at a time. seen: None where it was seen too long ago."""
        entries: list[LedgerEntry] = []
        for first in range(0, len(due), together):
            now = self._now + timedelta(seconds=self._clock() - self._began_seconds)
            if seen is None or now - seen.now > FRESH:
                seen = _observe_plant(self._plant, now)
            of_some = _Tick(self._plant, seen, self._clock, _log)
            entries += of_some.run(due[first : first + together], self._control)
        return entries


class _Tick:
    """Of some loops, on one snapshot. failed: what is done about an error of one of them."""

    def __init__(
        self,
        plant: Plant,
        seen: Circumstances,
        clock: Callable[[], float],
        failed: Failed,
    ) -> None:
        self._plant, self._seen, self._clock, self._failed = plant, seen, clock, failed

    def run(self, due: Sequence[DueLoop], control: redis.Redis) -> list[LedgerEntry]:
        """The entries, each of a loop whose lease was to be had and that nobody ticked meanwhile."""
        leases = LeaseGroup(control, {f"loop:{each.pk}": each.fence for each in due}, LEASE_SECONDS)
        with span("tick", loops=len(due)), leases as fences:
            loops = _read([each for each in due if f"loop:{each.pk}" in fences])
            in_force = overrides.spread(loops, self._seen.overrides)
            unfinished = ledger.open_entries(loop.pk for loop in loops)
            decisions = [
                self._decide_loop(
                    loop, fences[f"loop:{loop.pk}"], in_force[loop.pk], unfinished.get(loop.pk), leases
                )
                for loop in loops
            ]
            recorded = self._record_decisions([decision for decision in decisions if decision is not None])
            self._follow(recorded, leases)
        return [decision.entry for decision in recorded]

    def _decide_loop(
        self,
        loop: Loop,
        fence: int,
        in_force: list[Override],
        unfinished: LedgerEntry | None,
        leases: LeaseGroup,
    ) -> Decided | None:
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

    def _record_decisions(self, found: list[Decided]) -> list[Decided]:
        """Those that are written: together, or one by one where one of them can't be."""
        try:
            with span("record"):
                return record(found, self._seen.now)
        except (OperationalError, InterfaceError) as error:  # the database's, and so of all
            for each in found:
                self._failed(each.loop, error)
            return []
        except Exception as error:
            if len(found) > 1:
                return [written for each in found for written in self._record_decisions([each])]
            self._failed(found[0].loop, error)
            return []

    def _follow(self, recorded: list[Decided], leases: LeaseGroup) -> None:
        long = any(acts.takes_long(decision.entry, decision.loop) for decision in recorded)
        following = Acts([decision.entry for decision in recorded], self._plant, self._clock)
        with leases.keep_renewed() if long else nullcontext():
            try:
                for decision in recorded:
                    self._follow_one(decision, following)
            finally:
                following.confirm()

    def _follow_one(self, each: Decided, following: Acts) -> None:
        with span("act", loop=each.loop.name, decision=each.entry.pk):
            note({"weir.decision": each.entry.pk})
            try:
                following.follow(each.entry, each.loop, self._seen.snapshot, self._seen.now)
            except Exception as error:
                self._failed(each.loop, error)


def _read(due: Sequence[DueLoop]) -> list[Loop]:
    """Under their leases: what was read before may be outdated, and whether it is still their turn."""
    ticked_at = {each.pk: each.ticked_at for each in due}
    loops = Loop.objects.filter(pk__in=ticked_at).order_by("name")
    return [loop for loop in loops if loop.ticked_at == ticked_at[loop.pk]]


def _is_next(each: Decided, passed: int | None) -> bool:
    """Whether nobody has ticked the loop since it was read, and its number is the greatest."""
    return passed == each.before < each.fence


def record(found: Sequence[Decided], now: datetime) -> list[Decided]:
    """Write their entries and states, in one transaction; give back those that were written. A tick that lost
    its lease on the way, or read before another had written, leaves no trace.
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
            logger.warning("Another tick of %s was there; this one leaves no trace.", decision.loop.name)
    return ours
