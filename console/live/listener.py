"""One socket's share of the fan-out: a bounded queue that drops the oldest."""

import asyncio
from collections import deque

from console.live.message import LiveMessage
from console.live.view import WHOLE, View

NEVER = object()
QUEUE_MESSAGES = 8  # seconds a socket may lag before it misses a message, and asks for a snapshot


class Listener:
    """Holds what a socket has yet to send. A slow socket loses the oldest; it never slows down the others.

    `view` is what it wants to see, `packed` whether it takes packed messages. `answered` is the position of
    the snapshot that it was sent because it asked.
    """

    def __init__(self, view: View = WHOLE, packed: bool = False) -> None:
        self.view, self.packed = view, packed
        self.answered: object = NEVER
        self._messages: deque[LiveMessage] = deque(maxlen=QUEUE_MESSAGES)
        self._filled = asyncio.Event()

    def put(self, message: LiveMessage) -> None:
        self._messages.append(message)
        self._filled.set()

    async def next(self) -> str | bytes:
        """The oldest message still held; waits for one."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        message = self._messages.popleft()
        return message.packed if self.packed else message.text
