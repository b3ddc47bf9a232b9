"""Small batches for tests of segments and clients."""

from collections.abc import Iterable

import pyarrow as pa

from queues.events.block import BlockIds, EncodedBlock, cut, from_columns
from queues.segments.gauge import GROUP
from queues.segments.segment import ClaimedBlock, Segment

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


def age_claims(segment: Segment, worker: str, claims: Iterable[ClaimedBlock], idle_seconds: float) -> None:
    """Make a worker's claims as old as if it had not renewed them for so long."""
    entries, idle_ms = [claim.entry_id for claim in claims], round(idle_seconds * 1_000)
    segment.node.xclaim(segment.stream, GROUP, worker, 0, entries, idle=idle_ms, justid=True)
