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

Loops of this plant go together, `TOGETHER` at a time: their leases are one round trip, their records one
transaction, and each has a lease, a number and an entry of its own as if it had ticked alone. Those of an
attached plant go one by one, after them: its server may be slow.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from time import monotonic

import redis
from django.db import InterfaceError, OperationalError, transaction

from controllers.framework import guard
from workers.control import acts, loop_memory
from workers.control.acts import Acts
from workers.control.decided import Decided, decided
from workers.control.ledger import ledger
from workers.control.setting import setting_of
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
DUE_SHARE = 0.8
FRESH = timedelta(seconds=2)  # for so long a law's loops are ticked by what was read at first
# Loops in one transaction: others wait for it no longer than some tenths of a second.
TOGETHER = 250

Failed = Callable[[Loop, Exception], None]
InForce = Mapping[int, list[Override]]  # loop's id → its overrides


def tick_law(
    law: str, plant: Plant, now: datetime, control: redis.Redis, clock: Callable[[], float] = monotonic
) -> list[LedgerEntry]:
    """Tick every due loop of a law on one snapshot, after judging what its earlier actions did and noting
    expired overrides.

    An error in one loop stops no other: it is logged, and the loop's tick records nothing. Where loops before
    took long, as an order to another's plant may, the rest have a snapshot of their own, and what people have
    set since. `clock`: seconds that only rise. Raises what `observe` raises.
    """
    with span("observe"):
        snapshot = plant.observe()
    overrides.expire_due(now, control)
    judge(snapshot, now, law)
    loops = list(active_loops().filter(law=law).order_by("name"))
    in_force = overrides.by_loop(loops, now)
    loops = [loop for loop in loops if _due(loop, now) or _resumes(loop, in_force[loop.pk], snapshot, now)]
    entries = []
    began, this = clock(), now
    for batch in _batches(loops):
        passed = timedelta(seconds=clock() - began)
        if now + passed - this > FRESH:
            this, snapshot = now + passed, plant.observe()
            in_force = overrides.by_loop(loops, this)
        batch_tick = _Tick(plant, snapshot, this, in_force, clock, _log)
        entries += batch_tick.run(batch, control)
    return entries


def tick(
    loop: Loop, plant: Plant, now: datetime, control: redis.Redis, clock: Callable[[], float] = monotonic
) -> LedgerEntry | None:
    """One tick of one loop on a snapshot of its own; None when another has the lease or was there since."""

    def fails(loop: Loop, error: Exception) -> None:
        raise error

    in_force = {loop.pk: overrides.on(loop, now)}
    entries = _Tick(plant, plant.observe(), now, in_force, clock, fails).run([loop], control)
    return entries[0] if entries else None


def _log(loop: Loop, error: Exception) -> None:
    why = (type(error), error, error.__traceback__)
    logger.error("The tick of %s failed; it is tried again at its next interval.", loop.name, exc_info=why)


def _batches(loops: Sequence[Loop]) -> Iterator[Sequence[Loop]]:
    ours = [loop for loop in loops if "plant" not in loop.target]
    for first in range(0, len(ours), TOGETHER):
        yield ours[first : first + TOGETHER]
    yield from ([loop] for loop in loops if "plant" in loop.target)


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


def judge(snapshot: Snapshot, now: datetime, law: str = "") -> None:
    """Judge what earlier actions did (of a law, or of all, those that tick no more among them), by a snapshot
    that is not too old to say so.
    """
    if snapshot.at is not None and abs(now.timestamp() - snapshot.at) <= guard.STALE_SECONDS:
        ledger.judge_due(now, snapshot, law)


