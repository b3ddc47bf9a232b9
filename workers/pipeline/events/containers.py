"""Reads containers: entries of segments as Arrow batches with the columns that an application needs."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from common.errors import MalformedEvent, NodeUnavailable
from queues.control.connection import connect
from queues.durability import MEMORY
from queues.events import block
from queues.events.block import build_unreadable_event
from queues.nodes.addresses import add_login
from queues.segments.segment import Segment
from workers.pipeline.events.layout import TIMESTAMP, Layout, extract, find_ahead_faults

READ_BYTES = 2**20  # read size of a socket: blocks and results arrive by the megabyte
QUARANTINED_BY = "pipeline"  # the finder of damaged blocks
MAX_CAUSES = 8  # maximum number of faults of a block that get a dead letter each
# Blocks are merged to about this many rows before they go to Spark, or to this many bytes of large blocks.
MERGED_ROWS, MERGED_BYTES = 20_000, 2**24
UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, NodeUnavailable)


@dataclass(frozen=True)
class Range:
    """Entries of one container, read after one id and up to and including another."""

    queue: str
    node: str
    url: str
    after: str
    through: str


@dataclass
class Faults:
    """Rows that can't be processed, by origin: (queue, node, entry id, block id) → (rows, cause)."""

    ahead_us: int
    now_us: int
    rows: dict[tuple[str, str, str, str], list[tuple[pa.RecordBatch, str]]] = field(default_factory=dict)

    def refuse(self, origin: tuple[str, str, str, str], data: bytes, cause: str) -> None:
        """Keep an unreadable block as one event that contains its bytes."""
        entry_us = int(origin[2].partition("-")[0]) * 1000
        self.rows.setdefault(origin, []).append((build_unreadable_event(origin[3], entry_us, data), cause))

    def add(self, origin: tuple[str, str, str, str], batch: pa.RecordBatch, faults: pa.Array) -> None:
        """Keep faulty rows by cause, up to a maximum number of causes.

        A cause that quotes a value differs for each event, and each takes many times the space of an event.
        """
        causes = pc.unique(faults.drop_null()).to_pylist()
        alone = causes if len(causes) <= MAX_CAUSES else causes[: MAX_CAUSES - 1]
        for cause in alone:
            rows = batch.filter(pc.fill_null(pc.equal(faults, cause), False))
            self.rows.setdefault(origin, []).append((rows, cause))
        if rest := causes[len(alone) :]:
            rows = batch.filter(pc.is_in(faults, pa.array(rest, pa.string())))
            self.rows[origin].append((rows, f"{rest[0]}; similar causes: {len(rest)}"))


class Nodes:
    """Segments by queue and node, connected on demand.

    Timeouts are short: a batch must not wait for a node that is down.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._connections: dict[str, redis.Redis] = {}
        self._segments: dict[tuple[str, str, str], Segment] = {}

    def get_segment(self, queue: str, url: str, durability: str = MEMORY) -> Segment:
        """Return a queue's segment. durability: of the queue, for callers that add to the segment."""
        if url not in self._connections:
            self._connections[url] = redis.Redis.from_url(
                add_login(url),
                socket_connect_timeout=0.3,
                socket_timeout=self._timeout_seconds,
                socket_read_size=READ_BYTES,
                retry=None,
            )
        if (queue, url, durability) not in self._segments:
            self._segments[queue, url, durability] = Segment(self._connections[url], queue, durability)
        return self._segments[queue, url, durability]

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._segments.clear()


class AssignedBlock(NamedTuple):
    """A block of an assignment, with its event ids written out."""

    part: Range
    entry_id: str
    block_id: str
    batch: pa.RecordBatch


