"""Connections that a process keeps for all its tasks: a Spark worker works many, and a connection made anew
costs as much as some thousand events.
"""

from functools import cache

import redis

from queues.control.connection import connect
from workers.pipeline.events.containers import READ_BYTES, Nodes

CONTROL_TIMEOUT_SECONDS = 10.0


@cache
def control_of(url: str) -> redis.Redis:
    """The control server, for the life of this process. Safe in threads, and after a fork."""
    return connect(url, socket_timeout=CONTROL_TIMEOUT_SECONDS, socket_read_size=READ_BYTES)


@cache
def nodes_of(timeout_seconds: float) -> Nodes:
    """Containers by queue and node, for the life of this process."""
    return Nodes(timeout_seconds)
