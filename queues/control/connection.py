"""All connections to the control server, for each form of its address.

A client of a replicated control server queries the sentinels for the primary whenever it connects, so it follows a
failover automatically. Commands during the failover fail like any command to an unavailable server.
"""

import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeAlias, TypedDict, Unpack
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis._parsers.base import BaseParser
from redis.client import Pipeline
from redis.retry import Retry

from queues.control.address import Sentinels, parse_sentinels

# Whether a server is still the primary, according to the majority of its sentinels.
#
# A primary that was frozen while the sentinels promoted another one continues where it was. For an instant it still has
# clients whose connections waited, and a replica that was not redirected yet. What these two accept together is lost
# when they follow the new primary. Writers therefore query the sentinels afterwards.

# A sentinel that did not answer is skipped for this long: each query would take its whole timeout.
SILENT_SECONDS = 5.0
_silent_until: WeakKeyDictionary[redis.Redis, float] = WeakKeyDictionary()


class ServerConnection(Protocol):
    """The parts of redis-py's connection that are used here."""

    host: str
    port: int

    def send_command(self, *words: str | float) -> None: ...
    def read_response(self) -> Any: ...


class NoPrimary(redis.ConnectionError):
    """Raised when the server is no longer the primary, or this can't be determined: the write may be lost."""


def confirm_primary(connection: ServerConnection) -> None:
    """Return if a majority of sentinels answers and confirms the server of the connection.

    The newest of their answers must name the server, and none of them may be replacing it. A connection that was not
    made through a sentinel is trusted. Raises `NoPrimary`.
    """
    led_by = getattr(connection, "connection_pool", None)
    manager = getattr(led_by, "sentinel_manager", None)
    if led_by is None or manager is None:
        return
    sentinels = list(manager.sentinels)
    states = [
        state for sentinel in sentinels if (state := _read_primary_state(sentinel, led_by.service_name)) is not None
    ]
    if 2 * len(states) <= len(sentinels):
        raise NoPrimary(
            f"Only {len(states)} of {len(sentinels)} sentinels responded: the control server that stored the "
            "write may no longer be the primary."
        )
    # The sentinel that leads a failover names the old primary until all replicas follow; the others know the
    # new one by then.
    replaced = [state for state in states if "failover_in_progress" in state["flags"]]
    settled = [state for state in states if state not in replaced]
    newest = max(settled, key=lambda state: int(state["config-epoch"]), default=None)
    server = (connection.host, connection.port)
    if newest is None or _get_address(newest) != server or server in map(_get_address, replaced):
        raise NoPrimary(
            "The control server is failing over: the server that stored the write is no longer the primary."
        )


def _get_address(state: dict[str, Any]) -> tuple[str, int]:
    return state["ip"], state["port"]


def _read_primary_state(sentinel: redis.Redis, name: str) -> dict[str, Any] | None:
    """Return what a sentinel knows of the primary; None if it does not answer."""
    if time.monotonic() < _silent_until.get(sentinel, 0.0):
        return None
    try:
        state = sentinel.sentinel_master(name)
    except redis.RedisError:
        _silent_until[sentinel] = time.monotonic() + SILENT_SECONDS
        return None
    return state if isinstance(state, dict) else None


# A client of a replicated server: an acknowledged write is stored on a replica.
#
# Replication is asynchronous: a primary that dies loses what it had acknowledged and not yet sent. Each write is
# therefore followed by WAIT on the same connection, and then by a query of the sentinels. If no replica has the write
# in time, or the server is no longer the primary, the write fails. The caller then knows as little about it as about
# one whose reply was lost. The sentinels close the connections to a server that they demote, so that a WAIT never
# confirms a write which another primary has accepted (docs/understand/decisions/0013-control-server-fails-over.md).

COPIES = 1  # besides the primary: with two replicas that makes two of three
MAX_MILLISECONDS = 1000
# Commands that change nothing need no copy. After all others the server is queried; it answers at once if
# nothing was written.
READS = frozenset(
    {
        *("EXISTS", "GET", "MGET", "INFO", "PING", "PTTL", "PUBLISH", "SCAN", "TIME", "TTL", "TYPE"),
        *("HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSCAN", "LINDEX", "LLEN", "LRANGE"),
        *("SISMEMBER", "SMEMBERS", "SSCAN", "XINFO", "XLEN", "XPENDING", "XRANGE", "XREAD", "XREVRANGE"),
        *("ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZSCAN", "ZSCORE", "UNWATCH", "WATCH"),
    }
)


class NotReplicated(redis.TimeoutError):
    """Raised when no replica has the write: it may be lost with the primary."""


def wait_for_copy(connection: ServerConnection) -> None:
    """Return once a replica has everything written by this connection, and its server is still the primary.

    A primary that was frozen during a failover may have a replica that doesn't know of it yet. Raises `NotReplicated`
    or `NoPrimary`.
    """
    connection.send_command("WAIT", COPIES, MAX_MILLISECONDS)
    if int(connection.read_response()) < COPIES:
        raise NotReplicated(f"No replica of the control server stored the write within {MAX_MILLISECONDS / 1000:g} s.")
    confirm_primary(connection)


