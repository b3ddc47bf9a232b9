"""Messages of RabbitMQ's queues that a person moves, requeues, or deletes."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from amqp import Message

from common.errors import BadInput
from workers.plants.foreign.celery_app.broker import create_app
from workers.plants.foreign.celery_app.message_moves import MovingChannel, Route
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.queue_messages import MOVE, PURGE, REQUEUE, MessagePreview, MovedMessages, QueueMessages

DEATHS = "x-death"


def open_messages(address: PlantAddress) -> QueueMessages:
    """Return the messages of an app's queues. Raises BadInput and PlantUnavailable."""
    if not address.url.startswith("amqp"):
        raise BadInput("plant", f"{address.name} has no queues of RabbitMQ.")
    return AmqpMessages(address)


class AmqpMessages:
    """The messages of an app on RabbitMQ."""

    def __init__(self, address: PlantAddress) -> None:
        app = create_app(address)
        self._channel, self._close_app = MovingChannel(address.name, app), app.close

    def preview(self, queue: str, most: int) -> MessagePreview:
        waiting = self._count(queue, "queue")
        messages = self._channel.list_oldest(queue, most)
        tasks = Counter(str(_get_headers(message).get("task", "")) for message in messages)
        origins = Counter(find_origin(message) or "" for message in messages)
        return MessagePreview(waiting, len(messages), dict(tasks), dict(origins))

    def act(self, action: str, queue: str, most: int, destination: str = "") -> MovedMessages:
        self._count(queue, "queue")
        if action == MOVE:
            self._count(destination, "destination")
        routes: Mapping[str, Route] = {MOVE: lambda _: destination, PURGE: lambda _: "", REQUEUE: find_origin}
        result = self._channel.move(queue, most, routes[action])
        moved = {place: count for place, count in result.moved.items() if count}
        return MovedMessages(moved, result.left, result.returned_to)

    def close(self) -> None:
        self._channel.close()
        self._close_app()

    def _count(self, queue: str, field: str) -> int:
        ready = self._channel.count_ready(queue)
        if ready is None:
            raise BadInput(field, f"{queue[:100]} does not exist.")
        return ready


def find_origin(message: Message) -> str | None:
    """Return the queue that a message was last dead-lettered from; None if it was not dead-lettered."""
    deaths = _get_headers(message).get(DEATHS)
    last = deaths[0] if isinstance(deaths, list) and deaths else None
    queue = last.get("queue") if isinstance(last, dict) else None
    return queue if isinstance(queue, str) and queue else None


def _get_headers(message: Message) -> Mapping[str, Any]:
    return message.headers or {}
