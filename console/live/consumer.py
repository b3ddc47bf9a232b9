"""The websocket `/live/`: a snapshot first, then deltas; closed when its holder may no longer look."""

import asyncio
from contextlib import suppress

import orjson
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from console.access import Actor, actor_of_connection
from console.live.fanout import fanout

RECHECK_SECONDS = 20.0
NOT_LOGGED_IN = 4401
NOT_ALLOWED = 4403
NOT_UNDERSTOOD = 4400
LONGEST_REQUEST = 1024


class LiveConsumer(AsyncWebsocketConsumer):
    """Takes `{"ask": "snapshot"}` only. Close codes: 4401 log in, 4403 role missing, 4400 bad request."""

    channel_layer_alias = "none"  # the fan-out stands in its place

    def __init__(self, recheck_seconds: float = RECHECK_SECONDS) -> None:
        super().__init__()
        self.recheck_seconds = recheck_seconds
        self.listener = None
        self.tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        # Accepted even when closed at once: a refused handshake could not carry the reason to the page.
        await self.accept()
        if not await self._still_allowed():
            return
        self.fanout = fanout()
        self.listener = await self.fanout.join()
        self.tasks = [asyncio.create_task(self._deliver()), asyncio.create_task(self._recheck())]

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.listener is None:
            return
        if _asks_for_snapshot(text_data):
            self.fanout.send_snapshot(self.listener)
        else:
            await self.close(NOT_UNDERSTOOD, 'Send {"ask": "snapshot"}; nothing else is understood here.')

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.listener is not None:
            await self.fanout.leave(self.listener)

    async def _deliver(self) -> None:
        # A socket that breaks while we write is told to `disconnect` by the server: nothing more to do.
        with suppress(OSError):
            while True:
                await self.send(text_data=await self.listener.next())

    async def _recheck(self) -> None:
        """A logout, a revoked token or a lost role closes the socket within RECHECK_SECONDS."""
        while True:
            await asyncio.sleep(self.recheck_seconds)
            if not await self._still_allowed():
                return

    async def _still_allowed(self) -> bool:
        actor = await database_sync_to_async(self._actor)()
        if actor.may("plant.view"):
            return True
        if actor.user is None:
            await self.close(NOT_LOGGED_IN, "Log in again.")
        else:
            await self.close(NOT_ALLOWED, "This takes the role viewer.")
        return False

    def _actor(self) -> Actor:
        headers = dict(self.scope["headers"])
        authorization = headers.get(b"authorization")
        session_key = self.scope.get("cookies", {}).get(settings.SESSION_COOKIE_NAME)
        return actor_of_connection(session_key, authorization.decode() if authorization else None)


def _asks_for_snapshot(text: str | None) -> bool:
    if text is None or len(text) > LONGEST_REQUEST:
        return False
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(text) == {"ask": "snapshot"}
    return False
