"""Workers that answered lately: which one no longer does, though nothing was heard of its end, and which
queues they took from.

A worker that was killed, is frozen, or has lost its broker says nothing. It is named for MISSED_SECONDS, by
a later observer, too, and after the broker was away; one that says that it goes offline is forgotten at once.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import redis
from redis.typing import EncodableT, FieldT

from queues import keys
from workers.plants.foreign.celery_app.broker import MOST_QUEUES
from workers.plants.foreign.celery_app.remote_control import WorkerPool

MISSED_SECONDS = 3_600.0
MOST_MISSED = 500
# So often it is noted that a worker still answers.
NOTE_SECONDS = 10.0
WHY = (
    "nothing was heard of its end: it was killed, is frozen, or has lost the broker. Restart it on its host"
    " if it is to work; else this note ends within an hour"
)
BEATS = (
    "sends heartbeats: its remote control is switched off (worker_enable_remote_control), or its host is too"
    " busy"
)


@dataclass(frozen=True)
class KnownWorker:
    """When it answered last (s since 1970), and from which queues it took."""

    at: float
    queues: tuple[str, ...]


class KnownWorkers(Protocol):
    """Of one app."""

    def note(self, workers: Mapping[str, KnownWorker]) -> None:
        """These answer."""
        ...

    def forget(self, workers: Collection[str]) -> None:
        """These stopped, or are long gone."""
        ...

    def load_all(self) -> dict[str, KnownWorker]:
        """By name."""
        ...


class SharedKnownWorkers:
    """On the control server: a later observer sees them."""

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
    """Of this process alone."""

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
    """Those that answered and do so no longer. Times: s since 1970."""

    def __init__(self, known: KnownWorkers) -> None:
        self._noted = known
        self._known: dict[str, KnownWorker] | None = None  # None: what was noted is not read yet
        self._noted_at = 0.0
        self._missed: dict[str, float] = {}

    def observe(self, now: float, answering: Iterable[WorkerPool], left: Collection[str]) -> None:
        """left: those that said that they stop."""
        if self._known is None:
            self._known = self._noted.load_all()
        fresh = {pool.worker: KnownWorker(now, tuple(pool.queues[:MOST_QUEUES])) for pool in answering}
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
        missed = [
            (each.at, name) for name, each in self._known.items() if name not in fresh and name not in over
        ]
        # Of names without end those that are gone for longest.
        over += [name for _, name in sorted(missed)[: max(0, len(missed) - MOST_MISSED)]]
        for name in over:
            del self._known[name]
        self._noted.forget(over)
        self._missed = {name: now - each.at for name, each in self._known.items() if name not in fresh}

    def queues(self) -> list[str]:
        """From which they took, those that answer and those that are missed."""
        known = (self._known or {}).values()
        return list(dict.fromkeys(queue for worker in known for queue in worker.queues))

    def seconds(self) -> dict[str, float]:
        """Worker → for how long it has not answered."""
        return dict(self._missed)


def sentences(
    missed: Mapping[str, float], beating: Collection[str], late_seconds: float, most: int
) -> list[str]:
    """Of those that are not merely late, those that answered last first. beating: that send heartbeats."""
    missing = sorted((seconds, name) for name, seconds in missed.items() if seconds > late_seconds)
    said = [
        f"{name} has not answered for {_expire_after(seconds)}, and {BEATS if name in beating else WHY}."
        for seconds, name in missing[:most]
    ]
    more = len(missing) - most
    return [*said, f"{more:,} more workers do not answer."] if more > 0 else said


def _expire_after(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