def _is_write_command(command: object) -> bool:
    name = command.decode() if isinstance(command, bytes) else str(command)
    return name.split(" ", 1)[0].upper() not in READS


Commands: TypeAlias = Sequence[tuple[tuple[object, ...], Mapping[str, object]]]
"""The words and the options of each command of a pipeline."""


class AcknowledgedPipeline(Pipeline):
    """A pipeline of commands whose replies give the same guarantee."""

    @classmethod
    def wrap(cls, client: redis.Redis, transaction: bool = True) -> "AcknowledgedPipeline":
        """Return a pipeline of any client."""
        return cls(client.connection_pool, client.response_callbacks, transaction, None)

    def _execute_transaction(self, connection: redis.Connection, commands: Commands, raise_on_error: bool) -> list[Any]:
        answers = super()._execute_transaction(connection, commands, raise_on_error)
        return self._copy_to_replica(connection, commands, answers)

    def _execute_pipeline(self, connection: redis.Connection, commands: Commands, raise_on_error: bool) -> list[Any]:
        parent: Any = super()  # redis-py does not type it
        answers = parent._execute_pipeline(connection, commands, raise_on_error)
        return self._copy_to_replica(connection, commands, answers)

    @staticmethod
    def _copy_to_replica(connection: ServerConnection, commands: Commands, answers: list[Any]) -> list[Any]:
        if any(_is_write_command(arguments[0]) for arguments, _ in commands):
            wait_for_copy(connection)
        return answers


class AcknowledgedClient(redis.Redis):
    """A `redis.Redis` whose writes are on a replica when they are acknowledged."""

    def _send_command_parse_response(
        self, conn: ServerConnection, command_name: object, *args: object, **options: object
    ) -> object:
        parent: Any = super()  # redis-py does not type it
        answer: object = parent._send_command_parse_response(conn, command_name, *args, **options)
        if _is_write_command(command_name):
            wait_for_copy(conn)
        return answer

    def pipeline(self, transaction: bool = True, shard_hint: object = None) -> Pipeline:
        return AcknowledgedPipeline.wrap(self, transaction)


# A server that accepts no writes, since its disk is full or fails (MISCONF), counts as unavailable.
#
# redis-py raises the same error for it as for an invalid command (ResponseError). Code that waits for an unavailable
# server did not wait for this one, and Celery's workers ended. redis-py's table of errors is the one place that affects
# every client of a process, including kombu's; a test checks that it does.


class WritesRefused(redis.ConnectionError):
    """Raised when the server answers, but writes nothing until it has space."""


def know_of_refused_writes() -> None:
    """Register the error in this process. Idempotent."""
    BaseParser.EXCEPTION_CLASSES["MISCONF"] = WritesRefused


# Waits for a stream of the control server instead of polling it.


def await_entry(control: redis.Redis, stream: str, after: str, seconds: float) -> None:
    """Return once `stream` has an entry after `after`, or after `seconds`; at once for 0.

    The seconds must be fewer than the timeout of the connection. Raises `RedisError`.
    """
    if seconds > 0:
        control.xread({stream: after}, count=1, block=math.ceil(seconds * 1000))


know_of_refused_writes()
SYNCHRONOUS = redis.sentinel.Sentinel
ASYNCHRONOUS = redis.asyncio.sentinel.Sentinel


class TimeoutOptions(TypedDict, total=False):
    """The limits of redis-py on the waits for the server."""

    socket_timeout: float
    socket_connect_timeout: float


class ConnectionOptions(TimeoutOptions, total=False):
    """The options of redis-py that Weir sets."""

    socket_read_size: int
    health_check_interval: int
    retry: Retry | None


def connect(url: str, *, acknowledged: bool = True, **options: Unpack[ConnectionOptions]) -> redis.Redis:
    """Return a client that connects on first use; `options` are redis-py's.

    acknowledged: replies to writes mean that a replica has them, if there are replicas. Pass False for values that are
    only the newest of their kind and are sent again. Raises `BadInput` that names REDIS_URL.
    """
    sentinels = parse_sentinels(url)
    if sentinels is None:
        return redis.Redis.from_url(url, **options)
    sentinel = SYNCHRONOUS(
        sentinels.hosts, sentinel_kwargs=sentinels.sentinel_options, **_build_server_options(sentinels, options)
    )
    made: redis.Redis = sentinel.master_for(
        sentinels.name, redis_class=AcknowledgedClient if acknowledged else redis.Redis
    )
    return made


@asynccontextmanager
async def open_connection(url: str, **options: Unpack[TimeoutOptions]) -> AsyncIterator[redis.asyncio.Redis]:
    """Return an asynchronous client for reading and listening. Raises `BadInput` that names REDIS_URL."""
    sentinels = parse_sentinels(url)
    if sentinels is None:
        async with redis.asyncio.Redis.from_url(url, **options) as client:
            yield client
        return
    async with (
        ASYNCHRONOUS(
            sentinels.hosts, sentinel_kwargs=sentinels.sentinel_options, **_build_server_options(sentinels, options)
        ) as sentinel,
        sentinel.master_for(sentinels.name) as client,
    ):
        yield client


def _build_server_options(found: Sentinels, options: ConnectionOptions | TimeoutOptions) -> dict[str, Any]:
    return {"db": found.database, **found.login, **options}