def read_range(nodes: Nodes, part: Range, patience_seconds: float, faults: Faults) -> Iterator[AssignedBlock]:
    """Yield the blocks of a dispatched range.

    The blocks were assigned to this batch, so it waits for a node that has become unreachable in the meantime. Damaged
    blocks go to the dead letters at once, `faults` keeps unreadable blocks, and the batch continues.
    """
    deadline = time.monotonic() + patience_seconds
    after = part.after
    while True:
        try:
            segment = nodes.get_segment(part.queue, part.url)
            for stored in segment.read(after, part.through):
                if stored.damage is not None:
                    segment.quarantine(stored.entry_id, stored.damage, QUARANTINED_BY)
                    after = stored.entry_id
                    continue
                try:
                    rows = block.decode(stored.block_id, stored.data).build_explicit_batch()
                except MalformedEvent as error:
                    origin = (part.queue, part.node, stored.entry_id, stored.block_id)
                    faults.refuse(origin, stored.data, str(error))
                else:
                    yield AssignedBlock(part, stored.entry_id, stored.block_id, rows)
                after = stored.entry_id
            return
        except UNREACHABLE as error:
            if time.monotonic() >= deadline:
                raise NodeUnavailable(
                    f"node {part.node} has events that a running batch needs and is not responding ({error});"
                    " start it again, or remove it from the topology to abandon these events"
                ) from error
            time.sleep(0.2)


def merge_blocks(blocks: Iterable[AssignedBlock]) -> Iterator[list[AssignedBlock]]:
    """Merge blocks into fewer, larger ones: a batch's cost on its way to Spark depends on blocks, not on rows."""
    gathered: list[AssignedBlock] = []
    rows = size_bytes = 0
    for block_ in blocks:
        gathered.append(block_)
        rows, size_bytes = rows + block_.batch.num_rows, size_bytes + block_.batch.nbytes
        if rows >= MERGED_ROWS or size_bytes >= MERGED_BYTES:
            yield gathered
            gathered, rows, size_bytes = [], 0, 0
    if gathered:
        yield gathered


def apply_layout(blocks: list[AssignedBlock], layout: Layout, faults: Faults) -> pa.RecordBatch:
    """Convert blocks to the layout, as one batch without the faulty rows, which `faults` keeps."""
    stored = pa.concat_batches([block_.batch for block_ in blocks])
    own = {name: stored.column(place) for place, name in enumerate(block.SCHEMA.names)}
    given, wrong = extract(own["attributes"], layout.attributes) if layout.attributes else ([], None)
    times_us = own["time"].view(pa.int64()).to_numpy(zero_copy_only=False)
    ahead = find_ahead_faults(times_us, faults.now_us, faults.ahead_us)
    ahead = ahead if wrong is None else pc.coalesce(wrong, ahead)
    columns = [own[name] if name in own else _build_origin_column(name, blocks) for name in layout.columns]
    batch = pa.RecordBatch.from_arrays([*columns, *given], schema=layout.schema)
    if ahead.null_count == len(ahead):
        return batch
    _keep(blocks, ahead, faults)
    return batch.filter(pc.is_null(ahead))


def _keep(blocks: list[AssignedBlock], found: pa.Array, faults: Faults) -> None:
    start = 0
    for block_ in blocks:
        own = found.slice(start, block_.batch.num_rows)
        start += block_.batch.num_rows
        if own.null_count < len(own):
            faults.add((block_.part.queue, block_.part.node, block_.entry_id, block_.block_id), block_.batch, own)


def _build_origin_column(name: str, blocks: list[AssignedBlock]) -> pa.Array:
    """Return a column with the origin of the rows."""
    rows = [block_.batch.num_rows for block_ in blocks]
    if name == "published":
        published_us = [int(block_.entry_id.partition("-")[0]) * 1000 for block_ in blocks]
        return pa.array(np.repeat(np.array(published_us, np.int64), rows)).cast(TIMESTAMP)
    values = [block_.block_id if name == "block" else getattr(block_.part, name) for block_ in blocks]
    return pa.array(values, pa.string()).take(pa.array(np.repeat(np.arange(len(blocks)), rows)))


CONTROL_TIMEOUT_SECONDS = 10.0
# Wait about 15 s for a control server that restarts or fails over. A batch that fails ends its query, and
# then all queries are stopped and restarted, which takes longer than the restart of the server.
PATIENCE = Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.05), 60)


def connect_to_control(url: str) -> redis.Redis:
    """Return a connection to the control server that survives its restart. Raises `BadInput` that names REDIS_URL."""
    return connect(url, socket_timeout=CONTROL_TIMEOUT_SECONDS, socket_read_size=READ_BYTES, retry=PATIENCE)


@cache
def control_of(url: str) -> redis.Redis:
    """Return the process-wide connection to the control server. Safe in threads and after a fork."""
    return connect_to_control(url)


@cache
def get_nodes(timeout_seconds: float) -> Nodes:
    """Return the process-wide containers by queue and node."""
    return Nodes(timeout_seconds)
