"""Publishes complex events that were written together with the state they came from. At least once, under ids
that never change.
"""

import contextlib
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import pyarrow as pa
import redis

from queues.errors import WeirError
from queues.publishing.client import Client
from workers.pipeline.events.arrow_blob import decode
from workers.pipeline.tiers.state import RETAINED, StateStore, queue_of

MOST_AT_ONCE = 256  # blobs
# What the control server keeps of them, some 100 MB. Beyond it the pipeline reads nothing more: events are
# safe where they are.
MOST_EVENTS = 200_000

log = logging.getLogger("weir.pipeline")


class Outbox:
    """An event leaves the outbox after its publishing was acknowledged; a crash in between publishes it
    again, with the same id. Where only the control server takes nothing in between, it is not.
    """

    def __init__(self, store: StateStore, client: Client) -> None:
        self._store, self._client = store, client
        self._pending = True  # what a process before may have left
        self._taken: set[str] = set()  # by their queues, and still in the outbox
        self.waiting: Mapping[str, int] = {}  # queue → events it did not take when it was last tried
        # A batch's end and who watches over the process are threads of their own.
        self._turn = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Nothing more is to be found until some of it was taken."""
        return sum(self.waiting.values()) >= MOST_EVENTS

    def publish(self) -> int:
        """All that is there; how many. Raises WeirError when a queue takes none: they stay."""
        with self._turn:
            return self._publish()

    def _publish(self) -> int:
        self._pending = True
        total = 0
        refused: dict[str, WeirError] = {}
        while waiting := self._store.output_names(refused):
            for start in range(0, len(waiting), MOST_AT_ONCE):
                some = [
                    name for name in waiting[start : start + MOST_AT_ONCE] if queue_of(name) not in refused
                ]
                total += self._publish_some(self._store.outputs(some), refused)
        for refusal in refused.values():
            raise refusal
        self._pending = False
        return total

    def _publish_some(self, outputs: Mapping[str, bytes], refused: dict[str, WeirError]) -> int:
        """How many. A queue that takes nothing is among `refused` then: what goes elsewhere does not wait."""
        total = 0
        for queue, names in _group_by_queue(outputs).items():
            batches = {name: decode(outputs[name]) for name in names}
            fresh = [rows for name in names if name not in self._taken for rows in batches[name]]
            try:
                if fresh:
                    self._client.publish_batches(queue, fresh)
            except WeirError as error:
                refused[queue] = error
                continue
            self._taken.update(names)
            self._store.record_published(names, newest([rows for name in names for rows in batches[name]]))
            self._taken.difference_update(names)
            total += sum(rows.num_rows for rows in fresh)
        return total

    def retry(self) -> None:
        """What could not be published before; nothing while it is being published."""
        if self._pending and not self._turn.locked():
            self.try_publish()

    def try_publish(self) -> None:
        """Publishes; a queue that takes nothing now is tried again each second, and the pipeline goes on."""
        try:
            self.publish()
            self.waiting = {}
        except (WeirError, redis.ConnectionError, redis.TimeoutError) as error:
            log.warning("complex events wait in the outbox: %s", error)
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                self.waiting = self._store.count_waiting_outputs()


def newest(batches: list[pa.RecordBatch]) -> list[bytes]:
    """The last of these complex events, the newest first: for the page."""
    newest_rows = (batch.slice(max(0, batch.num_rows - RETAINED)) for batch in batches)
    events = [event for rows in newest_rows for event in rows.to_pylist()]
    events.sort(key=lambda event: event["time"], reverse=True)
    return [orjson.dumps({**event, "attributes": _read(event["attributes"])}) for event in events[:RETAINED]]


def _read(attributes: str) -> Any:
    """What is only shown holds nothing up: attributes that are no JSON are none."""
    try:
        return orjson.loads(attributes)
    except orjson.JSONDecodeError:
        return {}


def _group_by_queue(outputs: Iterable[str]) -> dict[str, list[str]]:
    """The names for each queue, in their order."""
    found: dict[str, list[str]] = {}
    for name in outputs:
        found.setdefault(queue_of(name), []).append(name)
    return found
