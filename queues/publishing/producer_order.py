"""Producers that publish in order. Their block IDs show up to which event time all of their events are stored.

A *session* is an ordered sequence of blocks that one producer publishes to one queue from one process. A block ID
consists of the session (16 hex digits) and a number (16 hex digits): twice the position of the block, plus 1 for the
last block of a call. A reader that has all blocks up to the end of a call has all events of this producer up to the
newest time of the call. The blocks can be in any containers. A producer has one session per queue at a time. Blocks of
an earlier session count as unordered.

| key | type | holds |
|---|---|---|
| `weir:producer-sessions:{queue}` | hash | producer → its newest session |
"""

import re
import secrets
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import redis

from common.errors import MalformedEvent
from queues import keys
from queues.events.block import EncodedBlock, cut

_DIGITS = 16  # of a session, and of a number
_BLOCK_ID = re.compile(r"([0-9a-f]{16})([0-9a-f]{16})")


class OrderMark(NamedTuple):
    """The position of a block in a session. is_last: whether it is the last block of its call."""

    session: str
    position: int
    is_last: bool

    @classmethod
    def parse(cls, block_id: str) -> "OrderMark | None":
        """Return the mark in a block ID; None if its client doesn't publish in order."""
        match = _BLOCK_ID.fullmatch(block_id)
        if match is None:
            return None
        number = int(match[2], 16)
        return cls(match[1], number >> 1, bool(number & 1))

    def build_block_id(self) -> str:
        return f"{self.session}{2 * self.position + self.is_last:0{_DIGITS}x}"


class ProducerOrder:
    """The order of one producer in one queue. Hold `lock` from `register` until the blocks are stored."""

    def __init__(self, control: redis.Redis, producer: str, queue: str) -> None:
        self._control, self._producer = control, producer
        self._key = keys.PRODUCER_SESSIONS.build(queue)
        self.lock = threading.Lock()
        self.newest_us = -1  # µs since 1970: newest event time of the calls so far
        self.restart()

    def restart(self) -> None:
        """Begin a new session. If a block was not stored, the order of its session can't become complete."""
        self._session, self._position = secrets.token_hex(_DIGITS // 2), 0
        self._is_registered = False

    def register(self) -> None:
        """Make this session the producer's newest session, before its first block is stored. Raises `RedisError`."""
        if not self._is_registered:
            self._control.hset(self._key, self._producer, self._session)
            self._is_registered = True

    def number_blocks(self, batches: Iterable[pa.RecordBatch]) -> list[EncodedBlock]:
        """Return the blocks of a call. Raises `MalformedEvent` if an event isn't later than the previous call."""
        batches = [batch for batch in batches if batch.num_rows]
        if not batches:
            return []
        times = [pc.min_max(batch.column("time").cast(pa.int64())) for batch in batches]
        oldest_us = min(bounds["min"].as_py() for bounds in times)
        if oldest_us <= self.newest_us:
            raise MalformedEvent(
                "time",
                f"{oldest_us} µs is not later than the newest event of the previous call ({self.newest_us} µs)."
                " A client with in_order=True publishes in event-time order: sort the events, or use a client without"
                " in_order.",
            )
        self.newest_us = max(bounds["max"].as_py() for bounds in times)
        blocks = [block for batch in batches for block in cut(batch, str)]
        first, self._position = self._position, self._position + len(blocks)
        marks = (OrderMark(self._session, first + place, place == len(blocks) - 1) for place in range(len(blocks)))
        return [replace(block, block_id=mark.build_block_id()) for block, mark in zip(blocks, marks, strict=True)]
