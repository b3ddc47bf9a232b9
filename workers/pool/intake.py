"""The queues that a worker host takes work from: none while it is drained (`weir:drain:{host}`).

The key expires, so a host whose console is gone goes back to work. Work that the host had received is finished: none is
interrupted.
"""

import logging
from typing import Any

logger = logging.getLogger(__name__)


class WorkIntake:
    """The Celery queues of a worker (`WorkController`), for `workers.pool.hosts`."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self._names: tuple[str, ...] = ()
        self.is_drained = False

    def follow(self, drained: bool) -> None:
        """Stop taking new work, or take it again. A repeated call changes nothing."""
        if drained == self.is_drained:
            return
        self.is_drained = drained
        if drained:
            self._leave()
        else:
            self._return()
        logger.warning("This worker host accepts %s.", "no new work: it is drained" if drained else "new work again")

    def _leave(self) -> None:
        consumer, queues = self._controller.consumer, self._controller.app.amqp.queues
        self._names = tuple(queues.consume_from)
        for name in self._names:
            consumer.call_soon(consumer.cancel_task_queue, name)

    def _return(self) -> None:
        consumer, queues = self._controller.consumer, self._controller.app.amqp.queues
        # Also for a new connection: it consumes from the selected ones.
        queues.select(self._names)
        for name in self._names:
            consumer.call_soon(consumer.add_task_queue, name)
