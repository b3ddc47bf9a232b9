"""The beat's schedule on a host whose clock may be set back.

Celery's schedule would stop until the clock has caught up. Celery queries the database for schedule changes several
times a second; this class does so once a second. It also aligns the loops' ticks with new observations.
"""

import math
import time
from datetime import datetime, timedelta
from typing import Protocol

from django_celery_beat.schedulers import DatabaseScheduler

from common import own_process
from workers.coordination.tick import TICK, TICK_AT_SECONDS

CHANGES_SECONDS = 1.0
SECOND, NEVER = timedelta(seconds=1), timedelta(0)


class TickEntry(Protocol):
    """An entry of the schedule; `last_run_at` is set for all that Celery schedules."""

    task: str
    schedule: object
    last_run_at: datetime


def _is_shipped_tick(entry: TickEntry) -> bool:
    """Return whether the entry is the loops' tick at its shipped interval; a person may have changed it."""
    return entry.task == TICK and getattr(entry.schedule, "run_every", NEVER) >= SECOND


class BeatSchedule(DatabaseScheduler):  # type: ignore[misc]  # it brings no types
    """A schedule in which a last run in the future counts as now, so the task is due after its interval."""

    # A time that a previous beat stored may be in the future, too.
    _ticked_at = math.inf
    _asked_at = -math.inf

    def tick(self, *arguments: object, **named: object) -> float:
        """Send the due tasks; return the seconds until the next call."""
        now = time.time()
        if now < self._ticked_at:
            self._follow_the_clock()
        self._ticked_at = now
        return float(super().tick(*arguments, **named))

    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Return a time as it is.

        Celery subtracts 10 ms, and then checks repeatedly whether the task is due: 100 times per second, which was most
        of the work of the beat.
        """
        return n + drift

    def reserve(self, entry: TickEntry) -> TickEntry:
        """Return the entry after its present run."""
        following: TickEntry = super().reserve(entry)
        if _is_shipped_tick(following):
            following.last_run_at -= timedelta(seconds=(time.time() - TICK_AT_SECONDS) % 1.0)
        return following

    def _when(self, entry: TickEntry, next_time_to_run: float, **named: object) -> float:
        """Return when to check whether the entry is due, in s since 1970: now if its time is implausibly far away."""
        if not next_time_to_run or not _is_shipped_tick(entry):
            return float(super()._when(entry, next_time_to_run, **named))
        every: timedelta = getattr(entry.schedule, "run_every", NEVER)
        return float(self.adjust(entry.last_run_at.timestamp() + every.total_seconds()))

    def schedule_changed(self) -> bool:
        """Return whether the database has another schedule, as of the last query."""
        now = time.monotonic()
        if now - self._asked_at < CHANGES_SECONDS:
            return False
        self._asked_at = now
        return bool(super().schedule_changed())

    def _follow_the_clock(self) -> None:
        for name, entry in self.schedule.items():
            now = entry._default_now()
            if entry.last_run_at > now:
                entry.last_run_at = now
                self._dirty.add(name)  # to be stored
        # The heap is ordered by times of the old clock: its first entry would stay first forever.
        self._heap = None


class BeatProcessSchedule(BeatSchedule):
    """The schedule of a beat that is a process of its own. It touches the file of the process's health check."""

    def tick(self, *arguments: object, **named: object) -> float:
        seconds = super().tick(*arguments, **named)
        own_process.touch()
        return seconds
