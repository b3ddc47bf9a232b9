"""A client of a replicated server, whose answer to a write means that a replica has it.

Replication is asynchronous: a primary that dies takes with it what it had answered and not yet sent. So each
write is followed by WAIT on the connection that it went by, and then by a question to the sentinels; where
no replica has it in time, or the server is the primary no longer, the write fails: whoever asked knows as
little of it as of one whose reply was lost. The sentinels end the connections to a server that they demote,
so that a WAIT never speaks for a write which another primary has taken
(docs/understand/decisions/0013-control-server-fails-over.md).
"""

from typing import Any

import redis
from redis.client import Pipeline

from queues.control.primacy import confirm_primary

COPIES = 1  # beside the primary: with two replicas that makes two of three
MOST_MILLISECONDS = 1000
# What changes nothing needs no copy. After all else the server is asked, which answers at once where nothing
# was written.
READS = frozenset(
    {
        *("EXISTS", "GET", "MGET", "INFO", "PING", "PTTL", "PUBLISH", "SCAN", "TIME", "TTL", "TYPE"),
        *("HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSCAN", "LINDEX", "LLEN", "LRANGE"),
        *("SISMEMBER", "SMEMBERS", "SSCAN", "XINFO", "XLEN", "XPENDING", "XRANGE", "XREAD", "XREVRANGE"),
        *("ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZSCAN", "ZSCORE", "UNWATCH", "WATCH"),
    }
)


class NotReplicated(redis.TimeoutError):
    """No replica has taken what was written: it may be lost with the primary."""


def wait_for_copy(connection: Any) -> None:
    """Return when a replica has all that was written by this connection, and its server is the primary still:
    one that was frozen for as long as a fail-over takes may have a replica that doesn't know of it yet.
    Raises NotReplicated or NoPrimary.
    """
    connection.send_command("WAIT", COPIES, MOST_MILLISECONDS)
    if int(connection.read_response()) < COPIES:
        raise NotReplicated(
            f"No replica of the control server took the write within {MOST_MILLISECONDS / 1000:g} s."
        )
    confirm_primary(connection)


def _writes(command: Any) -> bool:
    name = command.decode() if isinstance(command, bytes) else str(command)
    return name.split(" ", 1)[0].upper() not in READS


class AcknowledgedPipeline(Pipeline):
    """Commands together; their answers mean the same."""

    @classmethod
    def wrap(cls, client: redis.Redis, transaction: bool = True) -> "AcknowledgedPipeline":
        """A pipeline of any client."""
        parts: Any = client  # redis-py types neither
        return cls(parts.connection_pool, parts.response_callbacks, transaction, None)

    def _execute_transaction(self, connection: Any, commands: Any, raise_on_error: bool) -> list[Any]:
        answers = super()._execute_transaction(connection, commands, raise_on_error)
        return self._copy_to_replica(connection, commands, answers)

    def _execute_pipeline(self, connection: Any, commands: Any, raise_on_error: bool) -> list[Any]:
        parent: Any = super()  # redis-py types neither this nor what the client sends by
        answers = parent._execute_pipeline(connection, commands, raise_on_error)
        return self._copy_to_replica(connection, commands, answers)

    @staticmethod
    def _copy_to_replica(connection: Any, commands: Any, answers: list[Any]) -> list[Any]:
        if any(_writes(arguments[0]) for arguments, _ in commands):
            wait_for_copy(connection)
        return answers


class AcknowledgedClient(redis.Redis):
    """A `redis.Redis` whose writes are on a replica when they are answered."""

    def _send_command_parse_response(self, conn: Any, command_name: Any, *args: Any, **options: Any) -> Any:
        parent: Any = super()
        answer = parent._send_command_parse_response(conn, command_name, *args, **options)
        if _writes(command_name):
            wait_for_copy(conn)
        return answer

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        return AcknowledgedPipeline.wrap(self, transaction)
