"""How much the fixed cost of a batch, besides its operators, varies over a time window."""

from collections import deque
from statistics import fmean, variance

MIN_BATCHES = 10  # with fewer, the variance says little
RETAINED_SECONDS = 60.0


class BatchOverheads:
    """The batches that finished in the last RETAINED_SECONDS. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float]] = deque()

    def add(self, at: float, overhead_seconds: float) -> None:
        """Add a finished batch. overhead_seconds: its own time without that of its operators."""
        self._batches.append((at, overhead_seconds))

    def forget(self, now: float) -> None:
        while self._batches and self._batches[0][0] < now - RETAINED_SECONDS:
            self._batches.popleft()

    def cv2(self, between_seconds: float) -> float | None:
        """Return variance / mean² of a batch's time with the pause before the next; None for few batches."""
        overheads = [overhead for _, overhead in self._batches]
        mean = between_seconds + fmean(overheads) if overheads else 0.0
        if len(overheads) < MIN_BATCHES or mean <= 0:
            return None
        return round(variance(overheads) / mean**2, 4)
