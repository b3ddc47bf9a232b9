"""Messages of a Celery app's queues that a person views, moves, requeues, or deletes.

RabbitMQ: `message_moves`. Redis and Valkey: a script moves messages between the lists of kombu, so each message is in
one list at any time. A moved message is addressed to its new queue, because kombu returns a message that a worker did
not acknowledge to the queue that the message names. It keeps its priority.
"""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from amqp import Message

from common.errors import BadInput
from queues.lua.script import load_script
from workers.plants.foreign.celery_app.broker import RedisBroker, convert_redis_errors, create_app
from workers.plants.foreign.celery_app.message_contents import describe_message, find_origin
from workers.plants.foreign.celery_app.message_moves import MovingChannel
from workers.plants.foreign.celery_app.sending import describe_known
from workers.plants.foreign.celery_app.transport import read_layout
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.queue_messages import (
    MOVE,
    PURGE,
    REQUEUE,
    MessagePreview,
    MovedMessages,
    QueueMessages,
    WaitingMessage,
)
from workers.plants.foreign.redaction import SHOWN
from workers.plants.plant import InvalidPlantResponse

AT_ONCE = 100  # messages of one script: the broker serves nobody else meanwhile
MAX_READ_BYTES = 256 * 1024  # of one answer
# Messages that a worker returned are in front of those that were read.
MAX_RETURNED = 1_000
Headers = Mapping[str, Any]
# The name of a queue: "" deletes the message, None leaves it where it is.
HeaderRoute = Callable[[Headers], str | None]


def open_messages(address: PlantAddress, known: Collection[str]) -> QueueMessages:
    """Return the messages of an app's queues. Raises BadInput and PlantUnavailable."""
    if address.url.startswith("redis"):
        return RedisMessages(address, known)
    return AmqpMessages(address)


def build_route(action: str, destination: str) -> HeaderRoute:
    """Return where an action leads a message, by its headers."""
    routes: Mapping[str, HeaderRoute] = {MOVE: lambda _: destination, PURGE: lambda _: "", REQUEUE: find_origin}
    return routes[action]


class AmqpMessages:
    """The messages of an app on RabbitMQ."""

    def __init__(self, address: PlantAddress) -> None:
        app = create_app(address)
        self._shown = address.get_option("arguments", SHOWN)
        self._channel, self._close_app = MovingChannel(address.name, app), app.close

    def preview(self, queue: str, most: int) -> MessagePreview:
        waiting = self._count(queue, "queue")
        return MessagePreview(waiting, list(map(self._describe, self._channel.list_oldest(queue, most))))

    def act(self, action: str, queue: str, most: int, destination: str = "") -> MovedMessages:
        self._count(queue, "queue")
        if action == MOVE:
            self._count(destination, "destination")
        route = build_route(action, destination)
        result = self._channel.move(queue, most, lambda message: route(message.headers or {}))
        moved = {place: count for place, count in result.moved.items() if count}
        return MovedMessages(moved, result.left, result.returned_to)

    def close(self) -> None:
        self._channel.close()
        self._close_app()

    def _describe(self, message: Message) -> WaitingMessage:
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        properties: Mapping[str, Any] = message.properties
        content_type = str(properties.get("content_type", ""))
        return describe_message(message.headers or {}, properties, content_type, body, self._shown)

    def _count(self, queue: str, field: str) -> int:
        ready = self._channel.count_ready(queue)
        if ready is None:
            raise BadInput(field, f"{queue[:100]} does not exist.")
        return ready


