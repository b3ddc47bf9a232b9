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


def latest_snapshot() -> Snapshot | None:
    """The newest snapshot; None when there is none, or the control server does not answer.

    A page is still worth showing without it (it says so), so an unreachable server is no error here. Raises
    BadDocument.
    """
    try:
        stored = control().get(keys.SNAPSHOT)
    except redis.RedisError:
        return None
    return Snapshot.from_json(stored) if stored else None
