"""The engine: ticks the loops that are due (`workers.control.tick`).

A loop that has decided to do nothing rests while there is nothing to decide at its target (`LoopKind.at_rest`): its
ticks are noted, but neither decided nor recorded, except one every REST_SECONDS. New load or a change by a person ends
the rest at the next tick.

Loops of this plant are ticked in groups of `TOGETHER`: their leases take one round trip and their records one
transaction. Each loop still has its own lease, number, and entry. Loops of an attached plant are ticked one by one,
because its server may be slow.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

import redis
from django.db import close_old_connections
from django.db.models import Q

from common.garbage_collection import postpone_collection
from controllers.framework import guard
from workers.control.ledger import ledger
from workers.control.parallel_ticks import TickProcesses
from workers.control.parts.kind import REST_SECONDS
from workers.control.tick import Circumstances, DueLoop, get_last_mode, rests, tick_loops
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override
from workers.observability.spans import span
from workers.plants.plant import Plant
from workers.plants.steered import NotObserved
from workers.steering import overrides, scope
from workers.steering.scope import list_active_loops

logger = logging.getLogger(__name__)
# A tick that is slightly early because of jitter is on time; one that is much earlier is a duplicate delivery
# of the same beat.
EARLY_SHARE, EARLY_SECONDS = 0.2, 0.5
FRESH = timedelta(seconds=2)  # how long loops are ticked on the data that was read first
HERE = ""  # key that replaces an attached plant's name
# Loops in one transaction: other writers wait for it for a few tenths of a second at most.
TOGETHER = 250

Elsewhere = Callable[[str, Callable[[], object]], None]
MAX_THREADS = 16  # plants called concurrently; when this many hang, others wait for the first to return
NOT_TICKED = "The loops of %s did not tick. The ticks are retried in the next second."


@postpone_collection()
def tick_due(
    plant: Plant,
    now: datetime,
    control: redis.Redis,
    clock: Callable[[], float] = monotonic,
    elsewhere: Elsewhere | None = None,
    laws: Collection[str] | None = None,
    processes: TickProcesses | None = None,
) -> list[LedgerEntry]:
    """Tick every due loop (of these laws, or of all) on one snapshot, and return the entries that this process wrote.

    First, the effects of earlier actions are judged and expired overrides are recorded. If several processes tick the
    loops, each process judges a part of the actions before it ticks its share.

    An error in one loop stops no other loop: it is logged, and that loop's tick records nothing. When earlier loops
    took long, the rest use a new snapshot and the overrides set since. clock: seconds that only increase. elsewhere:
    ticks the loops of an attached plant, by its name; None: they are ticked here, after the others. processes: further
    processes, which tick a part of the loops if there are many; None: this process ticks all loops. Raises what
    `observe` raises.
    """
    began_seconds = clock()
    with span("observe"):
        seen = _observe_plant(plant, now)
    overrides.expire_due(now, control)
    if processes is None:
        _judge(seen)

    def tick_together(due: Sequence[DueLoop], together: int, known: Circumstances | None) -> list[LedgerEntry]:
        return _tick_in_groups(due, together, known, plant, now, control, clock, began_seconds)

    entries: list[LedgerEntry] = []
    due_loops, resting = _list_due_loops(seen, laws, lambda: now + timedelta(seconds=clock() - began_seconds))
    for name, due in due_loops.items():
        if name == HERE and processes is not None:
            here = partial(tick_together, together=TOGETHER, known=seen)
            judge = partial(_judge, seen)
            entries += processes.tick(due, seen.snapshot, now, lambda: clock() - began_seconds, judge, here)
        elif name == HERE or elsewhere is None:
            entries += tick_together(due, TOGETHER if name == HERE else 1, seen)
        else:
            elsewhere(name, lambda due=due: tick_together(due, 1, None))  # type: ignore[misc]
    if resting:
        # No lease is needed: nothing is decided, and noting this twice is harmless.
        Loop.objects.filter(pk__in=resting, at_rest=True).update(ticked_at=now)
    return entries


@postpone_collection()
def tick_share(
    due: Sequence[DueLoop],
    snapshot: Snapshot,
    plant: Plant,
    now: datetime,
    control: redis.Redis,
    clock: Callable[[], float],
    began_seconds: float,
    part: int,
    parts: int,
) -> list[LedgerEntry]:
    """Tick a part of the due loops of a tick that another process began; see `workers.control.parallel_ticks`."""
    seen = Circumstances(snapshot, now, _load_overrides(now))
    _judge(seen, part, parts)
    return _tick_in_groups(due, TOGETHER, seen, plant, now, control, clock, began_seconds)


def _tick_in_groups(
    due: Sequence[DueLoop],
    together: int,
    known: Circumstances | None,
    plant: Plant,
    now: datetime,
    control: redis.Redis,
    clock: Callable[[], float],
    began_seconds: float,
) -> list[LedgerEntry]:
    """Tick the loops, `together` at a time. known: None where the data that was read is too old by then."""
    entries: list[LedgerEntry] = []
    for first in range(0, len(due), together):
        then = now + timedelta(seconds=clock() - began_seconds)
        if known is None or then - known.now > FRESH:
            known = _observe_plant(plant, then)
        entries += tick_loops(due[first : first + together], known, plant, control, clock, _log)
    return entries


def tick(
    loop: Loop, plant: Plant, now: datetime, control: redis.Redis, clock: Callable[[], float] = monotonic
) -> LedgerEntry | None:
    """Tick one loop on its own snapshot; None if another process holds the lease or has ticked the loop since."""

    def fails(loop: Loop, error: Exception) -> None:
        raise error

    due = DueLoop(loop.pk, loop.fence, loop.ticked_at)
    entries = tick_loops([due], _observe_plant(plant, now), plant, control, clock, fails)
    return entries[0] if entries else None


def _observe_plant(plant: Plant, now: datetime) -> Circumstances:
    return Circumstances(plant.observe(), now, _load_overrides(now))


def _load_overrides(now: datetime) -> list[Override]:
    return overrides.list_in_force(now)


def _judge(seen: Circumstances, part: int = 0, parts: int = 1) -> None:
    """Judge the effects of earlier actions, or one part of them, unless the snapshot is old."""
    if _is_fresh(seen.snapshot, seen.now):
        ledger.judge_due(seen.now, seen.snapshot, part, parts)


def _is_fresh(snapshot: Snapshot, now: datetime) -> bool:
    return snapshot.at is not None and abs(now.timestamp() - snapshot.at) <= guard.STALE_SECONDS


def _log(loop: Loop, error: Exception) -> None:
    why = (type(error), error, error.__traceback__)
    logger.error("The tick of %s failed. It is retried at its next interval.", loop.name, exc_info=why)


def _list_due_loops(
    seen: Circumstances, laws: Collection[str] | None, get_time: Callable[[], datetime]
) -> tuple[dict[str, list[DueLoop]], list[int]]:
    """Return the loops to tick by plant (`HERE` first), and the due loops that are at rest.

    A loop whose hold has just ended is ticked at once. Wide columns are read only for loops that this depends on.
    """
    loops = list_active_loops() if laws is None else list_active_loops().filter(law__in=laws)
    columns = ("pk", "fence", "ticked_at", "interval_seconds", "law", "target", "at_rest")
    rows = list(loops.order_by("name").values_list(*columns))
    # The observation may have been slow. A loop that another process has ticked meanwhile is due neither because that
    # tick is later than the observation, nor on the same observation because time has passed since.
    times = (seen.now, get_time())
    due_pks = {row[0] for row in rows if all(is_due(row[2], row[3], time) for time in times)}
    if len(due_pks) < len(rows):
        due_pks |= _list_resumed_loops(seen)
    resting = _list_resting_loops(seen) if any(at_rest for *_, at_rest in rows) else set()
    due: dict[str, list[DueLoop]] = {HERE: []}
    for pk, fence, ticked_at, _, law, target, _ in rows:
        if pk in due_pks and pk not in resting:
            queue, node, plant = (target.get(key) or "" for key in ("queue", "node", "plant"))
            due.setdefault(plant or HERE, []).append(DueLoop(pk, fence, ticked_at, law, queue, node))
    return due, [pk for pk, *_ in rows if pk in due_pks and pk in resting]


def _list_resumed_loops(seen: Circumstances) -> set[int]:
    """List the loops whose law decides again, after a hold or a person's value."""
    handed_over = list_active_loops().filter(Q(state__mode__in=Loop.HANDED_OVER) | Q(state__held=True))
    held = [loop for loop in handed_over if not scope.explain_hold(loop.target, seen.snapshot)]
    in_force = overrides.spread(held, seen.overrides)
    return {
        loop.pk
        for loop in held
        if get_last_mode(loop.state) in Loop.HANDED_OVER
        and overrides.get_effective_mode(loop, in_force[loop.pk], seen.now) not in Loop.HANDED_OVER
    }


