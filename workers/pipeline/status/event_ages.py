"""The ages of events when they were processed, over a time window."""

from collections import deque


class EventAges:
    """All events of a batch count alike: as old as all but its oldest 5 % (`early_us`) at most."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float, int]] = deque()

    def add(self, at: float, age_seconds: float, events: int) -> None:
        """Add a finished batch with this number of events. at: monotonic seconds."""
        self._batches.append((at, age_seconds, events))

    def forget(self, before: float) -> None:
        while self._batches and self._batches[0][0] < before:
            self._batches.popleft()

    def quantile(self, share: float) -> float | None:
        """Return the age that this share of the events did not exceed; None without events."""
        ages = sorted((age, events) for _, age, events in self._batches)
        counted, whole = 0, sum(events for _, events in ages)
        for age, events in ages:
            counted += events
            if counted >= share * whole:
                return round(age, 3)
        return None
