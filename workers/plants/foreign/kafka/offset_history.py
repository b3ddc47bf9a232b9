"""The time at which each event of a partition was appended, from samples of the partition's end offset.

The event with offset o was appended between the last sample whose end is ≤ o and the next one; between two samples
events are assumed to arrive evenly:

    appended(o) = t_i + (o - end_i + ½) / (end_{i+1} - end_i) · (t_{i+1} - t_i)

So a group whose next event is o is now - appended(o) seconds behind. Samples become sparser with age: the gap between
two is at most GAP_SHARE of their age, and the error half of that.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

MAX_SAMPLES, KEPT_SAMPLES = 320, 240
GAP_SHARE = 0.05
MIN_GAP_SECONDS = 2.0


@dataclass(frozen=True)
class AppendTime:
    """The time at which an event was appended: `at`, between `after` and `before` (seconds, by the samples' clock)."""

    at: float
    after: float
    before: float

    @property
    def gap_seconds(self) -> float:
        return self.before - self.after


class OffsetHistory:
    """The history of one partition. `add` takes observations, `insert` past values from the broker."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ends: list[int] = []

    @property
    def begins_at(self) -> float | None:
        """Return the time of the oldest sample."""
        return self._times[0] if self._times else None

    @property
    def newest(self) -> int | None:
        """Return the last observed end offset."""
        return self._ends[-1] if self._ends else None

    def add(self, at: float, end: int) -> None:
        """Add the current end offset. A lower offset means another log, and clears the history."""
        if self._ends and end < self._ends[-1]:
            self._times, self._ends = [], []
        while self._times and self._times[-1] >= at:  # the clock was set back
            self._times.pop()
            self._ends.pop()
        if len(self._ends) > 1 and self._ends[-1] == self._ends[-2] == end:
            self._times[-1] = at  # no arrivals: the first and the last such sample are enough
            return
        self._times.append(at)
        self._ends.append(end)
        if len(self._times) > MAX_SAMPLES:
            self._thin(at)

    def insert(self, at: float, end: int) -> bool:
        """Insert a past sample. Return False, and change nothing, if it contradicts the others."""
        place = bisect_left(self._times, at)
        before = self._ends[place - 1] if place else 0
        after = self._ends[place] if place < len(self._ends) else None
        if after is None or not before <= end <= after:
            return False
        self._times.insert(place, at)
        self._ends.insert(place, end)
        return True

    def find_append_time(self, offset: int) -> AppendTime | None:
        """Return when the event was appended; None if before the history, or not appended yet."""
        place = bisect_right(self._ends, offset)
        if not 0 < place < len(self._ends):
            return None
        after, before = self._times[place - 1], self._times[place]
        first, beyond = self._ends[place - 1], self._ends[place]
        share = min(1.0, (offset - first + 0.5) / (beyond - first))
        return AppendTime(after + share * (before - after), after, before)

    def _thin(self, now: float) -> None:
        """Remove samples that are close together for their age, then the oldest if still too many."""
        kept = [len(self._times) - 1]
        for place in range(len(self._times) - 2, 0, -1):
            gap = self._times[kept[-1]] - self._times[place - 1]
            if gap > max(MIN_GAP_SECONDS, GAP_SHARE * (now - self._times[place])):
                kept.append(place)
        kept.append(0)
        kept = kept[:KEPT_SAMPLES][::-1]
        self._times = [self._times[place] for place in kept]
        self._ends = [self._ends[place] for place in kept]
