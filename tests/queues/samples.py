"""Small batches for tests of segments and clients."""

import pyarrow as pa

from queues.events.block import BlockIds, EncodedBlock, cut, from_columns

NOW_US = 1_790_000_000_000_000


def batch_of(events: int, first: int = 0, **columns: list) -> pa.RecordBatch:
    """`events` rows with ids e{first}, e{first+1}, … a second apart."""
    rows = range(first, first + events)
    table = {
        "id": [f"e{row}" for row in rows],
        "time": pa.array([NOW_US + row * 1_000_000 for row in rows], pa.timestamp("us", "UTC")),
        "type": ["cpu"] * events,
        "value": [float(row) for row in rows],
        **columns,
    }
    return from_columns(pa.table(table), NOW_US)


def blocks_of(events: int, per_block: int = 4, first: int = 0) -> list[EncodedBlock]:
    """Events in encoded blocks of `per_block`."""
    return cut(batch_of(events, first), BlockIds(), per_block)
