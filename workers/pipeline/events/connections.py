"""Connections that a process keeps for all its tasks: a Spark worker works many, and a connection made anew
costs as much as some thousand events.
"""

from functools import cache

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from queues.control.connection import connect
from workers.pipeline.events.containers import READ_BYTES, Nodes

CONTROL_TIMEOUT_SECONDS = 10.0
# A control server that is started again or fails over is waited for, some 15 s: a batch that fails ends its
# query, and all queries are then stopped and started anew, which takes longer than the server does.
PATIENCE = Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.05), 60)


def patient_control(url: str) -> redis.Redis:
    """A connection to the control server that outlives its restart. Raises BadInput naming REDIS_URL."""
    return connect(url, socket_timeout=CONTROL_TIMEOUT_SECONDS, socket_read_size=READ_BYTES, retry=PATIENCE)


@cache
def control_of(url: str) -> redis.Redis:
    """The control server, for the life of this process. Safe in threads, and after a fork."""
    return patient_control(url)


@cache
def nodes_of(timeout_seconds: float) -> Nodes:
    """Containers by queue and node, for the life of this process."""
    return Nodes(timeout_seconds)
