"""Connections to Redis-protocol servers, one pool per server and process."""

from functools import lru_cache

import redis
from django.conf import settings

from queues.control.connection import connect
from queues.nodes.addresses import add_login

TIMEOUT_SECONDS = 5.0


@lru_cache(maxsize=64)
def create_connection(url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> redis.Redis:
    """Return a client that connects on first use, so no socket is shared over a fork, and that never retries.

    A command whose reply was lost may have been executed: only its sender knows whether it may be repeated.
    """
    return redis.Redis.from_url(
        add_login(url), socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds, retry=None
    )


def control_server(timeout_seconds: float = TIMEOUT_SECONDS, acknowledged: bool = True) -> redis.Redis:
    """Return a client of the configured control server; see `connect` for `acknowledged`."""
    return _control(settings.REDIS_URL, timeout_seconds, acknowledged)


@lru_cache(maxsize=8)
def _control(url: str, timeout_seconds: float, acknowledged: bool) -> redis.Redis:
    timeouts = {"socket_timeout": timeout_seconds, "socket_connect_timeout": timeout_seconds}
    return connect(url, acknowledged=acknowledged, retry=None, **timeouts)
