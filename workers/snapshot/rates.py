"""Rates of cumulative counters that are read once a second."""

from collections import deque
from collections.abc import Container
from statistics import median

from workers.documents.queues import Trend

WINDOW_SECONDS = 3.0
# Workers start every few seconds and take thousands of events at once, so output is averaged over a longer time.
LEAVING_WINDOW_SECONDS = 15.0
TREND_SECONDS = 30.0
MIN_SECONDS = 15.0  # of samples before there is a result
MIN_SAMPLES = 9
BEGINS_EVENTS, BEGINS_SHARE = 50.0, 0.02  # a smaller change is none
ENDS = 0.5  # a trend ends below half of it
# After this time the next report is overdue: nothing has been published since.
LATE_SECONDS = 1.5
DRIFT = 1e-3  # drift of one clock against the other, and the possible effect of a shorter network path


class Rates:
    """rate = (newest - oldest) / (time between), over the samples of a window.

    The window averages over writes just before and just after a reading. Times are monotonic seconds. A counter that
    decreased was reset (a server restarted empty, or with data of a second ago): its history is dropped, and the rate
    is unknown until the next sample instead of having a jump that never happened.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def add(self, name: str, value: float, at_seconds: float, window_seconds: float = WINDOW_SECONDS) -> float | None:
        """Add a sample; return the rate per second, or None while there is only one."""
        samples = self._samples.setdefault(name, deque())
        if samples and value < samples[-1][1]:
            samples.clear()
        samples.append((at_seconds, value))
        # One sample older than the window stays, so that the window is spanned completely.
        while len(samples) > 2 and samples[1][0] <= at_seconds - window_seconds:
            samples.popleft()
        return self.get_latest(name)

    def get_latest(self, name: str) -> float | None:
        """Return the rate as of the newest sample, for a counter that has not been read since."""
        samples = self._samples.get(name)
        if not samples:
            return None
        (first_seconds, first), (last_seconds, last) = samples[0], samples[-1]
        return (last - first) / (last_seconds - first_seconds) if last_seconds > first_seconds else None

    def forget(self, name: str) -> None:
        """Forget a counter that is unknown now: its next sample is a first one."""
        self._samples.pop(name, None)

    def forget_others(self, names: Container[str]) -> None:
        """Keep only the counters with these names."""
        for name in [sample for sample in self._samples if sample not in names]:
            self.forget(name)


class TrendWatch:
    """The change of a quantity: the median of the newest third of its samples, less that of the oldest."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()
        self._trend: Trend | None = None

    def add(self, value: float | None, at_seconds: float) -> None:
        """Add a sample, about one per second, by a monotonic clock. An unknown value restarts the window."""
        if value is None:
            self._samples.clear()
            self._trend = None
            return
        self._samples.append((at_seconds, value))
        while self._samples[0][0] < at_seconds - TREND_SECONDS:
            self._samples.popleft()
        if (change := self.change) is None:
            self._trend = None
            return
        begins = max(BEGINS_EVENTS, BEGINS_SHARE * (value - change))
        # A change of direction shows in the newest two thirds first.
        turned = self._recent_change if change * self._recent_change < 0 else 0.0
        change = turned if abs(turned) > ENDS * begins else change
        trend: Trend = "rising" if change > 0 else "falling"
        limit = ENDS * begins if trend == self._trend or turned else begins
        self._trend = trend if abs(change) > limit else "steady"

    @property
    def change(self) -> float | None:
        """Return the change over the window; None with too few samples."""
        samples = self._samples
        if len(samples) < MIN_SAMPLES or samples[-1][0] - samples[0][0] < MIN_SECONDS:
            return None
        third = len(samples) // 3
        values = [value for _, value in samples]
        return median(values[-third:]) - median(values[:third])

    @property
    def _recent_change(self) -> float:
        """Return the median of the newest third, less that of the third before it."""
        third, values = len(self._samples) // 3, [value for _, value in self._samples]
        return median(values[-third:]) - median(values[-2 * third : -third])

    @property
    def trend(self) -> Trend | None:
        """Return the trend; None with too few samples."""
        return self._trend


class ReportTimes:
    """When reported cumulative counts were valid, by the watcher's monotonic clock: the report's own time + offset.

    A producer reports once a second, and the watcher reads once a second: in 3 s it sees two to four reports, and a
    steady rate would seem to vary by a third. Each report has a time by its own clock, which only says how far apart
    two reports are.

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
        for name in [report_name for report_name in self._known if report_name not in names]:
            del self._known[name]
