"""Workers that have one name: two of them, on two hosts or in two containers, that were given the same `-n`.

By remote control they are one: an order reaches both, and either one answers. So neither what they begin nor
how many processes they have is known. Both answer where all are asked, each 30 s.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from workers.plants.foreign.celery_app.remote_control import WorkerPool

SAME_SECONDS = 100.0  # since both answered last: three times as long as until all are asked again
WHY = "two workers have this name, and an order would reach both; start each with a name of its own (-n)"


class SameNames:
    """Of one app. Times are of a clock that only goes forward."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def observe(self, now: float, twice: Collection[str], pools: Iterable[WorkerPool]) -> list[WorkerPool]:
        """twice: those that answered twice just now. The pools; those of one name can't be set."""
        self._at |= dict.fromkeys(twice, now)
        self._at = {worker: at for worker, at in self._at.items() if now - at < SAME_SECONDS}
        return [replace(pool, fixed=WHY) if pool.worker in self._at else pool for pool in pools]

    def list_blurred_workers(self, pools: Sequence[WorkerPool]) -> set[str]:
        """Of these workers it is not known what comes to them: those of one name, and who takes from the same
        queues as they do.
        """
        queues = {frozenset(pool.queues) for pool in pools if pool.worker in self._at}
        return {pool.worker for pool in pools if frozenset(pool.queues) in queues}

    def sentences(self, most: int) -> list[str]:
        """For people, of so many at most."""
        said = [f"{worker}: {WHY}. Nothing of it is measured." for worker in sorted(self._at)[:most]]
        more = len(self._at) - most
        return [*said, f"{more:,} more names have two workers each."] if more > 0 else said
