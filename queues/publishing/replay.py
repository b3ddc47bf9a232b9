"""Shapes a stream of event batches before it is published: how many, how often, how fast."""

import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STEP_SECONDS = 0.05


def limit_events(batches: Iterable[pa.RecordBatch], events: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `events` events; the source is not read further than needed."""
    left = events
    for batch in batches:
        if batch.num_rows:
            yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def multiply_events(batches: Iterable[pa.RecordBatch], times: int) -> Iterator[pa.RecordBatch]:
    """Yield every event `times` times. A copy is an event of its own, with `#2`, `#3` … after the producer's id."""
    for batch in batches:
        yield batch
        for copy in range(2, times + 1):
            ids = batch.column("id")
            if ids.null_count < len(ids):  # a null id stays null: it is derived from the copy's own block
                ids = pc.binary_join_element_wise(ids, f"#{copy}", "")
            yield batch.set_column(0, batch.schema.field(0), ids)


class Pace:
    """A replay by event time, `speed` times faster.

    An event is due (its time - the first event's) / speed after the first. `sleep` and `monotonic` are injected. An
    event older than an earlier one is due at once, so disorder delays nothing. Events due within STEP_SECONDS of each
    other are sent together.
    """

    def __init__(
        self, speed: float, sleep: Callable[[float], None] = time.sleep, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed, self._sleep, self._monotonic = speed, sleep, monotonic
        self._first_us: int | None = None
        self._began_seconds = 0.0
        self._due_seconds = 0.0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same events in chunks, each when it is due."""
        for batch in batches:
            if batch.num_rows:
                yield from self._iterate_due_slices(batch)

    def _iterate_due_slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        times_us = batch.column("time").cast(pa.int64()).to_numpy()
        if self._first_us is None:
            self._first_us, self._began_seconds = int(times_us[0]), self._monotonic()
        due_seconds = (times_us - self._first_us) / 1e6 / self._speed
        due_seconds = np.maximum.accumulate(np.maximum(due_seconds, self._due_seconds))
        self._due_seconds = float(due_seconds[-1])
        steps = np.floor(due_seconds / STEP_SECONDS)
        starts = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            wait_seconds = self._began_seconds + float(due_seconds[start]) - self._monotonic()
            if wait_seconds > 0:
                self._sleep(wait_seconds)
            yield batch.slice(start, stop - start)
