"""A steady load on a plant, and which of its events were acknowledged: event n has the key "n"."""

import threading
import time
from types import TracebackType

import pyarrow as pa

from common.errors import WeirError
from queues.publishing.client import Client

QUEUE, TYPE = "alert", "steady"
FLUSHES_PER_SECOND = 10


class Load:
    """Publishes at an even rate until it ends; use it as a context. What a call of `publish` returned for is
    acknowledged; of a call that failed some events may be stored, or none.
    """

    def __init__(self, control_url: str, rate_per_second: int) -> None:
        self.rate_per_second = rate_per_second
        self.acknowledged: list[tuple[int, int]] = []  # (first, how many)
        self.refused = 0
        self.tried = 0
        self.failure: BaseException | None = None  # what no producer should ever see
        self._control_url = control_url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def end(self) -> None:
        """Publish nothing more. Raises what no producer should ever see."""
        self.__exit__(None, None, None)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._publish_steadily()
        except Exception as error:  # the thread that waits for it gets it
            self.failure = error

    def _publish_steadily(self) -> None:
        count = max(1, self.rate_per_second // FLUSHES_PER_SECOND)
        due = time.monotonic()
        with Client(self._control_url, producer="fault-suite") as client:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                # What a fault has held up is not made up for: the load is what it is.
                due = max(due + 1 / FLUSHES_PER_SECOND, time.monotonic() - 1.0)
                self._publish(client, count)

    def _publish(self, client: Client, count: int) -> None:
        first, self.tried = self.tried, self.tried + count
        keys = pa.array([str(n) for n in range(first, first + count)])
        try:
            client.publish(QUEUE, pa.table({"type": pa.array([TYPE] * count), "key": keys}))
        except WeirError:
            self.refused += count
        else:
            self.acknowledged.append((first, count))
