"""The connection to the broker of a Celery app: the places of messages, and the limits of one message.

**Layout.** Two clients use the broker: kombu's, which asks workers and receives their events, and one that counts
waiting messages. Both follow the layout that is read here from the app's `broker_transport_options`.

An app on Redis names its lists `queue`, a separator, and a priority. It uses the same separator in the bindings of
queues, so kombu must know it before it binds a queue of its own: a binding that workers can't read breaks every answer
of the app's own remote control. The bindings that workers have made show which separator it is.

**Limits.** Anyone who may write to the broker of an app can send its events and answer for its workers. kombu's drivers
hold a message in memory until it is complete: on Redis a message of any size, on AMQP frames of up to 4 GiB, as many as
the message declares. So the size of one message is limited, and the time that it takes to arrive.

The transports also leave the broker of an app unchanged. kombu's Redis channel returns tasks to their queue if they
were taken longer ago than its own visibility timeout, which may be shorter than that of the app. It also deletes
binding tables that it considers abandoned. Only the app itself should do either.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from amqp import transport
from amqp.method_framing import frame_handler
from kombu.exceptions import OperationalError
from kombu.transport import pyamqp, redis
from redis.connection import Connection, SSLConnection

from common import checks
from common.checks import is_number, is_whole
from common.errors import BadInput
from workers.plants.foreign.answer_limit import AnswerLimit
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.redis_client import BoundedAnswers

OPTION = "transport_options"
MAX_OPTION_CHARACTERS = 2_000
ANY_SEPARATOR, USUAL_SEPARATOR = "any", "usual"
SEPARATORS: Mapping[str, tuple[str, ...]] = {
    ANY_SEPARATOR: ("\x06\x16", ":"),
    USUAL_SEPARATOR: ("\x06\x16",),
    ":": (":",),
}
PRIORITIES = tuple(range(10))
_TEXT = checks.accept_matching_text(re.compile(r".{1,100}\Z", re.DOTALL), "a string of 1 to 100 characters")
_FOLLOWED: Mapping[str, checks.Check] = {
    "fanout_patterns": checks.accept_boolean(),
    "fanout_prefix": checks.accept_either(checks.accept_boolean(), _TEXT),
    "global_keyprefix": _TEXT,
    "priority_steps": checks.list_of(checks.accept_whole_number(0, 9), "a list of numbers from 0 to 9"),
    "sep": _TEXT,
    "unacked_key": _TEXT,
}
# These options concern the app's own consumers and connections: Weir takes no task, restores none, and has
# its own timeouts. They are accepted so that an app's options can be copied unchanged.
_OF_ITS_CONSUMERS = """
    ack_emulation client_name health_check_interval max_connections max_retries queue_order_strategy retry_on_timeout
    retry_policy socket_connect_timeout socket_keepalive socket_keepalive_options socket_timeout unacked_index_key
    unacked_mutex_expire unacked_mutex_key unacked_restore_interval unacked_restore_limit unacked_restore_throttle
    visibility_timeout
"""
_KNOWN = sorted({*_FOLLOWED, *_OF_ITS_CONSUMERS.split()})
# A worker's own queue is bound with two empty parts in front of its name.
_TWO_EMPTY_PARTS = re.compile(r"(.+?)\1(?!\1)", re.DOTALL)
MAX_BYTES = 8 * 2**20
SECONDS = 2.0
HEARTBEAT = 8  # the type of an AMQP frame
WORKERS_EXCHANGE = "celery.pidbox"  # the exchange by which each worker's own queue receives remote control
REPLY_EXCHANGE = "reply.celery.pidbox"
MAX_NAME = 255  # the maximum length in AMQP
MAX_VALUE = 10**12


@dataclass(frozen=True)
class RedisLayout:
    """The layout of the broker.

    separators: possible separators in list names; kombu uses the first if workers show none. follows: whether kombu
    uses the separator that workers show. priorities: those that have a list.
    """

    separators: tuple[str, ...] = SEPARATORS[ANY_SEPARATOR]
    follows: bool = True
    prefix: str = ""
    fanout_prefix: bool | str = True
    fanout_patterns: bool = True
    unacked_key: str = "unacked"
    priorities: tuple[int, ...] = PRIORITIES

    def build_kombu_options(self) -> dict[str, Any]:
        """Return the options for kombu's transport."""
        return {
            "sep": self.separators[0],
            "follows_separator": self.follows,
            "global_keyprefix": self.prefix,
            "fanout_prefix": self.fanout_prefix,
            "fanout_patterns": self.fanout_patterns,
            "unacked_key": self.unacked_key,
        }

    def list_queue_keys(self, queue: str) -> list[tuple[int, str]]:
        """Return the priority and the key of each list that the queue may have."""
        name = f"{self.prefix}{queue}"
        more = [
            (priority, f"{name}{separator}{priority}")
            for priority in self.priorities
            if priority
            for separator in self.separators
        ]
        return [(0, name), *more]

    @property
    def unacknowledged(self) -> str:
        """Return the key of the messages that workers have taken and not acknowledged."""
        return f"{self.prefix}{self.unacked_key}"


