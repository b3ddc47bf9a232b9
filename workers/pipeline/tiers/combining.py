"""The combiner: merges the replicas' results in event-time order. Pure arithmetic.

Event time is settled up to the *barrier*: the minimum, over replicas, of the watermark before the first dispatch whose
result is not in the queue yet. A batch reads every result in the queue and passes on the rows that the watermark has
passed. A result with later rows is *held*: it stays in the queue and is read again. A slow replica is therefore visible
by name, as the one that the barrier waits for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from common.stored_document import replace_fields
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.cursor import VersionedDocument
from workers.pipeline.dispatch.result_queue import Blob, Result

START = "0-0"
# The free space of the queue jumps by a batch when the batch is done, so it can't be kept closer to its
# setpoint than this.
MAX_SHARE = 1 / 32


@dataclass(frozen=True)
class OutstandingDispatch:
    """The oldest dispatch of a replica that has no result yet: its `tick`, and the watermark before it."""

    tick: int
    watermark_us: int | None


@dataclass(frozen=True)
class Barrier:
    """The settled event time.

    watermark_us: event time is settled up to here. replica: the replica that it waits for (None: none).
    """

    watermark_us: int | None
    replica: str | None = None


def build_barrier(watermark_us: int | None, outstanding: Mapping[str, OutstandingDispatch]) -> Barrier:
    """Return the barrier.

    watermark_us: the watermark of the newest dispatch, which applies if nothing is outstanding. It was read before the
    replicas were queried one after the other. A dispatch made in the meantime to a replica that was already queried is
    not among the outstanding ones, and lies after it.
    """
    if not outstanding:
        return Barrier(watermark_us)
    slowest = min(outstanding, key=lambda name: (outstanding[name].tick, name))
    held_us = outstanding[slowest].watermark_us
    known = None if held_us is None or watermark_us is None else min(held_us, watermark_us)
    return Barrier(known, slowest)


class CombinedOffset(VersionedDocument, frozen=True):
    """The end offset of an inter-event batch, which defines the batch completely.

    taken: entry id of the last result taken. left_over: results that were read before and still have rows.
    fresh: results read for the first time.
    """

    what = "offset"
    taken: str = START
    left_over: tuple[Result, ...] = msgspec.field(default=(), name="held")
    fresh: tuple[Result, ...] = ()
    watermark_us: int | None = None
    previous_watermark_us: int | None = None
    controls: Controls = Controls()
    waits_for: str | None = None

    @property
    def read(self) -> tuple[Result, ...]:
        return self.left_over + self.fresh

    @property
    def rows(self) -> int:
        """Return the maximum number of rows that this batch reads."""
        return sum(blob.rows for result in self.read for blob in result.blobs if self.wants(blob.first_us))

    @property
    def due_rows(self) -> float:
        """Return the approximate number of rows that this batch processes. Rows count as evenly spread over a blob."""
        return sum(blob.rows * self._compute_due_share(blob) for result in self.read for blob in result.blobs)

    def _compute_due_share(self, blob: Blob) -> float:
        if self.watermark_us is None:
            return 0.0
        begin = blob.first_us if self.previous_watermark_us is None else self.previous_watermark_us + 1
        due_us = min(blob.last_us, self.watermark_us) + 1 - max(blob.first_us, begin)
        return max(0, due_us) / max(1, blob.last_us + 1 - blob.first_us)

    @property
    def now_us(self) -> int | None:
        """Return the earliest time of events that this batch leaves to later batches; None: all events are left."""
        return None if self.watermark_us is None else self.watermark_us + 1

    def wants(self, first_us: int) -> bool:
        """Return whether rows from this event time on may be due in this batch."""
        return self.watermark_us is not None and first_us <= self.watermark_us

    def compute_remaining(self) -> tuple[Result, ...]:
        """Return the results that stay in the queue after this batch."""
        return tuple(result for result in self.read if self._is_remaining(result))

    def list_finished(self) -> tuple[Result, ...]:
        """Return the results that can be released when this batch is done."""
        return tuple(result for result in self.read if not self._is_remaining(result))

    def _is_remaining(self, result: Result) -> bool:
        last_us = result.last_us
        return last_us is not None and (self.watermark_us is None or last_us > self.watermark_us)


def combine_arrived_results(
    start: CombinedOffset, arrived: Iterable[Result], settled: Barrier, controls: Controls, most_rows: int
) -> CombinedOffset:
    """Return the next batch after `start`, or `start` itself if there is nothing to do.

    arrived: the results after `start.taken`, read after the barrier. At most about `most_rows`, and MAX_SHARE of the
    result queue, are taken (but at least one result). Results that are not taken hold the watermark back like an
    unprocessed dispatch.
    """
    fresh: list[Result] = []
    left = list(arrived)
    rows = size_bytes = 0
    while left:
        rows += sum(blob.rows for blob in left[0].blobs)
        size_bytes += left[0].size_bytes
        if fresh and (rows > most_rows or size_bytes > MAX_SHARE * controls.result_bytes):
            break
        fresh.append(left.pop(0))
    watermarks = [settled.watermark_us, *(result.watermark_us for result in left)]
    known = [watermark for watermark in watermarks if watermark is not None]
    watermark_us = min(known) if len(known) == len(watermarks) else None
    if start.watermark_us is not None:
        watermark_us = max(start.watermark_us, watermark_us or start.watermark_us)
    if not fresh and watermark_us == start.watermark_us:
        return start
    end = CombinedOffset(
        taken=fresh[-1].entry_id if fresh else start.taken,
        left_over=start.compute_remaining(),
        fresh=tuple(fresh),
        watermark_us=watermark_us,
        previous_watermark_us=start.watermark_us,
        controls=controls,
        waits_for=settled.replica,
    )
    return replace_fields(end, controls=controls.limit_batch(end.due_rows))
