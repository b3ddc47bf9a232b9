"""The composition of events: the most frequent types, keys, and sources of a sample, with their counts.

It shows what changed in the arrivals even if no queue is archived, such as a key that becomes dominant.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("type", "key", "source")
MAX_EVENTS = 2_000
MAX_VALUES, MAX_VALUE_LENGTH = 8, 80  # of a column; characters of a value
NONE = "(none)"
Composition = dict[str, int | dict[str, int]]


def compute_composition(batch: pa.RecordBatch) -> Composition:
    """Return {"events": how many were sampled, "type": {value: events}, "key": …, "source": …}.

    The sample has at most MAX_EVENTS rows, evenly spaced in a batch of `queues.events.block.SCHEMA`, which may be
    sorted.
    """
    if batch.num_rows > MAX_EVENTS:
        places = np.linspace(0, batch.num_rows - 1, MAX_EVENTS).astype(np.int64)
        batch = batch.select(COLUMNS).take(pa.array(places))
    return {"events": batch.num_rows, **{name: _count_most_frequent(batch.column(name)) for name in COLUMNS}}


def _count_most_frequent(column: pa.Array) -> dict[str, int]:
    counted = pc.value_counts(column.cast(pa.string()))
    rows = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    counts: dict[str, int] = {}
    for value, count in sorted(rows, key=lambda row: (-row[1], row[0] or ""))[:MAX_VALUES]:
        shown = NONE if value is None else value[:MAX_VALUE_LENGTH]
        counts[shown] = counts.get(shown, 0) + count
    return counts
