"""The beat's schedule, on a host whose clock may be set back: Celery's stands still until it has come up.

Celery asks the database at each of several ticks a second whether the schedule was changed; this one once a
second. And it has the loops tick when what they go by has just been observed.
"""

import math
import time
from datetime import timedelta
from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler

from queues.nodes import heartbeat_file
from workers.coordination.tick import TICK, TICK_AT_SECONDS

CHANGES_SECONDS = 1.0
SECOND, NEVER = timedelta(seconds=1), timedelta(0)


def _ticks_on_time(entry: Any) -> bool:
    """Whether it is the loops', as it comes: somebody may have set it to a part of a second, or to hours."""
    return entry.task == TICK and getattr(entry.schedule, "run_every", NEVER) >= SECOND


class BeatSchedule(DatabaseScheduler):  # type: ignore[misc]  # it brings no types
    """What was last run in the future was run now: it is due again after its interval."""

    # What a beat before has stored may lie ahead, too.
    _ticked_at = math.inf
    _asked_at = -math.inf

    def tick(self, *arguments: Any, **named: Any) -> float:
        """Sends what is due; seconds until it is to be called again."""
        now = time.time()
        if now < self._ticked_at:
            self._follow_the_clock()
        self._ticked_at = now
        seconds = float(super().tick(*arguments, **named))
        heartbeat_file.touch()
        return seconds

    def reserve(self, entry: Any) -> Any:
        """The entry as it is from its run now on."""
        following = super().reserve(entry)
        if _ticks_on_time(following):
            following.last_run_at -= timedelta(seconds=(time.time() - TICK_AT_SECONDS) % 1.0)
        return following

    def _compute_due_time(self, entry: Any, next_time_to_run: float, **named: Any) -> float:
        """When the entry is to be asked whether it is due, in seconds since 1970; at no distance, now."""
        if not next_time_to_run or not _ticks_on_time(entry):
            return float(super()._when(entry, next_time_to_run, **named))
        return float(self.adjust(entry.last_run_at.timestamp() + entry.schedule.run_every.total_seconds()))

    def schedule_changed(self) -> bool:
        """Whether the database has another schedule, as far as was asked."""
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
        # It is ordered by times of a clock that is no more: what comes first there would come first for ever.
        self._heap = None
