"""The trend of a backlog from several samples, robust against outliers."""

from collections import deque
from statistics import median

from workers.documents.queues import Trend

WINDOW_SECONDS = 30.0
MIN_SECONDS = 15.0  # of samples before there is a result
MIN_SAMPLES = 9
BEGINS_EVENTS, BEGINS_SHARE = 50.0, 0.02  # a smaller change is none
ENDS = 0.5  # a trend ends below half of it


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
        while self._samples[0][0] < at_seconds - WINDOW_SECONDS:
            self._samples.popleft()
        self._trend = self._judge_trend()

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
    def trend(self) -> Trend | None:
        """Return the trend; None with too few samples."""
        return self._trend

    def _judge_trend(self) -> Trend | None:
        change = self.change
        if change is None:
            return None
        begins = max(BEGINS_EVENTS, BEGINS_SHARE * (self._samples[-1][1] - change))
        trend: Trend = "rising" if change > 0 else "falling"
        limit = ENDS * begins if trend == self._trend else begins
        return trend if abs(change) > limit else "steady"
