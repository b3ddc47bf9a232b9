"""Queues that workers take from again after a pause, in their current life.

Before Celery 5.7, a worker that was asked to leave a queue (`cancel_consumer`) and to resume it (`add_consumer`)
forgets the second order when its broker was away (celery#7733). It then leaves the queue alone although nothing is in
force any more. The observer of the app asks it again.
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
    """The resumed queues of one app."""

    def note(self, queue: str, lives: Lives) -> None:
        """Record that exactly these workers are to take from the queue."""
        ...

    def forget(self, queue: str) -> None:
        """Forget the queue: it is about to be paused."""
        ...

    def load_all(self) -> dict[str, Lives]:
        """Return the workers that are to take from each queue."""
        ...


class SharedResumedQueues:
    """Resumed queues that are stored on the control server, where every process of Weir sees them."""

    def __init__(self, control: redis.Redis, plant: str) -> None:
        self._control, self._key = control, keys.RESUMED_QUEUES.build(plant)

    def note(self, queue: str, lives: Lives) -> None:
        self._control.hset(self._key, queue, json.dumps(lives))
        self._control.expire(self._key, RETAINED_SECONDS)

    def forget(self, queue: str) -> None:
        self._control.hdel(self._key, queue)

    def load_all(self) -> dict[str, Lives]:
        stored = cast(dict[bytes, bytes], self._control.hgetall(self._key))
        return {queue.decode(): _parse_stored_lives(json.loads(lives)) for queue, lives in stored.items()}


class OwnResumedQueues:
    """Resumed queues that only this process knows."""

    def __init__(self) -> None:
        self._noted: dict[str, Lives] = {}

    def note(self, queue: str, lives: Lives) -> None:
        self._noted[queue] = lives

    def forget(self, queue: str) -> None:
        self._noted.pop(queue, None)

    def load_all(self) -> dict[str, Lives]:
        return dict(self._noted)


def _parse_stored_lives(stored: Mapping[str, Any]) -> dict[str, Life]:
    """Return the lives, without entries of older versions, which have only a pid."""
    return {worker: (life[0], life[1]) for worker, life in stored.items() if isinstance(life, list)}
