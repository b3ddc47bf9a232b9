"""The fan-out: one Redis subscriber per process, each message encoded once, any number of sockets.

A group send through the channel layer was measured against this and lost messages at a thousand sockets.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import orjson
import redis.asyncio
from django.conf import settings
from redis.exceptions import RedisError

from console.control_server import SNAPSHOT_KEY
from console.live.listener import Listener

CHANNEL = "weir:live"
TOPIC = "plant"
SILENT_AFTER_SECONDS = 3.0
TICK_SECONDS = 1.0
JOIN_SECONDS = 3.0  # a socket waits so long for the first look at the control server


class Fanout:
    """Runs while anybody listens. `clock` gives epoch seconds, `monotonic` seconds that never jump."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._clock = clock
        self._monotonic = monotonic
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._heard_at = monotonic()
        self._seq: int | None = None
        self._at: float | None = None
        self._snapshot: dict[str, Any] | None = None
        self._encoded_snapshot: str | None = None

    async def join(self) -> Listener:
        """A new listener whose first message is the snapshot, and then every delta after it."""
        if self._task is None:
            self._ready.clear()
            self._heard_at = self._monotonic()
            self._task = asyncio.create_task(self._run())
        with suppress(TimeoutError):  # the control server does not answer: silence is what there is to tell
            await asyncio.wait_for(self._ready.wait(), JOIN_SECONDS)
        # No await from here on: a delta can't come between the snapshot and the first place in the set.
        listener = Listener()
        self._listeners.add(listener)
        self.send_snapshot(listener)
        return listener

    async def leave(self, listener: Listener) -> None:
        """Forget a listener; the subscription ends with the last one."""
        self._listeners.discard(listener)
        if self._listeners or self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def send_snapshot(self, listener: Listener) -> None:
        """Put the newest snapshot into one listener's queue (at its start, and when it missed a delta)."""
        if self._snapshot is None:
            listener.put(self._silence())
            return
        if self._encoded_snapshot is None:
            message = {"seq": self._seq, "at": self._at, "topic": TOPIC, "snapshot": self._snapshot}
            self._encoded_snapshot = orjson.dumps(message).decode()
        listener.put(self._encoded_snapshot)

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except (RedisError, OSError):
                # Back again in a second; until then the sockets hear how long it has been silent.
                self._ready.set()
                self._tell_silence()
                await asyncio.sleep(TICK_SECONDS)

    async def _follow(self) -> None:
        """Subscribe first and read the stored snapshot after, so that no message falls in between."""
        client = redis.asyncio.Redis.from_url(self._url, socket_connect_timeout=TICK_SECONDS)
        async with client, client.pubsub() as subscription:
            await subscription.subscribe(CHANNEL)
            self._load(await client.get(SNAPSHOT_KEY))
            self._ready.set()
            while True:
                message = await subscription.get_message(ignore_subscribe_messages=True, timeout=TICK_SECONDS)
                if message is not None and message["type"] == "message":
                    self._take(orjson.loads(message["data"]))
                self._tell_silence()

    def _load(self, stored: bytes | None) -> None:
        if stored is None:
            return
        snapshot = orjson.loads(stored)
        fresh = not self._has(snapshot)
        self._hold(snapshot["seq"], snapshot["at"], snapshot)
        # A stored snapshot is as old as its own time says, even when we have only just read it.
        self._heard_at = self._monotonic() - max(0.0, self._clock() - snapshot["at"])
        if fresh:
            for listener in self._listeners:
                self.send_snapshot(listener)

    def _take(self, message: dict[str, Any]) -> None:
        if self._has(message):
            return  # the stored snapshot was already this one
        self._hold(message["seq"], message["at"], message["snapshot"])
        self._heard_at = self._monotonic()
        if message.get("delta") is None:  # an observer's first
            for listener in self._listeners:
                self.send_snapshot(listener)
            return
        delta = {"seq": message["seq"], "at": message["at"], "topic": TOPIC, "delta": message["delta"]}
        self._spread(orjson.dumps(delta).decode())

    def _has(self, message: dict[str, Any]) -> bool:
        """By number and time: an observer that starts anew counts from 1 again."""
        return (message["seq"], message["at"]) == (self._seq, self._at)

    def _hold(self, seq: int, at: float, snapshot: dict[str, Any]) -> None:
        self._seq, self._at, self._snapshot, self._encoded_snapshot = seq, at, snapshot, None

    def _tell_silence(self) -> None:
        if self._monotonic() - self._heard_at > SILENT_AFTER_SECONDS:
            self._spread(self._silence())

    def _silence(self) -> str:
        """`at` is the last snapshot's time (null: never one), so that nothing looks younger than it is."""
        silent_seconds = round(self._monotonic() - self._heard_at, 1)
        return orjson.dumps({"topic": TOPIC, "at": self._at, "silent_seconds": silent_seconds}).decode()

    def _spread(self, encoded: str) -> None:
        for listener in self._listeners:
            listener.put(encoded)


_fanouts: WeakKeyDictionary[asyncio.AbstractEventLoop, Fanout] = WeakKeyDictionary()


def fanout() -> Fanout:
    """This event loop's fan-out on settings.REDIS_URL: a served process has one loop, so one fan-out."""
    loop = asyncio.get_running_loop()
    if loop not in _fanouts:
        _fanouts[loop] = Fanout(settings.REDIS_URL)
    return _fanouts[loop]
