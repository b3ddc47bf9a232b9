"""When reported cumulative counts were valid, by the watcher's monotonic clock.

A producer reports once a second, and the watcher reads once a second: in 3 s it sees two to four reports, and a steady
rate would seem to vary by a third. Each report has a time by its own clock, which only says how far apart two reports
are.
"""

from collections.abc import Container

# After this time the next report is overdue: nothing has been published since.
LATE_SECONDS = 1.5
DRIFT = 1e-3  # drift of one clock against the other, and the possible effect of a shorter network path


class ReportTimes:
    """The times of reports: time = the report's own + offset.

    offset: the minimum (watcher's now - report's own) so far, which grows by DRIFT per second. A clock that was set, so
    that a report is LATE_SECONDS away from its reading, gets a new offset.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, float]] = {}  # name → own time, offset, time

    def estimate(self, name: str, own_seconds: float, now_seconds: float) -> float | None:
        """Return when its newest report was made; None while nothing is new.

        The time is never earlier than that of the previous report. For an overdue report, it is the time up to which
        the next one may still be in transit.
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
        """Keep only the reports with these names."""
        for name in [each for each in self._known if each not in names]:
            del self._known[name]
