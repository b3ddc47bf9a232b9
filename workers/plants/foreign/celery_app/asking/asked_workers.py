"""Workers that send events of tasks because Weir asked them to, in their current life.

A worker that is asked again only answers that it already sends events, whoever asked it first. The process that asks it
to stop may not be the one that asked it to start: it may be the next observer, after a restart.
"""

import json
from collections.abc import Collection, Mapping
from typing import Protocol, cast

import redis
from redis.typing import EncodableT, FieldT

from queues import keys
from workers.plants.foreign.celery_app.remote_control import Life

RETAINED_SECONDS = 90 * 24 * 3_600  # since a worker of the app was recorded


class AskedWorkers(Protocol):
    """The workers of one app that were asked to send events."""

    def note(self, workers: Mapping[str, Life]) -> None:
        """Record that these workers send events because they were asked to."""
        ...

    def forget(self, workers: Collection[str]) -> None:
        """Remove these workers: they no longer send events, or they do so because their owner wants it."""
        ...

    def load_all(self) -> dict[str, Life]:
        """Return the life of each worker."""
        ...


class SharedAskedWorkers:
    """Asked workers that are stored on the control server, where a later observer sees them."""

    def __init__(self, control: redis.Redis, plant: str) -> None:
        self._control, self._key = control, keys.ASKED_WORKERS.build(plant)

    def note(self, workers: Mapping[str, Life]) -> None:
        if workers:
            lives: dict[FieldT, EncodableT] = {
                worker: json.dumps({"pid": pid, "at": at}) for worker, (pid, at) in workers.items()
            }
            self._control.hset(self._key, mapping=lives)
            self._control.expire(self._key, RETAINED_SECONDS)

    def forget(self, workers: Collection[str]) -> None:
        if workers:
            self._control.hdel(self._key, *workers)

    def load_all(self) -> dict[str, Life]:
        stored = cast(dict[bytes, bytes], self._control.hgetall(self._key))
        lives = {worker.decode(): json.loads(life) for worker, life in stored.items()}
        return {worker: (life["pid"], life["at"]) for worker, life in lives.items()}


class OwnAskedWorkers:
    """Asked workers that only this process knows."""

    def __init__(self) -> None:
        self._noted: dict[str, Life] = {}

    def note(self, workers: Mapping[str, Life]) -> None:
        self._noted |= workers

    def forget(self, workers: Collection[str]) -> None:
        for worker in workers:
            self._noted.pop(worker, None)

    def load_all(self) -> dict[str, Life]:
        return dict(self._noted)
