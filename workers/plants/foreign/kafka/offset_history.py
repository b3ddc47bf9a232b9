"""When each event of a partition was appended: the partition's end offset, sample by sample.

The event with offset o was appended between the last sample whose end is ≤ o and the next one; between two
samples events are taken to come evenly:

    appended(o) = t_i + (o - end_i + ½) / (end_{i+1} - end_i) · (t_{i+1} - t_i)

So a group whose next event is o is now - appended(o) seconds behind. Samples become rarer with their age: the
gap between two is at most GAP_SHARE of it, and the error half of that.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

MOST_SAMPLES, KEPT_SAMPLES = 320, 240
GAP_SHARE = 0.05
LEAST_GAP_SECONDS = 2.0


@dataclass(frozen=True)
class Appended:
    """When an event was appended: at `at`, at the earliest `after`, at the latest `before` (seconds, of the
    clock of the samples).
    """

    at: float
    after: float
    before: float

    @property
    def gap_seconds(self) -> float:
        return self.before - self.after


class OffsetHistory:
    """Of one partition. `add` takes what is observed, `insert` what the broker says of the past."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ends: list[int] = []

    @property
    def begins_at(self) -> float | None:
        """The time of the oldest sample."""
        return self._times[0] if self._times else None

    @property
    def oldest(self) -> int | None:
        """The end offset of the oldest sample: events before it came before the history."""
        return self._ends[0] if self._ends else None

    @property
    def newest(self) -> int | None:
        """The end offset as it was observed last."""
        return self._ends[-1] if self._ends else None

    def add(self, at: float, end: int) -> None:
        """The end offset now. One that is lower than before is another log: what was is forgotten."""
        if self._ends and end < self._ends[-1]:
            self._times, self._ends = [], []
        while self._times and self._times[-1] >= at:  # the clock was set back
            self._times.pop()
            self._ends.pop()
        if len(self._ends) > 1 and self._ends[-1] == self._ends[-2] == end:
            self._times[-1] = at  # nothing comes: the first and the last such sample say so
            return
        self._times.append(at)
        self._ends.append(end)
        if len(self._times) > MOST_SAMPLES:
            self._thin(at)

    def insert(self, at: float, end: int) -> bool:
        """A sample of the past; False where it contradicts the others, which stand."""
        place = bisect_left(self._times, at)
        before = self._ends[place - 1] if place else 0
        after = self._ends[place] if place < len(self._ends) else None
        if after is None or not before <= end <= after:
            return False
        self._times.insert(place, at)
        self._ends.insert(place, end)
        return True

    def find_append_time(self, offset: int) -> Appended | None:
        """When the event with this offset came; None where that was before the history, or it has not come
        yet.
        """
        place = bisect_right(self._ends, offset)
        if not 0 < place < len(self._ends):
            return None
        after, before = self._times[place - 1], self._times[place]
        first, beyond = self._ends[place - 1], self._ends[place]
        share = min(1.0, (offset - first + 0.5) / (beyond - first))
        return Appended(after + share * (before - after), after, before)

    def _thin(self, now: float) -> None:
        """Leave out samples that are close together for their age; then the oldest, if there are still too
        many.
        """
        kept = [len(self._times) - 1]
        for place in range(len(self._times) - 2, 0, -1):
            gap = self._times[kept[-1]] - self._times[place - 1]
            if gap > max(LEAST_GAP_SECONDS, GAP_SHARE * (now - self._times[place])):
                kept.append(place)
        kept.append(0)
        kept = kept[:KEPT_SAMPLES][::-1]
        self._times = [self._times[place] for place in kept]
        self._ends = [self._ends[place] for place in kept]
