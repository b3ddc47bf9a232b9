"""The web process's connection to the control server, and the newest snapshot there."""

import functools
import time

import redis
from django.conf import settings
from django.utils import timezone

from common.stored_document import BadDocument
from queues import keys
from queues.control.connection import connect
from workers.batch.job import JobContext
from workers.documents.snapshot import NOTHING_SEEN, Snapshot

TIMEOUT_SECONDS = 2.0
LIVE_SECONDS = 30.0  # age from which a snapshot is out of date


def control() -> redis.Redis:
    """Return a client of settings.REDIS_URL; its pool is shared by all requests of this process."""
    return _get_client(settings.REDIS_URL)


@functools.lru_cache(maxsize=4)
def _get_client(url: str) -> redis.Redis:
    return connect(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None)


def load_snapshot() -> Snapshot | None:
    """Return the newest snapshot; None if there is none. Raises RedisError, BadDocument."""
    stored = control().get(keys.SNAPSHOT)
    return Snapshot.from_json(stored) if stored else None


def load_live_snapshot() -> Snapshot:
    """Return the newest snapshot if it is up to date, for readers that don't show its time."""
    snapshot = load_latest_snapshot()
    if snapshot is None or snapshot.at is None or abs(time.time() - snapshot.at) > LIVE_SECONDS:
        return NOTHING_SEEN
    return snapshot


def load_latest_snapshot() -> Snapshot | None:
    """Return the newest snapshot.

    None if there is none, it is of another version, or the control server does not answer: callers continue without it.
    """
    try:
        return load_snapshot()
    except (redis.RedisError, BadDocument):
        return None


def build_job_context() -> JobContext:
    """Return the data folder, the control server, and the time."""
    return JobContext(settings.WEIR_DATA, control(), timezone.now())
