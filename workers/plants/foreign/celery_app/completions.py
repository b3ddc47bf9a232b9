"""Times between completions in the pool of one worker, from its events of tasks (`workers.pool.departures`).

An event does not say which process ran a task. That isn't needed: each task that starts takes the lowest free place,
and leaves it when it ends. Times are those of the worker's clock. Its offset to the local clock is taken from the event
with the shortest delay. If that clock is set, or the worker is replaced, counting restarts.

Events may be lost. A lost start event has no consequence. A lost end event would keep its place taken forever, so if
more places than processes are taken for STUCK_SECONDS, the oldest places are freed.
"""

import math
from dataclasses import dataclass

from workers.documents.plants import PoolSamples
from workers.pool.departures import BEGAN, DONE, ENDED, MAX_PENDING, Departures, WorkerNote

STUCK_SECONDS = 30.0
CLOCK_SECONDS = 10.0  # A clock that jumps further than this was set.
DRIFT = 0.01  # of a clock that runs slower than the local one, or was set back by less; seconds per second


@dataclass
class _Count:
    """The current count. since: its start, in seconds since 1970."""

    departures: Departures
    since: float


class PoolCompletions:
    """The completions of one worker.

    Times `now` are of the local monotonic clock, `at` of the worker's clock.
    """

    def __init__(self) -> None:
        self._count: _Count | None = None
        self._places: dict[str, int] = {}  # task → its place, oldest first
        self._most_places = 0
        self._behind_seconds = math.inf  # how far the worker's clock is behind the local one
        self._heard_at = 0.0
        self._crowded_at: float | None = None
        self._unsettled = 0  # notes since the last observation

    def record_start(self, task: str, at: float | None, now: float) -> None:
        """Record that a task started."""
        if self._count is None or at is None or not self._keeps_time(at, now):
            return
        taken = set(self._places.values())
        place = next(index for index in range(len(taken) + 1) if index not in taken)
        self._places[task] = place
        self._most_places = max(self._most_places, place + 1)
        self._add(place, WorkerNote(at, place, BEGAN))

    def record_end(self, task: str, at: float | None, now: float) -> None:
        """Record that a started task ended, whatever its outcome."""
        place = self._places.pop(task, None)
        if self._count is None or place is None or at is None or not self._keeps_time(at, now):
            return
        self._add(place, WorkerNote(at, place, DONE, 1), WorkerNote(at, place, ENDED))

    def begin_anew(self) -> None:
        """Discard all counts."""
        self._count, self._places = None, {}
        self._behind_seconds, self._crowded_at, self._unsettled = math.inf, None, 0

    def observe(self, size: int, now: float, clock: float) -> PoolSamples | None:
        """Return the completions so far of a pool with `size` processes, or None if nothing is counted yet.

        clock: seconds since 1970.
        """
        if self._count is None or math.isinf(self._behind_seconds):
            self._count = self._count or _Count(Departures(size, -math.inf), clock)
            return None
        at = now - self._behind_seconds
        self._count.departures.resize(size, at)
        self._free_stuck(size, now)
        self._unsettled = 0
        self._count.departures.settle(at, range(self._most_places))
        return PoolSamples(since=self._count.since, **self._count.departures.to_json())

    def _add(self, place: int, *notes: WorkerNote) -> None:
        """Add notes at once: every event is reported when it happens, so a running task delays nothing."""
        self._unsettled += len(notes)
        if self._unsettled > MAX_PENDING:  # no observer reads it
            self.begin_anew()
        elif self._count is not None:
            self._count.departures.add(notes, math.inf, place)

    def _keeps_time(self, at: float, now: float) -> bool:
        behind = now - at
        if not math.isinf(self._behind_seconds) and abs(behind - self._behind_seconds) > CLOCK_SECONDS:
            self.begin_anew()
            return False
        drifted = self._behind_seconds + DRIFT * max(0.0, now - self._heard_at)
        self._behind_seconds, self._heard_at = min(drifted, behind), now
        return True

    def _free_stuck(self, size: int, now: float) -> None:
        if len(self._places) <= size:
            self._crowded_at = None
            return
        self._crowded_at = now if self._crowded_at is None else self._crowded_at
        if now - self._crowded_at < STUCK_SECONDS:
            return
        for task in list(self._places)[: len(self._places) - size]:
            place, at = self._places.pop(task), now - self._behind_seconds
            self._add(place, WorkerNote(at, place, ENDED))
        self._crowded_at = None
