"""Workers with the same name: two workers that were started with the same `-n`.

They are on two hosts or in two containers. Remote control treats them as one: an order reaches both, and either one
answers. So neither the number of tasks that they start nor their number of processes is known. Both answer when all
workers are asked, every 30 s.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from workers.plants.foreign.celery_app.remote_control import WorkerPool

SAME_SECONDS = 100.0  # since both last answered: three times the interval at which all are asked
WHY = "two workers have this name, and a command would reach both; give each worker its own name (-n)"


class SameNames:
    """The duplicate worker names of one app. Times are monotonic."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def observe(self, now: float, twice: Collection[str], pools: Iterable[WorkerPool]) -> list[WorkerPool]:
        """Return the pools; those with a shared name can't be set. twice: workers that answered twice."""
        self._at |= dict.fromkeys(twice, now)
        self._at = {worker: at for worker, at in self._at.items() if now - at < SAME_SECONDS}
        return [replace(pool, fixed=WHY) if pool.worker in self._at else pool for pool in pools]

    def list_blurred_workers(self, pools: Sequence[WorkerPool]) -> set[str]:
        """Return the workers whose arrivals are unknown.

        These are workers with a shared name, and workers that take from the same queues.
        """
        queues = {frozenset(pool.queues) for pool in pools if pool.worker in self._at}
        return {pool.worker for pool in pools if frozenset(pool.queues) in queues}

    def describe_workers(self, most: int) -> list[str]:
        """Return messages for people, about at most this many workers."""
        said = [f"{worker}: {WHY}. Its metrics are unknown." for worker in sorted(self._at)[:most]]
        more = len(self._at) - most
        return [*said, f"Other names that are shared by two workers: {more:,}."] if more > 0 else said
