"""Publishes complex events that were written together with the state they came from.

They are published at least once, under ids that never change. Publishing waits for the nodes, so it runs in the
background, and the next batch starts meanwhile.
"""

import contextlib
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson
import pyarrow as pa
import redis

from common.errors import WeirError
from queues.publishing.client import Client
from workers.pipeline.events.layout import decode
from workers.pipeline.matching.complex_event import ATTRIBUTES, complete_match_rows
from workers.pipeline.tiers.state import RETAINED, StateStore, queue_of

MAX_AT_ONCE = 256  # blobs
# Maximum number of events that the control server stores, some 100 MB. Beyond it the pipeline reads nothing
# more: events are safe where they are.
MAX_EVENTS = 200_000

log = logging.getLogger("weir.pipeline")


class Outbox:
    """Complex events waiting to be published.

    An event leaves the outbox after its publishing was acknowledged. After a crash in between, it is published again
    with the same id. If only the control server was unavailable in between, it is not.
    """

    def __init__(self, store: StateStore, client: Client) -> None:
        self._store, self._client = store, client
        self._pending = True  # an earlier process may have left some
        self._taken: set[str] = set()  # accepted by their queues, and still in the outbox
        self.waiting: Mapping[str, int] = {}  # queue → events that it did not accept at the last attempt
        # The end of a batch and the supervision of the process run in threads of their own.
        self._turn = threading.Lock()
        self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outbox")
        self._publishing: Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Return whether no further complex events may be found until some of these are accepted."""
        return sum(self.waiting.values()) >= MAX_EVENTS

    def start_publishing(self) -> None:
        """Publish in the background, after the previous call of this method has published.

        The outbox therefore has the complex events of two batches at most, unless a queue accepts none.
        """
        self.await_published()
        self._publishing = self._background.submit(self.try_publish)

    def await_published(self) -> None:
        """Wait until nothing is published in the background. Raises the error that ended the publishing, if any."""
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            publishing.result()

    def publish(self) -> int:
        """Publish everything in the outbox and return the number of events.

        Raises `WeirError` if a queue accepts none: they stay in the outbox.
        """
        with self._turn:
            self._pending = True
            total = 0
            refused: dict[str, WeirError] = {}
            while waiting := self._store.list_output_names(refused):
                for start in range(0, len(waiting), MAX_AT_ONCE):
                    some = [name for name in waiting[start : start + MAX_AT_ONCE] if queue_of(name) not in refused]
                    total += self._publish_some(self._store.load_outputs(some), refused)
            for refusal in refused.values():
                raise refusal
            self._pending = False
            return total

    def _publish_some(self, outputs: Mapping[str, bytes], refused: dict[str, WeirError]) -> int:
        """Publish these and return the number of events.

        A queue that accepts nothing is added to `refused`, so that the events for other queues need not wait.
        """
        total = 0
        names_by_queue: dict[str, list[str]] = {}
        for name in outputs:
            names_by_queue.setdefault(queue_of(name), []).append(name)
        for queue, names in names_by_queue.items():
            batches = {name: list(map(complete_match_rows, decode(outputs[name]))) for name in names}
            fresh = [rows for name in names if name not in self._taken for rows in batches[name]]
            try:
                if fresh:
                    self._client.publish_batches(queue, fresh)
            except WeirError as error:
                refused[queue] = error
                continue
            self._taken.update(names)
            self._store.record_published(
                names, encode_newest_events([rows for name in names for rows in batches[name]])
            )
            self._taken.difference_update(names)
            total += sum(rows.num_rows for rows in fresh)
        return total

    def retry(self) -> None:
        """Publish what could not be published before, unless it is being published now."""
        if self._pending and not self._turn.locked():
            self.try_publish()

    def count_waiting(self) -> None:
        """Count the waiting events if another process publishes them."""
        self.waiting = self._store.count_waiting_outputs()

    def try_publish(self) -> None:
        """Publish. A queue that accepts nothing now is tried again every second, and the pipeline continues."""
        try:
            self.publish()
            self.waiting = {}
        except (WeirError, redis.ConnectionError, redis.TimeoutError) as error:
            log.warning("complex events are waiting in the outbox: %s", error)
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                self.waiting = self._store.count_waiting_outputs()


def encode_newest_events(batches: list[pa.RecordBatch]) -> list[bytes]:
    """Return the newest of these complex events, newest first, for display."""
    newest_rows = (batch.slice(max(0, batch.num_rows - RETAINED)) for batch in batches)
    events = [event for rows in newest_rows for event in rows.to_pylist()]
    events.sort(key=lambda event: event["time"], reverse=True)
    for event in events[:RETAINED]:
        try:
            event["attributes"] = _group_measures(orjson.loads(event["attributes"]))
        except orjson.JSONDecodeError:
            event["attributes"] = {}  # they are only displayed
    return [orjson.dumps(event) for event in events[:RETAINED]]


def _group_measures(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a complex event, with the measures grouped under one name."""
    measures = {name: value for name, value in attributes.items() if name not in ATTRIBUTES}
    own = {name: value for name, value in attributes.items() if name in ATTRIBUTES}
    return {**own, "measures": measures} if measures else own
