"""Queues that workers take from again after a pause, in that life of theirs.

Before Celery 5.7 a worker that was asked to let a queue alone (`cancel_consumer`) and to take it up again
(`add_consumer`) forgets the second when its broker was away (celery#7733): from then on it lets the queue
alone, though nothing is in force any more. Whoever observes the app asks it again.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol, cast

import redis

from queues import keys
from workers.plants.foreign.celery_app.remote_control import Life

RETAINED_SECONDS = 90 * 24 * 3_600  # since the last pause at the app was undone
Lives = Mapping[str, Life]  # by worker


class ResumedQueues(Protocol):
    """Of one app."""

    def note(self, queue: str, lives: Lives) -> None:
        """The workers that are to take from it; no others."""
        ...

    def forget(self, queue: str) -> None:
        """It is about to be paused."""
        ...

    def load_all(self) -> dict[str, Lives]:
        """Queue → the workers that are to take from it."""
        ...


class SharedResumedQueues:
    """On the control server: every process of ours sees them."""

    def __init__(self, control: redis.Redis, plant: str) -> None:
        self._control, self._key = control, keys.RESUMED_QUEUES.build(plant)

    def note(self, queue: str, lives: Lives) -> None:
        self._control.hset(self._key, queue, json.dumps(lives))
        self._control.expire(self._key, RETAINED_SECONDS)

    def forget(self, queue: str) -> None:
        self._control.hdel(self._key, queue)

    def load_all(self) -> dict[str, Lives]:
        stored = cast(dict[bytes, bytes], self._control.hgetall(self._key))
        return {queue.decode(): _lives(json.loads(lives)) for queue, lives in stored.items()}


class OwnResumedQueues:
    """Of this process alone."""

    def __init__(self) -> None:
        self._noted: dict[str, Lives] = {}

    def note(self, queue: str, lives: Lives) -> None:
        self._noted[queue] = lives

    def forget(self, queue: str) -> None:
        self._noted.pop(queue, None)

    def load_all(self) -> dict[str, Lives]:
        return dict(self._noted)


def _lives(stored: Mapping[str, Any]) -> dict[str, Life]:
    """Without what an older version noted: by a pid alone nobody knows whether a life goes on."""
    return {worker: (life[0], life[1]) for worker, life in stored.items() if isinstance(life, list)}
