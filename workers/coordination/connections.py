"""Connections of processes to Redis-protocol servers, one pool per server and process, and to the database."""

import logging
import threading
from collections.abc import Callable
from functools import lru_cache

import redis
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections

from queues.control.connection import connect
from queues.nodes.addresses import add_login

TIMEOUT_SECONDS = 5.0
logger = logging.getLogger(__name__)


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
    return connect(
        url,
        acknowledged=acknowledged,
        retry=None,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
    )


def repeat_until_stopped(stop: threading.Event, every_seconds: float, act: Callable[[], object], what: str) -> None:
    """Act periodically until `stop` is set; log an error once, as `what`, and try again.

    Any error may be gone at the next try; the work must not end with it.
    """
    failing = False
    while not stop.wait(every_seconds):
        try:
            act()
            failing = False
        except Exception as error:
            if not failing:
                logger.warning("%s: %r", what, error)
            failing = True
            if isinstance(error, DatabaseError):
                close_old_connections()
    connections.close_all()
