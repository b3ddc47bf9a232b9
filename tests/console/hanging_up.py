"""A request to an ASGI application whose sender hangs up while the console is at it."""

import asyncio
from typing import Any

import orjson

from tests.asgi import scope_of
from tests.waiting import MAX_SECONDS

TURNS = 100  # of the loop of events, in which everybody there hears of it


class HangingUp:
    """`hang_up` is called by what is being done, in its own thread."""

    _loop: asyncio.AbstractEventLoop
    _left: asyncio.Event

    def __init__(self, path: str, document: Any = None, method: str = "POST", **headers: str) -> None:
        self.body = b"" if document is None else orjson.dumps(document)
        named = {"host": "testserver", "content-type": "application/json", **headers}
        self.scope = scope_of(method, path, named)

    async def to(self, application: Any) -> None:
        self._loop, self._left = asyncio.get_running_loop(), asyncio.Event()
        pieces = iter([{"type": "http.request", "body": self.body}])

        async def receive() -> Any:
            if (message := next(pieces, None)) is not None:
                return message
            await self._left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            """Nobody reads it."""

        await application(self.scope, receive, send)

    def hang_up(self) -> None:
        asyncio.run_coroutine_threadsafe(self._hung_up(), self._loop).result(MAX_SECONDS)

    async def _hung_up(self) -> None:
        self._left.set()
        for _ in range(TURNS):
            await asyncio.sleep(0)
