"""Orders that people give for an application besides its declaration: stop, start, and restart.

They are stored on the control server (`weir:pipeline:orders`), so that a process that starts finds them.
"""

import time
from collections.abc import Callable
from typing import cast

import redis

from common.redis_types import Fields
from common.stored_document import BadDocument, decode_document, encode_document, replace_fields
from queues import keys
from workers.documents.pipeline import PipelineOrder

NO_ORDER = PipelineOrder()


class Orders:
    """Reads and writes the orders. The process reads them every second; people write them one at a time."""

    def __init__(self, control: redis.Redis, clock: Callable[[], float] = time.time) -> None:
        self._control, self._clock = control, clock

    def read(self) -> dict[str, PipelineOrder]:
        """Return the orders by application. An unreadable order counts as none."""
        texts = cast(Fields, self._control.hgetall(keys.PIPELINE_ORDERS))
        return {name.decode(): _read(text) for name, text in texts.items()}

    def load(self, application: str) -> PipelineOrder:
        """Return the order for an application, or NO_ORDER if there is none."""
        text = cast(bytes | None, self._control.hget(keys.PIPELINE_ORDERS, application))
        return NO_ORDER if text is None else _read(text)

    def restart(self, application: str, by: str, reason: str) -> PipelineOrder:
        """Restart the application, even if it is stopped."""
        before = self.load(application)
        return self._write(application, before, by, reason, restart=before.restart + 1, stopped=False)

    def stop(self, application: str, by: str, reason: str) -> PipelineOrder:
        """Stop the application between two batches, until it is started."""
        return self._write(application, self.load(application), by, reason, stopped=True)

    def start(self, application: str, by: str, reason: str) -> PipelineOrder:
        """Start the application where it stopped."""
        return self._write(application, self.load(application), by, reason, stopped=False)

    def _write(
        self, application: str, before: PipelineOrder, by: str, reason: str, **values: int | bool
    ) -> PipelineOrder:
        order = replace_fields(before, by=by, reason=reason, at=self._clock(), **values)
        self._control.hset(keys.PIPELINE_ORDERS, application, encode_document(order))
        return order


def _read(text: bytes) -> PipelineOrder:
    try:
        return decode_document(PipelineOrder, text, "order")
    except BadDocument:
        return NO_ORDER
