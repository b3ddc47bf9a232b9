"""How old events were when they were worked, over a while."""

from collections import deque


class EventAges:
    """A batch's events are taken to be alike: as old as all but its oldest 5 % (`early_us`) at most."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float, int]] = deque()

    def add(self, at: float, age_seconds: float, events: int) -> None:
        """A batch of so many events is finished. at: monotonic seconds."""
        self._batches.append((at, age_seconds, events))

    def forget(self, before: float) -> None:
        while self._batches and self._batches[0][0] < before:
            self._batches.popleft()

    def quantile(self, share: float) -> float | None:
        """Such a share of the events were no older; None without any."""
        ages = sorted((age, events) for _, age, events in self._batches)
        counted, whole = 0, sum(events for _, events in ages)
        for age, events in ages:
            counted += events
            if counted >= share * whole:
                return round(age, 3)
        return None