def _list_resting_loops(seen: Circumstances) -> set[int]:
    """List the loops that recently recorded that there is nothing to do and would record it again."""
    snapshot, now = seen.snapshot, seen.now
    if not _is_fresh(snapshot, now):
        return set()
    rows = list_active_loops().filter(at_rest=True, decided_at__range=(now - timedelta(seconds=REST_SECONDS), now))
    resting = [
        Loop(pk=pk, law=law, target=target, mode=mode, decided_at=decided_at, at_rest=True, state={"mode": decided_in})
        for pk, law, target, decided_at, mode, decided_in in rows.order_by("name").values_list(
            "pk", "law", "target", "decided_at", "mode", "state__mode"
        )
    ]
    in_force = overrides.spread(resting, seen.overrides)
    return {loop.pk for loop in resting if not in_force[loop.pk] and is_resting(loop, snapshot, now)}


def is_resting(loop: Loop, snapshot: Snapshot, now: datetime) -> bool:
    """Return whether a loop without overrides would only repeat its last uneventful decision."""
    decided_at = loop.decided_at
    if not loop.at_rest or decided_at is None or loop.mode != (loop.state or {}).get("mode"):
        return False
    same_period = _compute_rest_period(loop.pk, decided_at) == _compute_rest_period(loop.pk, now)
    return same_period and not scope.explain_hold(loop.target, snapshot) and rests(loop, snapshot)


