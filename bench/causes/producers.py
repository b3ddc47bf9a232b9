"""The shop's producers: a few events each a second, and what a scenario makes of one of them."""

import threading
import time
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa

from common.errors import WeirError
from queues.publishing.client import Client

ROUNDS_PER_SECOND = 5
USUAL_PER_SECOND = 30.0  # of a producer to a queue
CLICKS_PER_SECOND = 1_200.0
KEYS, HOT_KEY = 40, "k-hot"
TYPES = {"orders": "order", "mail": "letter", "video": "clip", "clicks": "click"}


@dataclass
class Stream:
    """What a producer publishes to a queue. hot_per_second: events of one key, beside the others."""

    producer: str
    queue: str
    usual_per_second: float
    per_second: float = 0.0
    hot_per_second: float = 0.0
    owed: float = 0.0

    def __post_init__(self) -> None:
        self.calm()

    def calm(self) -> None:
        """As ever."""
        self.per_second, self.hot_per_second = self.usual_per_second, 0.0


class Producers:
    """They publish until closed; refused events are not sent again."""

    def __init__(self, control_url: str, queues: tuple[str, ...], clicks: str) -> None:
        first, second, third = queues
        self.streams = [
            Stream("web", first, USUAL_PER_SECOND),
            Stream("web", second, USUAL_PER_SECOND),
            Stream("app", first, USUAL_PER_SECOND),
            Stream("app", third, USUAL_PER_SECOND),
            Stream("batch", second, USUAL_PER_SECOND),
            Stream("batch", third, USUAL_PER_SECOND),
            Stream("page", clicks, CLICKS_PER_SECOND),
        ]
        self.chance = np.random.default_rng(Random(7).getrandbits(32))
        names = {stream.producer for stream in self.streams}
        self.clients = {name: Client(control_url, producer=name) for name in names}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True, name="producers")
        self.thread.start()

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        for client in self.clients.values():
            client.close()

    def list_producers(self, queue: str) -> list[Stream]:
        """Who publishes to it."""
        return [stream for stream in self.streams if stream.queue == queue]

    def calm(self) -> None:
        """All as ever."""
        for stream in self.streams:
            stream.calm()

    def _run(self) -> None:
        due = time.monotonic()
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            # What was held up is not made up for: the load is what it is.
            due = max(due + 1 / ROUNDS_PER_SECOND, time.monotonic() - 1.0)
            for stream in self.streams:
                self._publish(stream)

    def _publish(self, stream: Stream) -> None:
        stream.owed += (stream.per_second + stream.hot_per_second) / ROUNDS_PER_SECOND
        count = int(stream.owed)
        stream.owed -= count
        if not count:
            return
        keys = np.char.add("k", self.chance.integers(0, KEYS, count).astype("U"))
        hot = self.chance.random(count) * (stream.per_second + stream.hot_per_second) < stream.hot_per_second
        keys = np.where(hot, HOT_KEY, keys)
        events = pa.table(
            {
                "time": pa.array(np.full(count, int(time.time() * 1e6)), pa.timestamp("us", "UTC")),
                "type": pa.array([TYPES[stream.queue]] * count),
                "source": pa.array([stream.producer] * count),
                "key": pa.array(keys),
                "value": self.chance.random(count),
            }
        )
        try:
            self.clients[stream.producer].publish(stream.queue, events)
        except WeirError:
            return  # the queue is full, or paused: this producer has nowhere to keep them
