"""The web process's connection to the control server, and the newest snapshot kept there."""

import functools
import time

import redis
from django.conf import settings

from queues import keys
from queues.control.connection import connect
from queues.stored_document import BadDocument
from workers.documents.snapshot import NOTHING_SEEN, Snapshot

TIMEOUT_SECONDS = 2.0
LIVE_SECONDS = 30.0  # a snapshot that is older says nothing of now


def control() -> redis.Redis:
    """A client of settings.REDIS_URL; its pool is shared by all requests of this process."""
    return _client(settings.REDIS_URL)


@functools.lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return connect(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None)


def load_snapshot() -> Snapshot | None:
    """The newest snapshot; None when there is none. Raises RedisError, BadDocument."""
    stored = control().get(keys.SNAPSHOT)
    return Snapshot.from_json(stored) if stored else None


def live_snapshot() -> Snapshot:
    """The newest snapshot where it is of now, for who is not given its time: else nothing is seen."""
    snapshot = latest_snapshot()
    if snapshot is None or snapshot.at is None or abs(time.time() - snapshot.at) > LIVE_SECONDS:
        return NOTHING_SEEN
    return snapshot


def latest_snapshot() -> Snapshot | None:
    """The newest snapshot; None when there is none, it is of another version, or the control server does not
    answer: what can be said without it is.
    """
    try:
        return load_snapshot()
    except (redis.RedisError, BadDocument):
        return None
