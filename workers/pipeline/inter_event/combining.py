"""The combiner: merges the replicas' results in event-time order. Pure arithmetic.

Event time is settled up to the *barrier*: the least, over replicas, of the watermark that held before the
first dispatch whose result is not in the queue yet. A batch takes every result that is there and hands on the
rows that the watermark has passed; a result with later rows is *held*: it stays in the queue and is read
again. A slow replica is therefore seen by name, as the one the barrier waits for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.cursor import VERSION, check_version
from workers.pipeline.tiers.result_queue import Result

START = "0-0"
# The queue's free space jumps by a batch when that is done: it can't be kept any closer to its reference.
MOST_SHARE = 1 / 32


@dataclass(frozen=True)
class Outstanding:
    """A replica's oldest dispatch that has no result yet: `tick`, and the watermark before it."""

    tick: int
    watermark_us: int | None


@dataclass(frozen=True)
class Barrier:
    """watermark_us: settled event time. replica: whom it waits for (None: nobody). behind: replica →
    dispatches that are not worked yet.
    """

    watermark_us: int | None
    replica: str | None = None


def barrier(watermark_us: int | None, outstanding: Mapping[str, Outstanding]) -> Barrier:
    """watermark_us: that of the newest dispatch, which holds where nothing is outstanding. It was read before
    the replicas were asked, one after the other: what was dispatched in between to one that was asked already
    is not among the outstanding, and lies behind it.
    """
    if not outstanding:
        return Barrier(watermark_us)
    slowest = min(outstanding, key=lambda name: (outstanding[name].tick, name))
    held_us = outstanding[slowest].watermark_us
    known = None if held_us is None or watermark_us is None else min(held_us, watermark_us)
    return Barrier(known, slowest)


@dataclass(frozen=True)
class Combined:
    """The end offset of an inter-event batch; it says all of the batch. taken: entry id of the last result
    taken. left_over: results that were read before, of which rows are left. fresh: results read for the first
    time.
    """

    taken: str = START
    left_over: tuple[Result, ...] = ()
    fresh: tuple[Result, ...] = ()
    watermark_us: int | None = None
    previous_watermark_us: int | None = None
    controls: Controls = field(default_factory=Controls)
    waits_for: str | None = None

    @property
    def read(self) -> tuple[Result, ...]:
        return self.left_over + self.fresh

    @property
    def rows(self) -> int:
        """Rows that this batch reads at most."""
        return sum(blob.rows for result in self.read for blob in result.blobs if self.wants(blob.first_us))

    def wants(self, first_us: int) -> bool:
        """Whether rows from this event time on may be due in this batch."""
        return self.watermark_us is not None and first_us <= self.watermark_us

    def compute_remaining(self) -> tuple[Result, ...]:
        """What this batch leaves in the queue."""
        return tuple(result for result in self.read if self._remains(result))

    def list_finished(self) -> tuple[Result, ...]:
        """What may go when this batch is done."""
        return tuple(result for result in self.read if not self._remains(result))

    def _remains(self, result: Result) -> bool:
        last_us = result.last_us
        return last_us is not None and (self.watermark_us is None or last_us > self.watermark_us)

    def to_document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "taken": self.taken,
            "held": [result.to_document() for result in self.left_over],
            "fresh": [result.to_document() for result in self.fresh],
            "watermark_us": self.watermark_us,
            "previous_watermark_us": self.previous_watermark_us,
            "controls": self.controls.to_document(),
            "waits_for": self.waits_for,
        }

    @classmethod
    def from_document(cls, document: Any) -> "Combined":
        """Raises BadInput when it is not of this version."""
        check_version(document, "offset")
        return cls(
            document["taken"],
            tuple(Result.from_document(entry) for entry in document["held"]),
            tuple(Result.from_document(entry) for entry in document["fresh"]),
            document["watermark_us"],
            document["previous_watermark_us"],
            Controls().apply_changes(document["controls"]),
            document["waits_for"],
        )


def combine(
    start: Combined, arrived: Iterable[Result], settled: Barrier, controls: Controls, most_rows: int
) -> Combined:
    """The next batch after `start`; `start` itself when there is nothing to do.

    arrived: the results behind `start.taken`, found after the barrier. At most about `most_rows`, and a
    MOST_SHARE of the result queue, are taken (one result at least); what is not taken holds the watermark
    like a dispatch that is not worked.
    """
    fresh, left = _take_arrived(list(arrived), most_rows, MOST_SHARE * controls.result_bytes)
    watermarks = [settled.watermark_us, *(result.watermark_us for result in left)]
    watermark_us = _least(watermarks)
    if start.watermark_us is not None:
        watermark_us = max(start.watermark_us, watermark_us or start.watermark_us)
    if not fresh and watermark_us == start.watermark_us:
        return start
    return Combined(
        taken=fresh[-1].entry_id if fresh else start.taken,
        left_over=start.compute_remaining(),
        fresh=tuple(fresh),
        watermark_us=watermark_us,
        previous_watermark_us=start.watermark_us,
        controls=controls,
        waits_for=settled.replica,
    )


def _take_arrived(
    arrived: list[Result], most_rows: int, most_bytes: float
) -> tuple[list[Result], list[Result]]:
    rows = size_bytes = 0
    for place, result in enumerate(arrived):
        rows += sum(blob.rows for blob in result.blobs)
        size_bytes += result.size_bytes
        if place and (rows > most_rows or size_bytes > most_bytes):
            return arrived[:place], arrived[place:]
    return arrived, []


def _least(watermarks: list[int | None]) -> int | None:
    """The least; unknown when one is."""
    return None if None in watermarks else min(watermark for watermark in watermarks if watermark is not None)
