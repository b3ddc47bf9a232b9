"""When cumulative counts that others report were as they are, by the watcher's monotonic clock.

A producer reports once a second, and so does the watcher read: of 3 s it sees two to four reports, and a
steady rate would seem to waver by a third. Each report bears its time by a clock of its own, which says
nothing but how far apart two reports are.
"""

from collections.abc import Container

# So long after a report the next is overdue: nothing has been published since.
LATE_SECONDS = 1.5
DRIFT = 1e-3  # of one clock beside the other, and what a shorter way to the watcher may change


class ReportTimes:
    """time = the report's own + offset; offset: the least (watcher's now - report's own) so far, let grow by
    DRIFT a second. A clock that was set, by which a report lies LATE_SECONDS from where it was read, gets
    a new offset.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, float]] = {}  # name → own time, offset, time

    def estimate(self, name: str, own_seconds: float, now_seconds: float) -> float | None:
        """When its newest report was made, never earlier than the one before; None while nothing is new to
        be said. Of one that is overdue, so long ago as the next may still be on its way.
        """
        known = self._known.get(name)
        if known is None:
            self._known[name] = (own_seconds, now_seconds - own_seconds, now_seconds)
            return now_seconds
        own_before, offset, before = known
        if own_seconds == own_before:
            time, lately = max(before, now_seconds - LATE_SECONDS), now_seconds - LATE_SECONDS > before
            self._known[name] = (own_before, offset, time)
            return time if lately else None
        grown = offset + DRIFT * max(0.0, now_seconds - before)
        if not grown - LATE_SECONDS <= now_seconds - own_seconds <= grown + LATE_SECONDS:
            grown = now_seconds - own_seconds
        offset = min(grown, now_seconds - own_seconds)
        time = max(before, own_seconds + offset)
        self._known[name] = (own_seconds, offset, time)
        return time

    def forget_others(self, names: Container[str]) -> None:
        """Only those of these names stay."""
        for name in [each for each in self._known if each not in names]:
            del self._known[name]
