"""One socket's share of the fan-out: a bounded queue that drops the oldest."""

import asyncio
from collections import deque

QUEUE_MESSAGES = 8  # seconds a socket may lag before it misses a message, and asks for a snapshot


class Listener:
    """Holds what a socket has yet to send. A slow socket loses the oldest; it never slows down the others."""

    def __init__(self) -> None:
        self._messages: deque[str] = deque(maxlen=QUEUE_MESSAGES)
        self._filled = asyncio.Event()

    def put(self, message: str) -> None:
        self._messages.append(message)
        self._filled.set()

    async def next(self) -> str:
        """The oldest message still held; waits for one."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        return self._messages.popleft()
