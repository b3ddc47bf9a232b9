"""Events for tests of the workers: blocks, deliveries and filled segments."""

from typing import Any

import pyarrow as pa

from queues.events.block import SCHEMA, Block, BlockIds, cut
from queues.segments.segment import Segment
from workers.consumer.handler import Delivery

TIME_US = 1_790_000_000_000_000


def batch_of(count: int, first: int = 0, **columns: Any) -> pa.RecordBatch:
    """`count` events; value = first, first + 1, …; ids are derived unless given."""
    values: dict[str, Any] = {
        "id": [None] * count,
        "time": [TIME_US + row for row in range(count)],
        "type": ["load"] * count,
        "source": ["host-1"] * count,
        "key": [f"core{row % 4}" for row in range(count)],
        "value": [float(first + row) for row in range(count)],
        "attributes": ['{"unit": "%"}'] * count,
        **columns,
    }
    arrays = [pa.array(values[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def delivery_of(count: int, block_id: str = "ab" * 16, **columns: Any) -> Delivery:
    return Delivery(block_id, batch_of(count, **columns))


def fill(segment: Segment, blocks: int, events: int = 8) -> list[Block]:
    """Publish blocks whose events have the values 0, 1, 2 …; answers them."""
    encoded = cut(batch_of(blocks * events), BlockIds(), events)
    segment.publish(encoded)
    return [Block(each.block_id, batch_of(events, place * events)) for place, each in enumerate(encoded)]