class RedisMessages:
    """The messages of an app on Redis or Valkey.

    known: names of queues. Redis removes an empty list, so the broker can't tell whether a queue without messages
    exists.
    """

    def __init__(self, address: PlantAddress, known: Collection[str]) -> None:
        self._name, self._known = address.name, frozenset(known)
        self._layout, self._shown = read_layout(address), address.get_option("arguments", SHOWN)
        self._broker = RedisBroker(address)

    def preview(self, queue: str, most: int) -> MessagePreview:
        waiting = self._count(queue, "queue")
        messages: list[WaitingMessage] = []
        for key in self._list_keys(queue):
            skipped = 0
            while len(messages) < most and (texts := self._read(key, skipped, most - len(messages))):
                messages += [self._describe(parse_message(self._name, key, text)) for text in texts]
                skipped += len(texts)
        return MessagePreview(waiting, messages)

    def act(self, action: str, queue: str, most: int, destination: str = "") -> MovedMessages:
        self._count(queue, "queue")
        if action == MOVE:
            self._count(destination, "destination")
        keys = list(self._list_keys(queue))
        for key in keys:
            # A list of the app itself must be noticed before anything is moved.
            for text in self._read(key, 0, 1):
                parse_message(self._name, key, text)
        route, moved, left = build_route(action, destination), Counter[str](), 0
        for key in keys:
            suffix, skipped = key.removeprefix(f"{self._layout.prefix}{queue}"), 0
            while (rest := most - moved.total() - left) > 0:
                texts = self._read(key, skipped, rest)
                kept, batch = 0, dict[str, list[bytes]]()
                for text in texts:
                    place = route(parse_message(self._name, key, text)["headers"])
                    if place is None:
                        kept += 1
                    else:
                        batch.setdefault(place, []).append(text)
                taken = {place: self._take(key, suffix, place, skipped, part) for place, part in batch.items()}
                moved.update(taken)
                left, skipped = left + kept, skipped + kept
                if not kept and not sum(taken.values()):
                    break  # the list is empty, or workers take the messages faster
        return MovedMessages(+moved, left)

    def close(self) -> None:
        self._broker.close()

    def _read(self, key: str, skipped: int, most: int) -> list[bytes]:
        """Return the messages of a list that workers take next, after some others; at most AT_ONCE."""
        with convert_redis_errors(self._name):
            script = load_script("plant/read_messages")
            answer: Any = self._broker.server.eval(script, 1, key, skipped, min(most, AT_ONCE), MAX_READ_BYTES)
        return list(answer)

    def _take(self, key: str, suffix: str, place: str, skipped: int, texts: list[bytes]) -> int:
        """Move those messages that are still in the list; place: "" deletes them. Return their number."""
        keys = [key, f"{self._layout.prefix}{place}{suffix}"] if place else [key]
        pairs = [part for text in texts for part in (text, readdress(text, place) if place else b"")]
        with convert_redis_errors(self._name):
            reach = skipped + AT_ONCE + MAX_RETURNED
            script = load_script("plant/take_messages")
            answer: Any = self._broker.server.eval(script, len(keys), *keys, reach, *pairs)
        return int(answer)

    def _count(self, queue: str, field: str) -> int:
        waiting = self._broker.read_queue_lengths([queue])[queue].waiting
        if not waiting and queue not in self._known:
            known = describe_known(queue, self._known)
            raise BadInput(field, f"{queue[:80]!r} has no messages, and no worker consumes it{known}")
        return waiting

    def _list_keys(self, queue: str) -> Iterator[str]:
        """Yield the lists of a queue in the order in which workers empty them."""
        others = {f"{self._layout.prefix}{name}" for name in self._known - {queue}}
        for _, key in self._layout.list_queue_keys(queue):
            if key in others:
                continue  # another queue may be named like a list of this one
            with convert_redis_errors(self._name):
                kind: Any = self._broker.server.type(key)
            if kind == b"list":
                yield key

    def _describe(self, document: Mapping[str, Any]) -> WaitingMessage:
        return describe_message(
            document["headers"],
            document["properties"],
            str(document.get("content-type", "")),
            decode_body(document),
            self._shown,
        )


def parse_message(plant: str, key: str, text: bytes) -> dict[str, Any]:
    """Return a message as kombu stores it. Raises InvalidPlantResponse: an app may have lists of its own."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        headers, properties = document.get("headers") or {}, document.get("properties")
        if isinstance(headers, dict) and isinstance(properties, dict) and isinstance(document.get("body"), str):
            return {**document, "headers": headers}
    raise InvalidPlantResponse(
        f"The list {key[:100]!r} of {plant} has an entry that is not a message of Celery. If the list is not a part of"
        " the queue, set the option separator of the plant."
    )


def readdress(text: bytes, queue: str) -> bytes:
    """Return a message as kombu stores it, addressed to another queue."""
    document = json.loads(text)
    delivery = document["properties"].get("delivery_info")
    known = delivery if isinstance(delivery, dict) else {}
    document["properties"]["delivery_info"] = {**known, "exchange": "", "routing_key": queue}
    return json.dumps(document).encode()


def decode_body(document: Mapping[str, Any]) -> bytes:
    """Return the body of a message as kombu stores it; as it is if its encoding is unknown."""
    body = document["body"].encode()
    if document["properties"].get("body_encoding") != "base64":
        return bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        return bytes(body)
