"""Producers that publish in order. Their block IDs show up to which event time all of their events are stored.

A *session* is an ordered sequence of blocks that one producer publishes to one queue from one process. A block ID
consists of the session (16 hex digits) and a number (16 hex digits): twice the position of the block, plus 1 for the
last block of a call. A reader that has all blocks up to the end of a call has all events of this producer up to the
newest time of the call. The blocks can be in any containers. A producer has one session per queue at a time. Blocks of
an earlier session count as unordered.

| key | type | holds |
|---|---|---|
| `weir:producer-sessions:{queue}` | hash | producer → its newest session |

The key expires SESSION_SECONDS after the last registration.
"""

import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import redis

from common.errors import MalformedEvent
from queues import keys
from queues.events.block import EncodedBlock, cut

# A registration isn't acknowledged by replicas: a failover of the control server can lose it. It is therefore repeated.
REGISTRATION_SECONDS = 10.0
SESSION_SECONDS = 2 * 86_400
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
    """The order of one producer in one queue. Hold `lock` from `number_blocks` until the blocks are stored."""

    def __init__(
        self, control: redis.Redis, producer: str, queue: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._control, self._producer, self._monotonic = control, producer, monotonic
        self._key = keys.PRODUCER_SESSIONS.build(queue)
        self.lock = threading.Lock()
        self.newest_us = -1  # µs since 1970: newest event time of the calls so far
        self.restart()

    def restart(self) -> None:
        """Begin a new session. If a block was not stored, the order of its session can't become complete."""
        self._session, self._position = secrets.token_hex(_DIGITS // 2), 0
        self._registered_at = -math.inf  # by the monotonic clock

    def register(self) -> None:
        """Make this session the producer's newest session, before its first block, and every REGISTRATION_SECONDS.

        If the control server is unavailable before the first block, readers treat the call's blocks as unordered, and
        the next call belongs to a new session. Later, readers know the session, so it continues.
        """
        now = self._monotonic()
        if now - self._registered_at < REGISTRATION_SECONDS:
            return
        try:
            pipe = self._control.pipeline(transaction=False)
            pipe.hset(self._key, self._producer, self._session)
            pipe.expire(self._key, SESSION_SECONDS)
            pipe.execute()
        except (redis.RedisError, OSError):
            if self._registered_at == -math.inf:
                self.restart()
                return
        self._registered_at = now

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
        blocks = [block for batch in batches for block in cut(batch, str)]
        self.newest_us = max(bounds["max"].as_py() for bounds in times)
        first, self._position = self._position, self._position + len(blocks)
        marks = (OrderMark(self._session, first + place, place == len(blocks) - 1) for place in range(len(blocks)))
        return [replace(block, block_id=mark.build_block_id()) for block, mark in zip(blocks, marks, strict=True)]
