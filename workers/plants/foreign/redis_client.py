"""A client of somebody else's Redis or Valkey with bounded answers.

redis-py holds an answer in memory until it is complete, of any size, and for as long as data arrives.
"""

import socket
from typing import TYPE_CHECKING, Any, cast

import redis
from redis.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection, parse_url

from common.errors import describe_connection_error, get_first_line
from workers.plants.foreign.answer_limit import AnswerLimit, answer_seconds
from workers.plants.plant import InvalidPlantResponse

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_BYTES = 2**20
SCHEMES = ("redis://", "rediss://", "unix://")


class _BoundedSocket:
    """A socket on which the received data is limited, counted from each time that something is sent."""

    def __init__(self, own: socket.socket, limit: AnswerLimit) -> None:
        self._own, self._limit = own, limit

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)

    def sendall(self, data: "Buffer") -> None:
        self._limit.begin()
        self._own.sendall(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = self._own.recv(size, flags)
        if not flags & socket.MSG_PEEK:  # peeked data is received again
            self._limit.count(len(data))
        return data

    def recv_into(self, buffer: "Buffer") -> int:
        size = self._own.recv_into(buffer)
        self._limit.count(size)
        return size


class BoundedAnswers:
    """A redis-py connection with bounded answers. It precedes the redis-py class in the MRO."""

    most_bytes = MAX_BYTES

    def _connect(self) -> _BoundedSocket:
        self.limit = AnswerLimit(self.most_bytes, answer_seconds())
        return _BoundedSocket(cast(Any, super())._connect(), self.limit)


class BoundedConnection(BoundedAnswers, Connection):
    """A connection by TCP."""


class BoundedTlsConnection(BoundedAnswers, SSLConnection):
    """A connection by TLS."""


class BoundedUnixConnection(BoundedAnswers, UnixDomainSocketConnection):
    """A connection by a socket of this host."""


_BOUNDED: dict[object, object] = {
    Connection: BoundedConnection,
    SSLConnection: BoundedTlsConnection,
    UnixDomainSocketConnection: BoundedUnixConnection,
}


def create_client(connection: Any = Connection, **options: Any) -> redis.Redis:
    """Return a client. connection: the redis-py class to replace by a bounded one. Close it, or use a context."""
    pool = ConnectionPool(
        connection_class=_BOUNDED[connection],
        socket_timeout=answer_seconds(),
        socket_connect_timeout=answer_seconds(),
        retry=None,
        **options,
    )
    return redis.Redis.from_pool(pool)


def open_client(name: str, address: str) -> redis.Redis:
    """Return a client of the address. Raise `InvalidPlantResponse`.

    `name` appears in error messages; the address, which has a password, does not.
    """
    if not address.startswith(SCHEMES):
        raise InvalidPlantResponse(f"{name} does not contain an address that starts with redis:// or rediss://.")
    try:
        parse: Any = parse_url  # redis-py has no type hints here
        options: dict[str, Any] = dict(parse(address))
        return create_client(options.pop("connection_class", Connection), **options)
    except (ValueError, TypeError):
        # Its message would contain a part of the address.
        raise InvalidPlantResponse(
            f"{name} contains an invalid address. Percent-encode / : @ ? and # in the password as "
            "%2F %3A %40 %3F and %23."
        ) from None


def describe_error(error: Exception) -> str:
    """Return a line of redis-py's error: the server's own words, or why it can't be reached.

    The host is left out, because it is a part of the password if an address is written incorrectly.
    """
    cause = error.__cause__ or error.__context__
    if isinstance(error, redis.TimeoutError) or isinstance(cause, TimeoutError):
        return f"no complete response within {answer_seconds():g} s"
    if isinstance(cause, OSError):
        return describe_connection_error(cause.strerror or cause)
    if isinstance(error, redis.ConnectionError) and not isinstance(error, redis.AuthenticationError):
        return "the server closed the connection"
    return get_first_line(error)
