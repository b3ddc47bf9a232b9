"""Time limits for slow readers: a client that does not read its answer must not keep its place.

Only the time in which `send` waits for the reader counts, not the time to make the answer. A reader may delay an answer
for PATIENCE_SECONDS, and longer by what it has taken at MIN_BYTES_PER_SECOND, so that a long export over a slow
connection continues. A single piece may wait no longer than its own part of that: megabytes in intermediate buffers
count as taken, although they may not have been read.
"""

import asyncio
import time
from collections.abc import Callable

from console.web.asgi_types import Reply, Send

PATIENCE_SECONDS = 20.0
MIN_BYTES_PER_SECOND = 8 * 1024


class ReaderLeft(asyncio.CancelledError):
    """The answer was not read in time.

    For an application it equals a disconnect: Django then closes what it streams, and its thread and database
    connection are free.
    """


class Reader:
    """The reader of one answer."""

    def __init__(
        self, send: Send, patience_seconds: float = PATIENCE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send, self._patience_seconds, self._clock = send, patience_seconds, clock
        self._taken_bytes, self._last_bytes, self._waited_seconds = 0, 0, 0.0

    async def send(self, message: Reply) -> None:
        """Call the server's `send` within the time limit. Raises `ReaderLeft`."""
        allowed_seconds = self._patience_seconds + self._taken_bytes / MIN_BYTES_PER_SECOND
        of_piece_seconds = self._patience_seconds + self._last_bytes / MIN_BYTES_PER_SECOND
        left_seconds = min(of_piece_seconds, allowed_seconds - self._waited_seconds)
        began_seconds = self._clock()
        try:
            if left_seconds <= 0:
                raise TimeoutError  # the buffer became free too late
            async with asyncio.timeout(left_seconds):
                await self._send(message)
        except TimeoutError:
            raise ReaderLeft from None
        self._waited_seconds += self._clock() - began_seconds
        self._last_bytes = len(message.get("body", b""))
        self._taken_bytes += self._last_bytes
