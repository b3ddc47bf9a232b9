"""One socket's queue of the fan-out, which is bounded and drops the oldest."""

import asyncio
from collections import deque

from console.live.message import LiveMessage
from console.live.view import WHOLE, View

NEVER = object()
QUEUE_MESSAGES = 8  # seconds a socket may lag before it misses a message, and requests a snapshot


class Listener:
    """The messages that a socket has yet to send.

    A slow socket loses the oldest; it never slows down the others.

    `view` is the requested view, `packed` whether it takes compressed messages. `answered` is the position of the last
    snapshot it was sent on request.
    """

    def __init__(self, view: View = WHOLE, packed: bool = False) -> None:
        self.view, self.packed = view, packed
        self.answered: object = NEVER
        self._messages: deque[LiveMessage] = deque(maxlen=QUEUE_MESSAGES)
        self._filled = asyncio.Event()

    def put(self, message: LiveMessage) -> None:
        self._messages.append(message)
        self._filled.set()

    async def take_next(self) -> str | bytes:
        """Return the oldest waiting message; wait for one."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        message = self._messages.popleft()
        return message.packed if self.packed else message.text
