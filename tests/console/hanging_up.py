"""A request to an ASGI application whose sender hangs up while the console is at it."""

import asyncio

import orjson

from tests.asgi import scope_of
from tests.waiting import MAX_SECONDS

TURNS = 100  # of the loop of events, in which everybody there hears of it


class HangingUp:
    """`hang_up` is called by what is being done, in its own thread."""

    _loop: asyncio.AbstractEventLoop
    _left: asyncio.Event

    def __init__(self, path, document=None, method="POST", **headers):
        self.body = b"" if document is None else orjson.dumps(document)
        named = {"host": "testserver", "content-type": "application/json", **headers}
        self.scope = scope_of(method, path, named)

    async def to(self, application):
        self._loop, self._left = asyncio.get_running_loop(), asyncio.Event()
        pieces = iter([{"type": "http.request", "body": self.body}])

        async def receive():
            if (message := next(pieces, None)) is not None:
                return message
            await self._left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            """Nobody reads it."""

        await application(self.scope, receive, send)

    def hang_up(self):
        asyncio.run_coroutine_threadsafe(self._hung_up(), self._loop).result(MAX_SECONDS)

    async def _hung_up(self):
        self._left.set()
        for _ in range(TURNS):
            await asyncio.sleep(0)