def _compute_rest_period(pk: int, at: datetime) -> float:
    """Return the number of the rest period.

    Each loop starts a new period at its own second, so that many loops do not start one at once.
    """
    return (at.timestamp() + pk) // REST_SECONDS


def is_due(ticked_at: datetime | None, interval_seconds: float, now: datetime) -> bool:
    """Return whether a loop is due that last ticked at `ticked_at`.

    The absolute difference is compared: a clock set back by an hour must not stop the loop for an hour.
    """
    return ticked_at is None or abs((now - ticked_at).total_seconds()) >= compute_min_seconds(interval_seconds)


def compute_min_seconds(interval_seconds: float) -> float:
    """Return the minimum time between two ticks of a loop: its interval less the tolerated jitter."""
    return interval_seconds - min(EARLY_SHARE * interval_seconds, EARLY_SECONDS)


class AttachedTicks:
    """Threads of this process that do the work at attached plants.

    Processes do not coordinate: a loop is ticked under its lease, but other work may be done twice. failed: the log
    message of a failure, formatted with the plant's name.
    """

    def __init__(self, failed: str = NOT_TICKED) -> None:
        self._failed = failed
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="attached")
        self._running: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def begin(self, plant: str, job: Callable[[], object]) -> None:
        """Run the job in the plant's thread, or leave it due if the plant's previous job is still running."""
        with self._lock:
            before = self._running.get(plant)
            if before is None or before.done():
                self._running[plant] = self._threads.submit(self._tick, plant, job)

    def _tick(self, plant: str, job: Callable[[], object]) -> None:
        close_old_connections()
        try:
            with suppress(NotObserved):
                job()
        except Exception:
            logger.exception(self._failed, plant)
        finally:
            close_old_connections()
