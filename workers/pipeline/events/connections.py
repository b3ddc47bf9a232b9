"""Connections that a process shares between all its tasks.

A Spark worker runs many tasks, and a new connection costs as much as some thousand events.
"""

from functools import cache

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from queues.control.connection import connect
from workers.pipeline.events.containers import READ_BYTES, Nodes

CONTROL_TIMEOUT_SECONDS = 10.0
# Wait about 15 s for a control server that restarts or fails over. A batch that fails ends its query, and
# then all queries are stopped and restarted, which takes longer than the restart of the server.
PATIENCE = Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.05), 60)


def connect_to_control(url: str) -> redis.Redis:
    """Return a connection to the control server that survives its restart.

    Raises `BadInput` that names REDIS_URL.
    """
    return connect(url, socket_timeout=CONTROL_TIMEOUT_SECONDS, socket_read_size=READ_BYTES, retry=PATIENCE)


@cache
def control_of(url: str) -> redis.Redis:
    """Return the process-wide connection to the control server. Safe in threads and after a fork."""
    return connect_to_control(url)


@cache
def get_nodes(timeout_seconds: float) -> Nodes:
    """Return the process-wide containers by queue and node."""
    return Nodes(timeout_seconds)
