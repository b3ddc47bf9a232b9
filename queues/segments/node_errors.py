"""Errors of a node's server, converted to Weir's."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.exceptions import ExecAbortError, MasterDownError

from common.errors import NodeFull, NodeUnavailable, describe_connection_error


@contextmanager
def convert_node_errors(node: redis.Redis) -> Iterator[None]:
    """Convert redis-py's errors to Weir's."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise NodeUnavailable(
            f"{format_address(node)} is not responding ({describe_connection_error(error)})."
        ) from error
    except redis.ResponseError as error:
        if _says_full(error):
            raise NodeFull(f"{format_address(node)} is full (maxmemory). Free memory or move points away.") from error
        # redis-py removes the first word of errors for which it has a class.
        known = isinstance(error, (redis.ReadOnlyError, MasterDownError))
        if known or str(error).startswith(("BUSY ", "NOREPLICAS ")):
            raise NodeUnavailable(f"{format_address(node)} is not ready ({error}).") from error
        raise


def _says_full(error: redis.ResponseError) -> bool:
    """Return whether the node is full, or has accepted a transaction's commands and exceeded the limit at EXEC."""
    at_exec = isinstance(error, ExecAbortError) and "OOM" in str(error)
    return isinstance(error, redis.OutOfMemoryError) or at_exec


def format_address(node: redis.Redis) -> str:
    """Return the host and port of a node's server, or its socket, for messages."""
    options = node.connection_pool.connection_kwargs
    return f"{options.get('host', options.get('path', 'node'))}:{options.get('port', '')}"