def read_layout(address: PlantAddress) -> RedisLayout:
    """Read the options of a registration. Raise `BadInput`, naming the option."""
    options = _parse_transport_options(address.get_option(OPTION))
    separator, prefix = address.get_option("separator"), address.get_option("prefix")
    declared = options.get("sep")
    if declared and separator and declared not in SEPARATORS[separator]:
        raise BadInput("separator", f"is {separator}, but {OPTION} has sep {declared!r}. Remove one.")
    if prefix and options.get("global_keyprefix", prefix) != prefix:
        raise BadInput("prefix", f"differs from global_keyprefix in {OPTION}. Remove one.")
    separators = (declared,) if declared else SEPARATORS[separator or ANY_SEPARATOR]
    usual = RedisLayout()
    return RedisLayout(
        separators=separators,
        follows=len(separators) > 1,
        prefix=prefix or options.get("global_keyprefix", ""),
        fanout_prefix=options.get("fanout_prefix", usual.fanout_prefix),
        fanout_patterns=options.get("fanout_patterns", usual.fanout_patterns),
        unacked_key=options.get("unacked_key", usual.unacked_key),
        priorities=tuple(options.get("priority_steps", usual.priorities)),
    )


def _parse_transport_options(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(OPTION, 'must be a JSON object, such as {"sep": ":"}.') from None
    if not isinstance(options, dict):
        raise BadInput(
            OPTION, f'must be a JSON object, such as {{"sep": ":"}}, not {checks.shorten_for_message(options)}.'
        )
    checks.refuse_unknown(options, _KNOWN, OPTION)
    return {
        name: check.validate(options[name], f"{OPTION}.{name}", end=".")
        for name, check in _FOLLOWED.items()
        if name in options
    }


def find_binding_separators(bindings: Iterable[str | bytes]) -> list[str]:
    """Return the separators of workers' own bindings, most frequent first."""
    texts = [binding.decode("utf-8", "replace") if isinstance(binding, bytes) else binding for binding in bindings]
    separators = [match[1] for text in texts if (match := _TWO_EMPTY_PARTS.match(text))]
    return sorted(set(separators), key=lambda separator: (-separators.count(separator), separator))


class _BoundedMessages(BoundedAnswers):
    """Messages of a subscription arrive without a request, so the limit applies to each message."""

    most_bytes = MAX_BYTES

    def read_response(self, *arguments: object, **options: object) -> object:
        answer = super().read_response(*arguments, **options)  # type: ignore[misc]  # of redis-py's class
        self.limit.begin()
        return answer


class MessageConnection(_BoundedMessages, Connection):
    """A Redis connection by TCP."""


class MessageTlsConnection(_BoundedMessages, SSLConnection):
    """A Redis connection by TLS."""


class NoWorkerBound(OperationalError):  # noqa: N818
    """No worker has bound a queue for remote control, so none would answer."""


class SeparatorDiffers(OperationalError):  # noqa: N818
    """The app's workers use another separator in their bindings than the registration says."""


class _LeavesTasks(redis.QoS):
    """Returns no task of the app to its queue."""

    def restore_visible(self, start: int = 0, num: int = 10, interval: int = 10) -> None:
        """Do nothing: only the app knows how long a task may take."""


class BoundedChannel(redis.Channel):
    """A channel of Redis or Valkey. follows_separator: use the separator of the app's workers."""

    connection_class = MessageConnection
    connection_class_ssl = MessageTlsConnection
    from_transport_options = (*redis.Channel.from_transport_options, "follows_separator")
    follows_separator = False
    QoS = _LeavesTasks

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type != "fanout":  # nothing reads bindings of these types
            self._follow_separator()
        super()._queue_bind(exchange, routing_key, pattern, queue)  # type: ignore[misc]  # of kombu's class

    def _follow_separator(self) -> None:
        """Raise `NoWorkerBound` or `SeparatorDiffers` rather than bind in a form unreadable to workers."""
        with self.conn_or_acquire() as client:
            shown = find_binding_separators(client.smembers(self.keyprefix_queue % (WORKERS_EXCHANGE,)))
        if self.sep in shown[:1] or (not shown and not self.follows_separator):
            return
        if not shown:
            raise NoWorkerBound("no worker listens to remote control")
        if self.follows_separator and shown[0] in SEPARATORS[ANY_SEPARATOR]:
            self.sep = shown[0]
            return
        raise SeparatorDiffers(
            f"its workers use the separator {shown[0]!r}, but the registration has {self.sep!r}; set"
            f" {OPTION} to {json.dumps({'sep': shown[0]})}"
        )

    def describe_layout(self) -> dict[str, Any]:
        """Return how to ask the app's workers without kombu: channels, bindings of replies, separator, and prefix.

        Raise as a request for remote control does.
        """
        self._follow_separator()
        prefix, channel = self.global_keyprefix or "", cast(Any, self)  # kombu's type stubs omit the channels
        topic = channel._get_publish_topic(WORKERS_EXCHANGE, "")
        return {
            "channels": [f"{prefix}{topic}"],
            "bindings": f"{prefix}{self.keyprefix_queue % (REPLY_EXCHANGE,)}",
            "separator": self.sep,
            "prefix": prefix,
        }

    def sweep_bindings(self, limit: int = 100) -> int:
        """Do nothing: the tables belong to the app."""
        return 0


class RedisTransport(redis.Transport):
    """The transport of Redis or Valkey."""

    Channel = BoundedChannel


class _BoundedFrames:
    """A py-amqp transport that counts the bytes that it reads. It precedes the py-amqp class in the MRO."""

    _quick_recv: Callable[[int], bytes]

    def _setup_transport(self) -> None:
        super()._setup_transport()  # type: ignore[misc]  # of py-amqp's class
        self.limit = AnswerLimit(MAX_BYTES, SECONDS)
        receive = self._quick_recv

        def receive_and_count(size: int) -> bytes:
            data = receive(size)
            self.limit.count(len(data))
            return data

        self._quick_recv = receive_and_count


class _BoundedTcp(_BoundedFrames, transport.TCPTransport):
    pass


class _BoundedTls(_BoundedFrames, transport.SSLTransport):
    pass


def _build_frame_handler(connection: Any, callback: Callable[..., Any]) -> Callable[[Any], bool]:
    """Return py-amqp's frame handler; a complete message, or a heartbeat, restarts the limit."""
    handle = frame_handler(connection, callback)

    def on_frame(frame: tuple[int, int, bytes]) -> bool:
        is_whole: bool = handle(frame)
        # The frame that ends a connection leaves it without a transport.
        if connection.connected and (is_whole or frame[0] == HEARTBEAT):
            connection.transport.limit.begin()
        return is_whole

    return on_frame


class BoundedAmqp(pyamqp.Connection):
    """An AMQP connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "frame_handler": _build_frame_handler})

    def Transport(  # noqa: N802  # its name there
        self,
        host: str,
        connect_timeout: float | None,
        ssl: bool | dict[str, Any] = False,
        read_timeout: float | None = None,
        write_timeout: float | None = None,
        socket_settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> _BoundedFrames:
        options |= {"read_timeout": read_timeout, "write_timeout": write_timeout}
        options |= {"connect_timeout": connect_timeout, "ssl": ssl, "socket_settings": socket_settings}
        return (_BoundedTls if ssl else _BoundedTcp)(host, **options)


class AmqpTransport(pyamqp.Transport):
    """The transport of RabbitMQ."""

    Connection = BoundedAmqp


# What workers and senders of events report about themselves, bounded


def parse_name(value: object) -> str:
    """Return a name, or "" if the value is not a name or is too long."""
    return parse_text(value) if isinstance(value, str) and len(value) <= MAX_NAME else ""


def parse_text(value: object) -> str:
    """Return any text as Unicode, without the halves of surrogate pairs that JSON can contain; "" if not text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """Return a whole number from 0 that is a possible count."""
    return int(value) if is_whole(value, 0, MAX_VALUE) else None


def parse_seconds(value: object) -> float | None:
    """Return a time or a duration."""
    return float(value) if is_number(value, 0, MAX_VALUE) else None
