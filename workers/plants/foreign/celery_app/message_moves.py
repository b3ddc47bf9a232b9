"""Messages moved between queues of RabbitMQ: each is in exactly one of them, whenever this process dies.

A transaction of the channel takes messages, publishes them, and acknowledges them. If the connection ends before the
commit, RabbitMQ requeues what was taken, and publishes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from amqp import Message
from amqp.exceptions import AMQPError, NotFound
from celery import Celery

from common.errors import describe_connection_error
from workers.plants.foreign.celery_app.broker import FAILURES
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

BATCH = 200
# The broker returns messages of a connection that is silent for twice this time.
HEARTBEAT_SECONDS = 10
# The name of a queue: "" drops the message, None leaves it where it is.
Route = Callable[[Message], str | None]


@dataclass
class MoveResult:
    """The messages that were moved, by destination ("": dropped), and those that were left in their queue."""

    moved: dict[str, int] = field(default_factory=dict)
    left: int = 0
    returned_to: str = ""

    @property
    def total(self) -> int:
        return sum(self.moved.values())


class MovingChannel:
    """A connection to RabbitMQ that moves messages.

    All methods raise PlantUnavailable and InvalidPlantResponse.
    """

    def __init__(self, name: str, app: Celery) -> None:
        self._name, self._app = name, app
        self._connection: Any = None
        self._channel: Any = None
        self._returned: list[tuple[str, Message]] = []

    def move(self, source: str, most: int, route: Route) -> MoveResult:
        """Move the oldest messages of a queue, at most so many, each to where its route leads.

        A message that no longer has a destination returns to the end of the source.
        """
        with self._convert_errors():
            channel = self._open_transactions()
            result = MoveResult()
            while result.total + result.left < most:
                taken = self._move_batch(channel, source, min(BATCH, most - result.total - result.left), route, result)
                if not taken or result.returned_to:
                    break
            if result.left:
                self._close_channel()  # requeues what was taken and not acknowledged, at its former place
            return result

    def list_oldest(self, source: str, most: int) -> list[Message]:
        """Return copies of the oldest messages of a queue. They stay there, marked as redelivered."""
        with self._convert_errors():
            self._close_channel()
            channel = self._open_transactions()
            messages: list[Message] = []
            while len(messages) < most and (message := channel.basic_get(source)) is not None:
                messages.append(message)
            self._close_channel()  # requeues them in their order
            return messages

    def publish(self, queue: str, messages: Iterable[Message]) -> None:
        """Append messages to an existing queue, in transactions of some hundred."""
        with self._convert_errors():
            channel = self._open_transactions()
            waiting = 0
            for message in messages:
                channel.basic_publish(message, exchange="", routing_key=queue)
                waiting += 1
                if waiting == BATCH:
                    channel.tx_commit()
                    waiting = 0
            channel.tx_commit()

    def replace_queue(self, queue: str) -> None:
        """Create an empty durable queue, in place of one that may exist."""
        with self._convert_errors():
            channel = self._open_transactions()
            channel.queue_delete(queue)
            channel.queue_declare(queue, durable=True, auto_delete=False, arguments={"x-queue-mode": "lazy"})

    def count_ready(self, queue: str) -> int | None:
        """Return the messages that wait in a queue; None if it does not exist."""
        with self._convert_errors():
            try:
                return int(self._open_transactions().queue_declare(queue, passive=True).message_count)
            except NotFound:
                self._close_channel()
                return None

    def delete_queue(self, queue: str) -> int:
        """Delete a queue, and return how many messages it had."""
        with self._convert_errors():
            return int(self._open_transactions().queue_delete(queue) or 0)

    def close(self) -> None:
        with suppress(*FAILURES, AttributeError):
            if self._connection is not None:
                self._connection.close()
        self._connection = self._channel = None

    def _move_batch(self, channel: Any, source: str, most: int, route: Route, result: MoveResult) -> int:
        """Move a batch in one transaction, and return how many messages it has taken."""
        moved: dict[str, int] = {}
        taken = 0
        while taken < most and (message := channel.basic_get(source)) is not None:
            taken += 1
            destination = route(message)
            if destination is None:
                result.left += 1
                continue
            if destination:
                channel.basic_publish(copy_message(message), exchange="", routing_key=destination, mandatory=True)
            channel.basic_ack(message.delivery_tag)
            moved[destination] = moved.get(destination, 0) + 1
        channel.tx_commit()
        for destination, message in self._returned:
            moved[destination] -= 1
            result.returned_to = destination
            channel.basic_publish(message, exchange="", routing_key=source)
        if self._returned:
            channel.tx_commit()
            self._returned.clear()
        for destination, count in moved.items():
            result.moved[destination] = result.moved.get(destination, 0) + count
        return taken

    def _open_transactions(self) -> Any:
        """Return the channel, in transactions. It is opened anew after an error."""
        if self._connection is None:
            self._connection = self._app.connection_for_write(heartbeat=HEARTBEAT_SECONDS)
            self._connection.connect()
        if self._channel is None or not self._channel.is_open:
            channel = self._connection.channel()
            channel.auto_decode = False  # bodies are published as they are
            channel.events["basic_return"].add(self._note_returned)
            channel.tx_select()
            self._channel = channel
        return self._channel

    def _note_returned(self, error: Exception, exchange: str, routing_key: str, message: Message) -> None:
        self._returned.append((routing_key, copy_message(message)))

    def _close_channel(self) -> None:
        if self._channel is not None:
            with suppress(*FAILURES):
                self._channel.close()
        self._channel = None

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except AMQPError as error:
            self.close()
            raise InvalidPlantResponse(f"{self._name} rejected the request: {error}.") from None
        except FAILURES as error:
            self.close()
            raise PlantUnavailable(f"{self._name} can't be reached ({describe_connection_error(error)}).") from None


def copy_message(message: Message) -> Message:
    """Return a message with the same body and properties, to be published.

    Without the user: RabbitMQ refuses a message that names another user than its publisher.
    """
    return Message(message.body, **{name: value for name, value in message.properties.items() if name != "user_id"})
