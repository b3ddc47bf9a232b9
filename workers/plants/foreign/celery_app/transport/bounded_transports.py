"""kombu's transports with limits for one message of a broker: its size, and the time that it takes to arrive.

The transports also leave the broker of an app unchanged. kombu's Redis channel returns tasks to their queue if they
were taken longer ago than its own visibility timeout, which may be shorter than that of the app. It also deletes
binding tables that it considers abandoned. Only the app itself should do either.

Anyone who may write to the broker of an app can send its events and answer for its workers. kombu's drivers hold a
message in memory until it is complete: on Redis a message of any size, on AMQP frames of up to 4 GiB, as many as the
message declares.
"""

import json
from collections.abc import Callable
from typing import Any

from amqp import transport
from amqp.method_framing import frame_handler
from kombu.exceptions import OperationalError
from kombu.transport import pyamqp, redis
from redis.connection import Connection, SSLConnection

from workers.plants.foreign.answer_limit import AnswerLimit
from workers.plants.foreign.celery_app.transport.redis_layout import (
    ANY_SEPARATOR,
    OPTION,
    SEPARATORS,
    find_binding_separators,
)
from workers.plants.foreign.redis_client import BoundedAnswers

MAX_BYTES = 8 * 2**20
SECONDS = 2.0
HEARTBEAT = 8  # the type of an AMQP frame
WORKERS_EXCHANGE = "celery.pidbox"  # the exchange by which each worker's own queue receives remote control


class _BoundedMessages(BoundedAnswers):
    """Messages of a subscription arrive without a request, so the limit applies to each message."""

    most_bytes = MAX_BYTES

    def read_response(self, *arguments: Any, **options: Any) -> Any:
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
        if is_whole or frame[0] == HEARTBEAT:
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
        socket_settings: Any = None,
        **options: Any,
    ) -> Any:
        options |= {"read_timeout": read_timeout, "write_timeout": write_timeout}
        options |= {"connect_timeout": connect_timeout, "ssl": ssl, "socket_settings": socket_settings}
        return (_BoundedTls if ssl else _BoundedTcp)(host, **options)


class AmqpTransport(pyamqp.Transport):
    """The transport of RabbitMQ."""

    Connection = BoundedAmqp
