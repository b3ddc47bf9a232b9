"""How long the oldest entry of a segment has waited, even if the node's clock was set back.

An entry's id is the instant at which it was stored, and ids only rise. After a clock is set back by ten minutes, new
entries have ids in the future for ten minutes. The observer then counts from when it first saw the segment like this,
or from when everything present at that time had gone, whichever is later.
"""

from dataclasses import dataclass, field

from queues.segments.gauge import Gauge


@dataclass(frozen=True)
class ObservedSegment:
    """The segment at an instant: how many blocks had been inserted into it."""

    inserted_blocks: int
    at_seconds: float


@dataclass
class WaitingAges:
    """The marks of one node's segments, by queue."""

    marks: dict[str, ObservedSegment] = field(default_factory=dict)

    def observe(self, queue: str, gauge: Gauge, now_seconds: float) -> float | None:
        """Return the age to report for a gauge; now_seconds is monotonic."""
        age = gauge["oldest_seconds"]
        if age is None or age >= 0:
            self.marks.pop(queue, None)
            return age
        inserted = int(gauge["inserted_blocks"] or 0)
        left = inserted - int(gauge["length_blocks"] or 0)
        mark = self.marks.get(queue)
        if mark is None or left >= mark.inserted_blocks or inserted < mark.inserted_blocks:
            mark = self.marks[queue] = ObservedSegment(inserted, now_seconds)
        return now_seconds - mark.at_seconds
