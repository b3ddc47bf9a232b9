"""The data that waits to be sent to a collector: bounded, sent by its own thread, and counted if it is dropped."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_SPANS = 2048
BATCH = 512
EVERY_SECONDS = 2.0
COMPLAIN_SECONDS = 60.0
logger = logging.getLogger("weir.observability")


class Unsent(Generic[T]):
    """A bounded buffer whose `put` never waits: beyond `most`, the oldest entries are dropped.

    Entries that were dropped or not accepted count as `dropped`, logged once a minute. `send` returns whether a batch
    was accepted; if it raises, the batch counts as not accepted.
    """

    def __init__(
        self,
        what: str,
        send: Callable[[Sequence[T]], bool],
        *,
        most: int = MAX_SPANS,
        batch: int = BATCH,
        every_seconds: float = EVERY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._send, self._monotonic = what, send, monotonic
        self._most, self._batch, self._every_seconds = most, batch, every_seconds
        self._waiting: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._unsaid, self._said_at = 0, -COMPLAIN_SECONDS
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name=f"unsent {what}", daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        with self._changed:
            if len(self._waiting) >= self._most:
                self._waiting.popleft()
                self._drop(1)
            self._waiting.append(item)
            if len(self._waiting) >= self._batch:
                self._changed.notify()

    def end(self, seconds: float) -> None:
        """Send what waits, for this long at most; the rest is lost with the process."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while batch := self._take_next():
            try:
                taken = self._send(batch)
            except Exception:
                taken = False
            with self._changed:
                if not taken:
                    self._drop(len(batch))
                now = self._monotonic()
                if self._unsaid and now - self._said_at >= COMPLAIN_SECONDS:
                    logger.warning(
                        "%d %s were dropped (%d since the start): the collector is unavailable, too slow, or rejects"
                        " them.",
                        self._unsaid,
                        self._what,
                        self.dropped,
                    )
                    self._unsaid, self._said_at = 0, now

    def _take_next(self) -> list[T]:
        """Return the oldest entries once there is a batch of them or it is time; none after the end."""
        with self._changed:
            while not self._ended:
                due = self._changed.wait_for(
                    lambda: self._ended or len(self._waiting) >= self._batch, self._every_seconds
                )
                if due or self._waiting:
                    break
            return [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._unsaid += count
