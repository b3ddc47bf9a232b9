"""A client of a replicated server: an acknowledged write is stored on a replica.

Replication is asynchronous: a primary that dies loses what it had acknowledged and not yet sent. Each write is
therefore followed by WAIT on the same connection, and then by a query of the sentinels. If no replica has the write in
time, or the server is no longer the primary, the write fails. The caller then knows as little about it as about one
whose reply was lost. The sentinels close the connections to a server that they demote, so that a WAIT never confirms a
write which another primary has accepted (docs/understand/decisions/0013-control-server-fails-over.md).
"""

from typing import Any

import redis
from redis.client import Pipeline

from queues.control.primacy import confirm_primary

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


def wait_for_copy(connection: Any) -> None:
    """Return once a replica has everything written by this connection, and its server is still the primary.

    A primary that was frozen during a failover may have a replica that doesn't know of it yet. Raises `NotReplicated`
    or `NoPrimary`.
    """
    connection.send_command("WAIT", COPIES, MAX_MILLISECONDS)
    if int(connection.read_response()) < COPIES:
        raise NotReplicated(f"No replica of the control server stored the write within {MAX_MILLISECONDS / 1000:g} s.")
    confirm_primary(connection)


def _is_write_command(command: Any) -> bool:
    name = command.decode() if isinstance(command, bytes) else str(command)
    return name.split(" ", 1)[0].upper() not in READS


class AcknowledgedPipeline(Pipeline):
    """A pipeline of commands whose replies give the same guarantee."""

    @classmethod
    def wrap(cls, client: redis.Redis, transaction: bool = True) -> "AcknowledgedPipeline":
        """Return a pipeline of any client."""
        parts: Any = client  # redis-py types neither
        return cls(parts.connection_pool, parts.response_callbacks, transaction, None)

    def _execute_transaction(self, connection: Any, commands: Any, raise_on_error: bool) -> list[Any]:
        answers = super()._execute_transaction(connection, commands, raise_on_error)
        return self._copy_to_replica(connection, commands, answers)

    def _execute_pipeline(self, connection: Any, commands: Any, raise_on_error: bool) -> list[Any]:
        parent: Any = super()  # redis-py types neither this nor the way in which the client sends
        answers = parent._execute_pipeline(connection, commands, raise_on_error)
        return self._copy_to_replica(connection, commands, answers)

    @staticmethod
    def _copy_to_replica(connection: Any, commands: Any, answers: list[Any]) -> list[Any]:
        if any(_is_write_command(arguments[0]) for arguments, _ in commands):
            wait_for_copy(connection)
        return answers


class AcknowledgedClient(redis.Redis):
    """A `redis.Redis` whose writes are on a replica when they are acknowledged."""

    def _send_command_parse_response(self, conn: Any, command_name: Any, *args: Any, **options: Any) -> Any:
        parent: Any = super()
        answer = parent._send_command_parse_response(conn, command_name, *args, **options)
        if _is_write_command(command_name):
            wait_for_copy(conn)
        return answer

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        return AcknowledgedPipeline.wrap(self, transaction)
