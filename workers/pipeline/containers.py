"""Reading containers: entries of segments as Arrow batches of events, with where they come from."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import redis

from queues import block
from queues.errors import NodeUnavailable
from queues.segment import Segment

ARROW = pa.schema(
    [
        *block.SCHEMA,
        pa.field("queue", pa.string()),
        pa.field("node", pa.string()),
        pa.field("block", pa.string()),
        pa.field("published", pa.timestamp("us", tz="UTC")),
    ]
)
MERGED_ROWS = 10_000  # blocks are merged to about this many rows before they go to Spark
UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, NodeUnavailable)


@dataclass(frozen=True)
class Range:
    """Entries of one container, read after one id and through another."""

    queue: str
    node: str
    url: str
    after: str
    through: str


class Nodes:
    """Segments by queue and node, connected when needed. Short timeouts: a batch must not wait for a node
    that is down.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._connections: dict[str, redis.Redis] = {}
        self._segments: dict[tuple[str, str], Segment] = {}

    def segment(self, queue: str, url: str) -> Segment:
        if url not in self._connections:
            self._connections[url] = redis.Redis.from_url(
                url, socket_connect_timeout=0.3, socket_timeout=self._timeout_seconds, retry=None
            )
        if (queue, url) not in self._segments:
            self._segments[queue, url] = Segment(self._connections[url], queue)
        return self._segments[queue, url]

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._segments.clear()


def read_range(nodes: Nodes, part: Range, patience_seconds: float) -> Iterator[pa.RecordBatch]:
    """The entries of a planned range. They were promised to this batch, so a node that went away meanwhile is
    waited for.
    """
    deadline = time.monotonic() + patience_seconds
    after = part.after
    while True:
        try:
            for entry_id, block_id, data in nodes.segment(part.queue, part.url).read(after, part.through):
                yield _with_origin(part, entry_id, block_id, data)
                after = entry_id
            return
        except UNREACHABLE as error:
            if time.monotonic() >= deadline:
                raise NodeUnavailable(
                    f"node {part.node} holds events that a running batch has to read and does not answer "
                    f"({error}); start it again, or take it out of the topology to give these events up"
                ) from error
            time.sleep(0.2)


def _with_origin(part: Range, entry_id: str, block_id: str, data: bytes) -> pa.RecordBatch:
    """A stored block with its event ids written out, and where it comes from."""
    batch = block.decode(block_id, data).explicit()
    published_us = int(entry_id.partition("-")[0]) * 1000
    origin = (part.queue, part.node, block_id, pa.scalar(published_us, pa.timestamp("us", tz="UTC")))
    columns = [pa.repeat(value, batch.num_rows) for value in origin]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=ARROW)


def merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer, larger batches: what a batch costs on its way to Spark does not depend on its
    rows.
    """
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= MERGED_ROWS:
            yield pa.concat_batches(gathered)
            gathered, rows = [], 0
    if gathered:
        yield pa.concat_batches(gathered)
