"""Producers that publish at a set rate: the load of drills, of the demo shop, and of measurements."""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from common.errors import WeirError
from queues.publishing.client import Client, WhenThrottled

ROUNDS_PER_SECOND = 5
MAX_DELAY_SECONDS = 1.0  # a round that was held up for longer is left out: the load is what it is
KEYS, HOT_KEY = 40, "k-hot"


@dataclass
class EventStream:
    """The events of a producer for a queue.

    hot_per_second: events of a single key, in addition to the others. keys: number of the other keys. day_seconds:
    period of a daily rhythm between a quarter and seven quarters of the rate, which begins in the morning; 0: none.
    when_throttled: while the queue is throttled, "raise" leaves out the events, and "ignore" sends them. A stream that
    waits would delay the others.
    """

    producer: str
    queue: str
    type: str
    usual_per_second: float
    per_second: float = 0.0
    hot_per_second: float = 0.0
    day_seconds: float = 0.0
    keys: int = KEYS
    when_throttled: WhenThrottled = "raise"
    owed: float = 0.0

    def __post_init__(self) -> None:
        self.calm()

    def calm(self) -> None:
        """Return to the usual rate."""
        self.per_second, self.hot_per_second = self.usual_per_second, 0.0

    def count_due(self, at: float) -> int:
        """Return the number of events of the round at this time in seconds, and keep the fraction for the next."""
        rhythm = 1.0 + 0.75 * math.sin(2 * math.pi * at / self.day_seconds) if self.day_seconds else 1.0
        self.owed += (self.per_second * rhythm + self.hot_per_second) / ROUNDS_PER_SECOND
        count = int(self.owed)
        self.owed -= count
        return count

    def build_events(self, count: int, chance: np.random.Generator) -> pa.Table:
        """Return so many events of now, with random keys and values."""
        keys = np.char.add("k", chance.integers(0, self.keys, count).astype("U"))
        hot = chance.random(count) * (self.per_second + self.hot_per_second) < self.hot_per_second
        return pa.table(
            {
                "time": pa.array(np.full(count, int(time.time() * 1e6)), pa.timestamp("us", "UTC")),
                "type": pa.array([self.type] * count),
                "source": pa.array([self.producer] * count),
                "key": pa.array(np.where(hot, HOT_KEY, keys)),
                "value": chance.random(count),
            }
        )


class StreamPublisher:
    """Publishes streams in a thread of its own until it is closed. Refused events are not sent again."""

    def __init__(self, control_url: str, streams: Sequence[EventStream], seed: int = 7) -> None:
        self.streams = list(streams)
        self._chance = np.random.default_rng(seed)
        self._control_url = control_url
        self._clients: dict[str, Client] = {}
        self._ended = threading.Event()
        self._began = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="streams")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Publish nothing more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for client in self._clients.values():
            client.close()

    @property
    def seconds(self) -> float:
        """Return the time since the start, by which the daily rhythm is computed."""
        return time.monotonic() - self._began if self._began else 0.0

    def _run(self) -> None:
        due = self._began = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / ROUNDS_PER_SECOND, time.monotonic() - MAX_DELAY_SECONDS)
            for stream in list(self.streams):
                self._publish(stream)

    def _publish(self, stream: EventStream) -> None:
        count = stream.count_due(self.seconds)
        if not count:
            return
        try:
            if stream.producer not in self._clients:
                self._clients[stream.producer] = Client(
                    self._control_url, producer=stream.producer, when_throttled=stream.when_throttled
                )
            self._clients[stream.producer].publish(stream.queue, stream.build_events(count, self._chance))
        except WeirError:
            return  # the queue is full, paused, or throttled, and the producer doesn't store events
