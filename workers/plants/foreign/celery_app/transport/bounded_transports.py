"""kombu's transports, on which one message of a broker is bounded: its bytes, and the time it takes to come.

They also leave the broker of an app as it is. kombu's channel of Redis gives tasks back to their queue that
were taken longer ago than its own visibility timeout, which may be shorter than the app's, and deletes tables
of bindings that it takes for abandoned. Both are the app's own to do.

Whoever may write to the broker of an app may send its events and answer for its workers. kombu's drivers hold
a message in memory until it is whole: one of Redis of any size, and a frame of AMQP of up to 4 GiB, as many
as a message says that it has.
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
    shown_separators,
)
from workers.plants.foreign.redis_client import Bounded

MOST_BYTES = 8 * 2**20
SECONDS = 2.0
HEARTBEAT = 8  # the type of a frame of AMQP
WORKERS_EXCHANGE = "celery.pidbox"  # by which each worker's own queue hears remote control


class _BoundedMessages(Bounded):
    """Messages of a subscription come without being asked for: the limit is of each."""

    most_bytes = MOST_BYTES

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        answer = super().read_response(*arguments, **options)  # type: ignore[misc]  # of redis-py's class
        self.limit.begin()
        return answer


class MessageConnection(_BoundedMessages, Connection):
    """Of Redis, by TCP."""


class MessageTlsConnection(_BoundedMessages, SSLConnection):
    """Of Redis, by TLS."""


class NoWorkerBound(OperationalError):  # noqa: N818
    """No worker has bound a queue for remote control, so nobody would answer."""


class SeparatorDiffers(OperationalError):  # noqa: N818
    """The app's workers part their bindings otherwise than the registration says."""


class _LeavesTasks(redis.QoS):
    """Gives no task of the app back to its queue."""

    def restore_visible(self, start: int = 0, num: int = 10, interval: int = 10) -> None:
        """Do nothing: only the app knows how long a task may take."""


class BoundedChannel(redis.Channel):
    """Of Redis or Valkey. follows_separator: take the one that the app's workers use."""

    connection_class = MessageConnection
    connection_class_ssl = MessageTlsConnection
    from_transport_options = (*redis.Channel.from_transport_options, "follows_separator")
    follows_separator = False
    QoS = _LeavesTasks

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type != "fanout":  # nobody reads bindings of those
            self._follow_separator()
        super()._queue_bind(exchange, routing_key, pattern, queue)  # type: ignore[misc]  # of kombu's class

    def _follow_separator(self) -> None:
        """Raise NoWorkerBound or SeparatorDiffers rather than bind in a form that workers may not read."""
        with self.conn_or_acquire() as client:
            shown = shown_separators(client.smembers(self.keyprefix_queue % (WORKERS_EXCHANGE,)))
        if self.sep in shown[:1] or (not shown and not self.follows_separator):
            return
        if not shown:
            raise NoWorkerBound("no worker listens to remote control")
        if self.follows_separator and shown[0] in SEPARATORS[ANY_SEPARATOR]:
            self.sep = shown[0]
            return
        raise SeparatorDiffers(
            f"its workers use the separator {shown[0]!r}, and the registration says {self.sep!r}; set"
            f" {OPTION} to {json.dumps({'sep': shown[0]})}"
        )

    def sweep_bindings(self, limit: int = 100) -> int:
        """Do nothing: the tables are the app's."""
        return 0


class RedisTransport(redis.Transport):
    """Redis or Valkey."""

    Channel = BoundedChannel


class _BoundedFrames:
    """A transport of py-amqp that counts what it reads. It comes before the class of py-amqp."""

    _quick_recv: Callable[[int], bytes]

    def _setup_transport(self) -> None:
        super()._setup_transport()  # type: ignore[misc]  # of py-amqp's class
        self.limit = AnswerLimit(MOST_BYTES, SECONDS)
        receive = self._quick_recv

        def counted(size: int) -> bytes:
            data = receive(size)
            self.limit.count(len(data))
            return data

        self._quick_recv = counted


class _BoundedTcp(_BoundedFrames, transport.TCPTransport):
    pass


class _BoundedTls(_BoundedFrames, transport.SSLTransport):
    pass


def _bounded_frames(connection: Any, callback: Callable[..., Any]) -> Callable[[Any], bool]:
    """py-amqp's handler of frames; a message that is whole, or a heartbeat, begins the limit anew."""
    handle = frame_handler(connection, callback)

    def on_frame(frame: tuple[int, int, bytes]) -> bool:
        is_whole: bool = handle(frame)
        if is_whole or frame[0] == HEARTBEAT:
            connection.transport.limit.begin()
        return is_whole

    return on_frame


class BoundedAmqp(pyamqp.Connection):
    """A connection of AMQP."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "frame_handler": _bounded_frames})

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
    """RabbitMQ."""

    Connection = BoundedAmqp
