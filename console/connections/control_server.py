"""The web process's connection to the control server, and the newest snapshot kept there."""

import functools

import redis
from django.conf import settings

from queues import keys
from queues.control.connection import connect
from workers.documents.snapshot import Snapshot

TIMEOUT_SECONDS = 2.0


def control() -> redis.Redis:
    """A client of settings.REDIS_URL; its pool is shared by all requests of this process."""
    return _client(settings.REDIS_URL)


@functools.lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return connect(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None)


def stored_snapshot() -> Snapshot | None:
    """The newest snapshot; None when there is none. Raises RedisError, BadDocument."""
    stored = control().get(keys.SNAPSHOT)
    return Snapshot.from_json(stored) if stored else None


def latest_snapshot() -> Snapshot | None:
    """The newest snapshot; None when there is none, or the control server does not answer: what can be said
    without it is. Raises BadDocument.
    """
    try:
        return stored_snapshot()
    except redis.RedisError:
        return None
