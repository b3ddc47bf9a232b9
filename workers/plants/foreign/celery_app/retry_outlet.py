"""Retried tasks at the broker of a Celery app: staged in a list or queue of Weir's own, then moved to their queues.

Redis: one script moves messages from the staging list to the lists of their queues, so a message is in exactly one of
them. RabbitMQ: `message_moves`; if RabbitMQ itself is killed during a commit, it may complete only a part of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from queues.lua.script import load_script
from workers.plants.foreign.celery_app.broker import AmqpBroker, RedisBroker, convert_redis_errors, create_app
from workers.plants.foreign.celery_app.message_moves import HEARTBEAT_SECONDS, MovingChannel
from workers.plants.foreign.celery_app.retry_message import build_amqp_message, build_redis_message, read_destination
from workers.plants.foreign.celery_app.transport import read_layout
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.retry_outlet import DestinationMissing, RetriedTask, RetryOutlet, StagingLost

AT_ONCE = 500
MAX_MOVED = 200  # by one script: the broker serves nobody else meanwhile
PREFIX = "weir.retry"


def open_outlet(address: PlantAddress, name: str) -> RetryOutlet:
    """Return the outlet of a Celery app. name: of the list or queue for staged messages.

    Raises PlantUnavailable and BadInput.
    """
    if address.url.startswith("redis"):
        return RedisOutlet(address, f"{PREFIX}.{name}")
    return AmqpOutlet(address, f"{PREFIX}.{name}")


class RedisOutlet:
    """The outlet on Redis or Valkey."""

    settle_seconds = 0.0

    def __init__(self, address: PlantAddress, staging: str) -> None:
        self._name, self._layout = address.name, read_layout(address)
        self._staging = f"{self._layout.prefix}{staging}"
        # An empty list does not exist: this key tells one that is sent from one that was lost.
        self._mark = f"{self._staging}.open"
        self._broker = RedisBroker(address)

    def write_staging(self, tasks: Sequence[RetriedTask]) -> int:
        with self._open_server() as server:
            server.delete(self._staging, self._mark)
            for start in range(0, len(tasks), AT_ONCE):
                part = tasks[start : start + AT_ONCE]
                server.lpush(self._staging, *map(build_redis_message, part))
            server.set(self._mark, len(tasks))
        return self.count_staged()

    def count_staged(self) -> int:
        with self._open_server() as server:
            pipeline = server.pipeline(transaction=True)
            pipeline.llen(self._staging)
            pipeline.exists(self._mark)
            count, exists = pipeline.execute()
        if not exists:
            raise StagingLost(f"{self._name} has lost the staged messages.")
        return int(count)

    def send(self, most: int) -> int:
        moved = 0
        with self._open_server() as server:
            while moved < most:
                part = min(MAX_MOVED, most - moved)
                answer: Any = server.eval(
                    load_script("plant/move_messages"), 1, self._staging, part, self._layout.prefix
                )
                moved += int(answer[0])
                if not answer[1]:
                    break
        return moved

    def discard(self) -> int:
        with self._open_server() as server:
            pipeline = server.pipeline(transaction=True)
            pipeline.llen(self._staging)
            pipeline.delete(self._staging, self._mark)
            count, _ = pipeline.execute()
            return int(count)

    def count_waiting(self, queues: Sequence[str]) -> int:
        lengths = self._broker.read_queue_lengths(queues)
        return sum(length.waiting for length in lengths.values())

    def close(self) -> None:
        self._broker.close()

    @contextmanager
    def _open_server(self) -> Iterator[redis.Redis]:
        with convert_redis_errors(self._name):
            yield self._broker.server


class AmqpOutlet:
    """The outlet on RabbitMQ."""

    settle_seconds = 2.5 * HEARTBEAT_SECONDS

    def __init__(self, address: PlantAddress, staging: str) -> None:
        self._name, self._staging = address.name, staging
        app = create_app(address)
        self._channel = MovingChannel(address.name, app)
        self._broker = AmqpBroker(address, app)
        self._close_app: Callable[[], object] = app.close

    def write_staging(self, tasks: Sequence[RetriedTask]) -> int:
        self._channel.replace_queue(self._staging)
        self._channel.publish(self._staging, map(build_amqp_message, tasks))
        return self.count_staged()

    def count_staged(self) -> int:
        count = self._channel.count_ready(self._staging)
        if count is None:
            raise StagingLost(f"{self._name} has lost the staged messages.")
        return count

    def send(self, most: int) -> int:
        result = self._channel.move(self._staging, most, read_destination)
        if result.returned_to:
            raise DestinationMissing(f"Queue {result.returned_to} of {self._name} does not exist.")
        return result.total

    def discard(self) -> int:
        return self._channel.delete_queue(self._staging)

    def count_waiting(self, queues: Sequence[str]) -> int:
        lengths = self._broker.read_queue_lengths(queues)
        if missing := [queue for queue in queues if queue not in lengths]:
            raise DestinationMissing(f"Queue {missing[0]} of {self._name} does not exist.")
        return sum(length.waiting for length in lengths.values())

    def close(self) -> None:
        self._channel.close()
        self._broker.close()
        self._close_app()