class _Tick:
    """Of some loops, on one snapshot. failed: what is done about an error of one of them."""

    def __init__(
        self,
        plant: Plant,
        snapshot: Snapshot,
        now: datetime,
        in_force: InForce,
        clock: Callable[[], float],
        failed: Failed,
    ) -> None:
        self._plant, self._snapshot, self._now = plant, snapshot, now
        self._in_force, self._clock, self._failed = in_force, clock, failed

    def run(self, loops: Sequence[Loop], control: redis.Redis) -> list[LedgerEntry]:
        """The entries, each of a loop whose lease was to be had and that nobody ticked meanwhile."""
        leases = LeaseGroup(control, {f"loop:{loop.pk}": loop.fence for loop in loops}, LEASE_SECONDS)
        with span("tick", law=loops[0].law), leases as fences:
            held = {loop.pk: loop for loop in loops if f"loop:{loop.pk}" in fences}
            turns = self._read_again(held)
            unfinished = ledger.open_entries(held)
            found = [
                self._decided(loop, fences[f"loop:{loop.pk}"], unfinished.get(loop.pk), leases)
                for loop in turns
            ]
            recorded = self._recorded([each for each in found if each is not None])
            self._follow(recorded, leases)
        return [each.entry for each in recorded]

    def _read_again(self, held: Mapping[int, Loop]) -> list[Loop]:
        """What was read before the lease was ours may be outdated: the state, and whether it is our turn."""
        rows = Loop.objects.filter(pk__in=held).order_by("name")
        return [loop for loop in rows if loop.ticked_at == held[loop.pk].ticked_at]

    def _decided(
        self, loop: Loop, fence: int, unfinished: LedgerEntry | None, leases: LeaseGroup
    ) -> Decided | None:
        in_force = self._in_force[loop.pk]
        with span("decide", loop=loop.name):
            try:
                setting = setting_of(loop, in_force, self._snapshot, self._now)
                if unfinished is not None:
                    with leases.renewed():
                        acts.finish(unfinished, setting.mode, loop, self._plant, self._now)
                return decided(loop, fence, setting, in_force, self._snapshot, self._now)
            except Exception as error:
                self._failed(loop, error)
                return None

    def _recorded(self, found: list[Decided]) -> list[Decided]:
        """Those that are written: together, or one by one where one of them can't be."""
        try:
            with span("record"):
                return record(found, self._now)
        except (OperationalError, InterfaceError) as error:  # the database's, and so of all
            for each in found:
                self._failed(each.loop, error)
            return []
        except Exception as error:
            if len(found) > 1:
                return [written for each in found for written in self._recorded([each])]
            self._failed(found[0].loop, error)
            return []

    def _follow(self, recorded: list[Decided], leases: LeaseGroup) -> None:
        long = any(acts.takes_long(each.entry, each.loop) for each in recorded)
        following = Acts([each.entry for each in recorded], self._plant, self._clock)
        with leases.renewed() if long else nullcontext():
            try:
                for each in recorded:
                    self._follow_one(each, following)
            finally:
                following.confirm()

    def _follow_one(self, each: Decided, following: Acts) -> None:
        with span("act", loop=each.loop.name, decision=each.entry.pk):
            note({"weir.decision": each.entry.pk})
            try:
                following.follow(each.entry, each.loop, self._snapshot, self._now)
            except Exception as error:
                self._failed(each.loop, error)


def record(found: Sequence[Decided], now: datetime) -> list[Decided]:
    """Write their entries and states, in one transaction; give back those that were written. The greatest
    number of a loop wins: a tick that lost its lease on the way finds its own passed, and leaves no trace.
    """
    if not found:
        return []
    with transaction.atomic():
        rows = Loop.objects.select_for_update().filter(pk__in=[each.loop.pk for each in found])
        passed = dict(rows.order_by("pk").values_list("pk", "fence"))
        ours = [each for each in found if passed.get(each.loop.pk, each.fence) < each.fence]
        for each in ours:
            each.loop.fence, each.loop.state, each.loop.ticked_at = each.fence, each.state, now
        Loop.objects.bulk_create(
            [each.loop for each in ours],
            update_conflicts=True,
            unique_fields=["pk"],
            update_fields=["fence", "state", "ticked_at"],
        )
        LedgerEntry.objects.bulk_create([each.entry for each in ours])
    for each in found:
        if passed.get(each.loop.pk, each.fence) >= each.fence:
            logger.warning("A later tick of %s was there; this one leaves no trace.", each.loop.name)
    return ours
