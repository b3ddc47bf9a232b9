"""What producers say of themselves in `weir:producers`: cumulative counts, a report a second."""

import threading
from collections.abc import Callable
from typing import Any

import redis

from queues import keys
from queues.lua.script import script

EVERY_SECONDS = 1.0


class ProducerReport:
    """Counts of one producer, sent by a thread of its own once a second while they change, and at the end."""

    def __init__(self, control: redis.Redis, producer: str, clock: Callable[[], float]) -> None:
        self._producer, self._clock = producer, clock
        self._add = control.register_script(script("control/count_published"))
        self._pending: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(
        self, queue: str, events: int = 0, blocks: int = 0, *, rejected: int = 0, rerouted: int = 0
    ) -> None:
        """Count; it is reported within about a second."""
        with self._lock:
            row = self._pending.setdefault(queue, [0, 0, 0, 0])
            for place, count in enumerate((events, blocks, rejected, rerouted)):
                row[place] += count
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="weir-producer", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Report now. What cannot be reported is kept for the next time: figures never stop publishing."""
        with self._lock:
            pending, self._pending = self._pending, {}
        for queue, row in pending.items():
            if any(row) and not self._sent(queue, row):
                self.add(queue, row[0], row[1], rejected=row[2], rerouted=row[3])

    def close(self) -> None:
        """Stop the thread and report the rest."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self.flush()

    def _run(self) -> None:
        while not self._closing.wait(EVERY_SECONDS):
            self.flush()

    def _sent(self, queue: str, row: list[Any]) -> bool:
        try:
            self._add(keys=[keys.PRODUCERS], args=[f"{self._producer}|{queue}", f"{self._clock():.3f}", *row])
        except (redis.RedisError, OSError):
            return False
        return True
