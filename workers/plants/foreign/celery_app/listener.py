"""A thread that receives the events of an app, and continues after the broker was away.

Events that workers sent meanwhile are lost: tasks that they had taken or were running may have ended since.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery import Celery

from common.errors import describe_connection_error
from workers.plants.foreign.celery_app.broker import FAILURES
from workers.plants.foreign.celery_app.task_events import TaskEvents

WAKE_SECONDS, AGAIN_SECONDS = 1.0, 2.0
# By this time each worker has sent a heartbeat.
HEARD_SECONDS = 5.0
NOT_YET = "none received yet"
logger = logging.getLogger(__name__)


class EventListener:
    """Applies received events to `events`; a reader takes `lock`.

    error: why no events arrive; gaps: how often events may have been missed.
    """

    def __init__(self, app: Celery, events: TaskEvents, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.lock, self.events = threading.Lock(), events
        self.error: str | None = NOT_YET
        self.gaps = 0
        self._app, self._monotonic = app, monotonic
        self._since: float | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread on the first call only."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="celery events", daemon=True)
            self._thread.start()

    def count_workers(self) -> int | None:
        """Return the minimum number of workers, by their heartbeats, or None while it is unknown."""
        now = self._monotonic()
        if self.error is not None or self._since is None or now - self._since < HEARD_SECONDS:
            return None
        with self.lock:
            return len(self.events.list_beating_workers(now)) or None

    def close(self) -> None:
        """Stop the thread; it ends within WAKE_SECONDS."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(2 * WAKE_SECONDS)

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                self._receive()
            except FAILURES as error:
                self.error = f"can't be received ({describe_connection_error(error)})"
            except Exception as error:  # No other exception of a driver may end the listener.
                logger.exception("Receiving Celery events failed.")
                self.error = f"can't be received ({type(error).__name__})"
            self._ended.wait(AGAIN_SECONDS)

    def _receive(self) -> None:
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers={"*": self._apply})
            with receiver.consumer_context(wakeup=True) as (reading, _, _):  # by a connection of its own
                self._begin()
                while not self._ended.is_set():
                    with suppress(TimeoutError):
                        reading.drain_events(timeout=WAKE_SECONDS)

    def _begin(self) -> None:
        """Start receiving. Every start but the first follows a gap."""
        with self.lock:
            if self._since is not None:
                self.gaps += 1
                for worker in self.events.pools:
                    self.events.begin_anew(worker)
            self.error, self._since = None, self._monotonic()

    def _apply(self, event: dict[str, Any]) -> None:
        with self.lock:
            self.events.apply(event, self._monotonic())
