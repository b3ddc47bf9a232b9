"""Times between completions in the pool of one worker, from its events of tasks (`workers.pool.departures`).

An event does not say in which process a task ran, and need not: each task that begins takes the lowest place
that is free, and leaves it when it ends. Counted is by the worker's own clock, which is ahead of ours by what
its quickest event says. Where that clock is set, or the worker is another one, counting begins anew.

Events may be lost. One that a task began is not missed; one that a task ended would leave its place taken for
ever: so where more places than processes were taken for STUCK_SECONDS, the oldest are free again.
"""

import math
from dataclasses import dataclass

from workers.documents.plants import PoolSamples
from workers.pool.departures import BEGAN, DONE, ENDED, MOST_PENDING, Departures, WorkerNote

STUCK_SECONDS = 30.0
CLOCK_SECONDS = 10.0  # a clock that jumps further was set
DRIFT = 0.01  # of a clock that goes slower than ours, or was set back by less; s of each second


@dataclass
class _Count:
    """Since it was last begun: since, s since 1970."""

    departures: Departures
    since: float


class PoolCompletions:
    """Of one worker. Times `now` are of our monotonic clock, `at` of the worker's."""

    def __init__(self) -> None:
        self._count: _Count | None = None
        self._places: dict[str, int] = {}  # task → its place, the oldest first
        self._most_places = 0
        self._behind_seconds = math.inf  # of the worker's clock, behind ours
        self._heard_at = 0.0
        self._crowded_at: float | None = None
        self._unsettled = 0  # notes since it was last observed

    def began(self, task: str, at: float | None, now: float) -> None:
        """A task began."""
        if self._count is None or at is None or not self._keeps_time(at, now):
            return
        taken = set(self._places.values())
        place = next(index for index in range(len(taken) + 1) if index not in taken)
        self._places[task] = place
        self._most_places = max(self._most_places, place + 1)
        self._add(place, WorkerNote(at, place, BEGAN))

    def record_end(self, task: str, at: float | None, now: float) -> None:
        """A task that had begun has ended, however it did."""
        place = self._places.pop(task, None)
        if self._count is None or place is None or at is None or not self._keeps_time(at, now):
            return
        self._add(place, WorkerNote(at, place, DONE, 1), WorkerNote(at, place, ENDED))

    def begin_anew(self) -> None:
        """Nothing counted goes on."""
        self._count, self._places = None, {}
        self._behind_seconds, self._crowded_at, self._unsettled = math.inf, None, 0

    def observe(self, size: int, now: float, clock: float) -> PoolSamples | None:
        """What was completed so far by a pool of so many processes; None where nothing is counted yet. clock:
        s since 1970.
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
        """Whatever happens is said at once, so a task under way holds nothing up."""
        self._unsettled += len(notes)
        if self._unsettled > MOST_PENDING:  # nobody observes it
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
