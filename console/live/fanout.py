"""The fan-out: one Redis subscriber per process, and any number of sockets.

Each message is encoded once for each view, and only in the requested forms. In a comparison, a group send through the
channel layer lost messages at a thousand sockets.
"""

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, cast
from weakref import WeakKeyDictionary

import orjson
from django.conf import settings
from redis.exceptions import RedisError

from console.live.view import WHOLE, View
from queues import keys
from queues.control.connection import open_connection
from workers.documents.snapshot import SILENT_AFTER_SECONDS

LEVEL = 4  # beyond it a large patch takes twice the time for a few percent


class LiveMessage:
    """A message in JSON, as text or compressed.

    The compressed form is the same bytes in zlib's format (the browser's "deflate"), a fifth as long.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._encoded = orjson.dumps(document)

    @cached_property
    def text(self) -> str:
        return self._encoded.decode()

    @cached_property
    def packed(self) -> bytes:
        return zlib.compress(self._encoded, LEVEL)


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


log = logging.getLogger(__name__)
TOPIC = "plant"
TICK_SECONDS = 1.0
JOIN_SECONDS = 3.0  # time for which a socket waits for the first answer of the control server
# Between two pages a browser has no socket for a second or two; it continues from its snapshot if possible.
LINGER_SECONDS = 60.0
RECENT_MESSAGES = 10
ANSWER_SECONDS = 2.0
SUBSCRIBED_ANEW_SECONDS = 10.0
Position = tuple[int, float]


class Fanout:
    """Runs while there are listeners, and a little longer.

    `clock` returns epoch seconds, `monotonic` seconds that never jump.
    """

    def __init__(
        self, url: str, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self._clock = clock
        self._monotonic = monotonic
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._heard_at = monotonic()
        self._ending: asyncio.TimerHandle | None = None
        self._position: Position | None = None
        self._snapshot: dict[str, Any] = {}
        self._recent: deque[tuple[Position, dict[str, Any]]] = deque(maxlen=RECENT_MESSAGES)
        # Of the newest instants, by (instant, view): what each view was sent.
        self._encoded: dict[tuple[Position, View], LiveMessage] = {}
        self._snapshots: dict[View, LiveMessage] = {}

    async def join(self, view: View = WHOLE, packed: bool = False, after: Position | None = None) -> Listener:
        """Add a listener whose first message is the snapshot, followed by every delta.

        A listener with the snapshot of the instant `after` gets the deltas since then instead, if they are available.
        """
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._task is None:
            self._ready.clear()
            self._heard_at = self._monotonic()
            self._task = asyncio.create_task(self._run())
        with suppress(TimeoutError):  # the control server does not answer: report silence
            await asyncio.wait_for(self._ready.wait(), JOIN_SECONDS)
        # No await from here on: no delta may come between the snapshot and adding the listener.
        listener = Listener(view, packed)
        self._listeners.add(listener)
        missed = None if after is None else self._list_deltas_since(after)
        if missed is None:
            self.send_snapshot(listener)
        for position, delta in missed or ():
            listener.put(self._encode_delta(position, delta, view))
        return listener

    async def leave(self, listener: Listener) -> None:
        """Remove a listener; the subscription ends LINGER_SECONDS after the last one has left."""
        self._listeners.discard(listener)
        if self._listeners or self._task is None or self._ending is not None:
            return
        self._ending = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._end)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = self._ending = self._position = None
        self._recent.clear()
        self._encoded.clear()

    def send_snapshot(self, listener: Listener) -> None:
        """Put the newest snapshot into one listener's queue (at its start, and when it missed a delta)."""
        if self._position is None:
            listener.put(self._silence())
            return
        view = listener.view
        if view not in self._snapshots:
            body = {"snapshot": view.narrow(self._snapshot)}
            self._snapshots[view] = _build_message(self._position, body)
        listener.put(self._snapshots[view])

    def answer(self, listener: Listener) -> None:
        """Send the newest snapshot to a listener that requests it, once: many requests get one answer."""
        if listener.answered != self._position:
            listener.answered = self._position
            self.send_snapshot(listener)

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except Exception as error:  # any error: nobody else would follow again
                # Retried in a second; until then the sockets are told how long it has been silent.
                if not isinstance(error, RedisError | OSError):
                    log.warning("live data can't be read: %s: %s", type(error).__name__, error)
                self._ready.set()
                self._send_silence()
                await asyncio.sleep(TICK_SECONDS)

    async def _follow(self) -> None:
        """Subscribe first and read the stored snapshot after, so that no message is missed in between."""
        async with (
            open_connection(self._url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=TICK_SECONDS) as client,
            client.pubsub() as subscription,
        ):
            await subscription.subscribe(keys.LIVE)
            self._load(cast(bytes | None, await client.get(keys.SNAPSHOT)))
            self._ready.set()
            said_at = self._monotonic()
            # A connection without messages may be to a server that is no longer primary.
            while self._monotonic() - said_at < SUBSCRIBED_ANEW_SECONDS:
                message = await subscription.get_message(ignore_subscribe_messages=True, timeout=TICK_SECONDS)
                if message is not None and message["type"] == "message":
                    said_at = self._monotonic()
                    self._take(orjson.loads(message["data"]))
                self._send_silence()

    def _load(self, stored: bytes | None) -> None:
        if stored is None:
            return
        snapshot = orjson.loads(stored)
        position = (snapshot["seq"], snapshot["at"])
        fresh = position != self._position
        if fresh:
            self._begin(position, snapshot)
        # A stored snapshot's age follows from its own time, even if we have only just read it. One that was
        # here already gets no younger, although our clock may be behind the observer's.
        heard_at = self._monotonic() - max(0.0, self._clock() - snapshot["at"])
        self._heard_at = heard_at if fresh else min(self._heard_at, heard_at)
        if fresh:
            for listener in self._listeners:
                self.send_snapshot(listener)

    def _take(self, message: dict[str, Any]) -> None:
        # By number and time: an observer that restarts counts from 1 again.
        position = (message["seq"], message["at"])
        if position == self._position:
            return  # the stored snapshot was already this one
        self._heard_at = self._monotonic()
        delta = message.get("delta")
        if delta is None:  # the first one of an observer
            self._begin(position, message["snapshot"])
            for listener in self._listeners:
                self.send_snapshot(listener)
            return
        self._go_on(position, message["snapshot"], delta)
        for listener in self._listeners:
            listener.put(self._encode_delta(position, delta, listener.view))

    def _begin(self, position: Position, snapshot: dict[str, Any]) -> None:
        """Start from a snapshot to which no earlier deltas lead."""
        self._recent.clear()
        self._encoded.clear()
        self._hold(position, snapshot)

    def _go_on(self, position: Position, snapshot: dict[str, Any], delta: dict[str, Any]) -> None:
        if self._position is None or position[0] != self._position[0] + 1:
            self._recent.clear()
        self._recent.append((position, delta))
        kept = {recent_position for recent_position, _ in self._recent}
        self._encoded = {key: value for key, value in self._encoded.items() if key[0] in kept}
        self._hold(position, snapshot)

    def _hold(self, position: Position, snapshot: dict[str, Any]) -> None:
        self._position, self._snapshot = position, snapshot
        self._snapshots.clear()

    def _list_deltas_since(self, after: Position) -> list[tuple[Position, dict[str, Any]]] | None:
        """Return the deltas from an instant to the newest, or None if they are not all available."""
        if self._position is None:
            return None
        # It may have been read from the store just before its message arrived.
        if after == self._position or (after[0] > self._position[0] and after[1] > self._position[1]):
            return []
        positions = [position for position, _ in self._recent]
        return list(self._recent)[positions.index(after) + 1 :] if after in positions else None

    def _encode_delta(self, position: Position, delta: dict[str, Any], view: View) -> LiveMessage:
        if (position, view) not in self._encoded:
            self._encoded[position, view] = _build_message(position, {"delta": view.narrow(delta)})
        return self._encoded[position, view]

    def _send_silence(self) -> None:
        if self._monotonic() - self._heard_at > SILENT_AFTER_SECONDS:
            silence = self._silence()
            for listener in self._listeners:
                listener.put(silence)

    def _silence(self) -> LiveMessage:
        """Return the silence message. `at` is the last snapshot's time (null: never one), so that ages stay right."""
        silent_seconds = round(self._monotonic() - self._heard_at, 1)
        at = None if self._position is None else self._position[1]
        return LiveMessage({"topic": TOPIC, "at": at, "silent_seconds": silent_seconds})


def _build_message(position: Position, body: dict[str, Any]) -> LiveMessage:
    seq, at = position
    return LiveMessage({"seq": seq, "at": at, "topic": TOPIC, **body})


_fanouts: WeakKeyDictionary[asyncio.AbstractEventLoop, Fanout] = WeakKeyDictionary()


def get_fanout() -> Fanout:
    """Return this event loop's fan-out on settings.REDIS_URL. A served process has one loop, so it has one fan-out."""
    loop = asyncio.get_running_loop()
    if loop not in _fanouts:
        _fanouts[loop] = Fanout(settings.REDIS_URL)
    return _fanouts[loop]
