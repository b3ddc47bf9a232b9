"""Publishes complex events that were written together with the state they came from. At least once, under ids
that never change.
"""

import logging

import orjson
import redis

from queues.client import Client
from queues.errors import WeirError
from workers.pipeline.state import StateStore

MOST_AT_ONCE = 5_000

log = logging.getLogger("weir.pipeline")


class Outbox:
    """An event leaves the outbox after its publishing was acknowledged; a crash in between publishes it
    again, with the same id.
    """

    def __init__(self, store: StateStore, client: Client, queue: str) -> None:
        self._store, self._client, self._queue = store, client, queue
        self._pending = True  # what a process before may have left

    def publish(self) -> int:
        """All that is there, in the order of event time; how many. Raises WeirError when the queue takes
        none: they stay.
        """
        self._pending = True
        total = 0
        while outputs := self._store.outputs(MOST_AT_ONCE):
            events = sorted(
                (orjson.loads(text) for text in outputs.values()),
                key=lambda event: (event["time"], event["id"]),
            )
            self._client.publish(self._queue, events)
            self._store.published(outputs)
            total += len(outputs)
        self._pending = False
        return total

    def retry(self) -> None:
        """What could not be published before."""
        if self._pending:
            self.try_publish()

    def try_publish(self) -> None:
        """Publishes; a queue that takes nothing now is tried again each second, and the pipeline goes on."""
        try:
            self.publish()
        except (WeirError, redis.ConnectionError, redis.TimeoutError) as error:
            log.warning("complex events wait in the outbox: %s", error)
