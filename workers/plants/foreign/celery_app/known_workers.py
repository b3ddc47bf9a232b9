"""Workers that answered recently and no longer do, although they did not go offline, and their queues.

A worker that was killed, is frozen, or has lost its broker sends nothing. It is reported for MISSED_SECONDS, also by a
later observer and after the broker was away. A worker that sends an offline event is forgotten at once.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import redis
from redis.typing import EncodableT, FieldT

from queues import keys
from workers.plants.foreign.celery_app.broker import MAX_QUEUES
from workers.plants.foreign.celery_app.remote_control import WorkerPool

MISSED_SECONDS = 3_600.0
MAX_MISSED = 500
# Interval at which an answering worker is recorded again.
NOTE_SECONDS = 10.0
WHY = (
    "it did not report a shutdown: it was killed, is frozen, or lost its broker connection. Restart"
    " it on its host"
    " if it is still needed; otherwise this note disappears within an hour"
)
BEATS = (
    "it still sends heartbeats: its remote control is disabled (worker_enable_remote_control), or its host is"
    " overloaded"
)


@dataclass(frozen=True)
class KnownWorker:
    """When a worker last answered (seconds since 1970), and from which queues it took."""

    at: float
    queues: tuple[str, ...]


class KnownWorkers(Protocol):
    """The known workers of one app."""

    def note(self, workers: Mapping[str, KnownWorker]) -> None:
        """Record that these workers answer."""
        ...

    def forget(self, workers: Collection[str]) -> None:
        """Forget these workers: they stopped, or have been gone for a long time."""
        ...

    def load_all(self) -> dict[str, KnownWorker]:
        """Return the known workers by name."""
        ...


class SharedKnownWorkers:
    """Known workers that are stored on the control server, where a later observer sees them."""

    def __init__(self, control: redis.Redis, plant: str) -> None:
        self._control, self._key = control, keys.KNOWN_WORKERS.build(plant)

    def note(self, workers: Mapping[str, KnownWorker]) -> None:
        if workers:
            rows: dict[FieldT, EncodableT] = {
                name: json.dumps({"at": each.at, "queues": each.queues}) for name, each in workers.items()
            }
            self._control.hset(self._key, mapping=rows)
            self._control.expire(self._key, int(MISSED_SECONDS))

    def forget(self, workers: Collection[str]) -> None:
        if workers:
            self._control.hdel(self._key, *workers)

    def load_all(self) -> dict[str, KnownWorker]:
        stored = cast(dict[bytes, bytes], self._control.hgetall(self._key))
        rows = {name.decode(): json.loads(row) for name, row in stored.items()}
        return {name: KnownWorker(row["at"], tuple(row["queues"])) for name, row in rows.items()}


class OwnKnownWorkers:
    """Known workers of this process alone."""

    def __init__(self) -> None:
        self._noted: dict[str, KnownWorker] = {}

    def note(self, workers: Mapping[str, KnownWorker]) -> None:
        self._noted |= workers

    def forget(self, workers: Collection[str]) -> None:
        for worker in workers:
            self._noted.pop(worker, None)

    def load_all(self) -> dict[str, KnownWorker]:
        return dict(self._noted)


class MissedWorkers:
    """Workers that answered before and no longer do. Times: seconds since 1970."""

    def __init__(self, known: KnownWorkers) -> None:
        self._noted = known
        self._known: dict[str, KnownWorker] | None = None  # None: not read from the store yet
        self._noted_at = 0.0
        self._missed: dict[str, float] = {}

    def observe(self, now: float, answering: Iterable[WorkerPool], left: Collection[str]) -> None:
        """Record which workers answer. left: workers that sent an offline event."""
        if self._known is None:
            self._known = self._noted.load_all()
        fresh = {pool.worker: KnownWorker(now, tuple(pool.queues[:MAX_QUEUES])) for pool in answering}
        is_news = any(name not in self._known for name in fresh)
        self._known |= fresh
        if is_news or now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            self._noted.note(fresh)
        over = [
            name
            for name, each in self._known.items()
            if name not in fresh and (name in left or now - each.at > MISSED_SECONDS)
        ]
        missed = [(each.at, name) for name, each in self._known.items() if name not in fresh and name not in over]
        # If the names are too many, forget those that have been gone for longest.
        over += [name for _, name in sorted(missed)[: max(0, len(missed) - MAX_MISSED)]]
        for name in over:
            del self._known[name]
        self._noted.forget(over)
        self._missed = {name: now - each.at for name, each in self._known.items() if name not in fresh}

    def list_queues(self) -> list[str]:
        """Return the queues of the workers that answer and of those that are missed."""
        known = (self._known or {}).values()
        return list(dict.fromkeys(queue for worker in known for queue in worker.queues))

    def get_missed_seconds(self) -> dict[str, float]:
        """Return for how many seconds each missed worker has not answered."""
        return dict(self._missed)


def describe_missing_workers(
    missed: Mapping[str, float], beating: Collection[str], late_seconds: float, most: int
) -> list[str]:
    """Return messages about workers that are not merely late, most recent answer first.

    beating: workers that send heartbeats.
    """
    missing = sorted((seconds, name) for name, seconds in missed.items() if seconds > late_seconds)
    said = [
        f"{name} has not responded for {_expire_after(seconds)}, and {BEATS if name in beating else WHY}."
        for seconds, name in missing[:most]
    ]
    more = len(missing) - most
    return [*said, f"Other workers that are not responding: {more:,}."] if more > 0 else said


def _expire_after(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
