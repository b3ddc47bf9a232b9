"""An answer is sent no longer than its reader takes it: who reads nothing must not hold a place for ever.

Only the time counts in which `send` waits for the reader: what takes long to make is nobody's fault. A reader
may keep an answer waiting for PATIENCE_SECONDS, and longer by what it has taken at LEAST_BYTES_PER_SECOND, so
that a long export to a slow connection goes on. A single piece may wait for no longer than its own part of
that: megabytes that lie in the buffers between are counted as taken, and nobody may have read one of them.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 20.0
LEAST_BYTES_PER_SECOND = 8 * 1024


class ReaderLeft(asyncio.CancelledError):
    """The answer was not read in time. To an application it is the same as a reader who has gone: Django then
    closes what it streams, and its thread and database connection are free.
    """


class Reader:
    """Who reads one answer."""

    def __init__(
        self,
        send: Any,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._patience_seconds, self._clock = send, patience_seconds, clock
        self._taken_bytes, self._last_bytes, self._waited_seconds = 0, 0, 0.0

    async def send(self, message: dict[str, Any]) -> None:
        """The server's `send`, in time. Raises ReaderLeft."""
        allowed_seconds = self._patience_seconds + self._taken_bytes / LEAST_BYTES_PER_SECOND
        of_piece_seconds = self._patience_seconds + self._last_bytes / LEAST_BYTES_PER_SECOND
        left_seconds = min(of_piece_seconds, allowed_seconds - self._waited_seconds)
        began_seconds = self._clock()
        try:
            if left_seconds <= 0:
                raise TimeoutError  # what is free again now came too late
            async with asyncio.timeout(left_seconds):
                await self._send(message)
        except TimeoutError:
            raise ReaderLeft from None
        self._waited_seconds += self._clock() - began_seconds
        self._last_bytes = len(message.get("body", b""))
        self._taken_bytes += self._last_bytes
