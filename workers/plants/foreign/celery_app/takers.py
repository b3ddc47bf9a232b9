"""The workers that take from the same queues, as one: how fast tasks come to them, and how long those wait.

Which of them takes a message is chance, and how what waits is divided among them changes with their
processes. So what came is counted of all of them together (`arrivals`), from whole lengths of their queues,
by what changed since the observation before:

    came += begun since, by workers that are still there
          + growth of each queue, times the part of its takers' processes that these are
          + growth of what the workers have taken and not begun

A worker that comes or goes is thus no load that comes or goes. Of a queue that others take from as well, who
take other queues besides, these have a part by processes. The rate is divided among them by processes, too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from workers.plants.foreign.celery_app.arrivals import Arrivals
from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.remote_control import WorkerPool


@dataclass(frozen=True)
class PoolDemand:
    """Of one pool: its part of the tasks that come to those who take its queues, and how long the first that
    waits there has waited.
    """

    per_second: float | None
    oldest_seconds: float


class Takers:
    """Of one set of queues."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self._came = 0.0
        self._begun: dict[tuple[str, int | None], int] = {}
        self._ready: dict[str, int] = {}
        self._held = 0

    def observe(
        self, at: float, pools: Sequence[WorkerPool], ready: Mapping[str, tuple[int, float]], reserved: int
    ) -> None:
        """ready: queue → its length, and the part of it that is theirs; reserved: taken and not begun."""
        begun = {(pool.worker, pool.pid): pool.begun for pool in pools}
        self._came += sum(max(0, count - self._begun.get(life, count)) for life, count in begun.items())
        self._came += sum(
            part * (length - self._ready.get(queue, 0)) for queue, (length, part) in ready.items()
        )
        self._came += reserved - self._held
        self._begun, self._held = begun, reserved
        # One that is not there may only be away, with the node of RabbitMQ that has it: all of it comes back.
        self._ready |= {queue: length for queue, (length, _) in ready.items()}
        waiting = reserved + sum(part * length for length, part in ready.values())
        under_way = sum(pool.prefetch or 0 for pool in pools)
        self.arrivals.observe(at, self._came - waiting, waiting, under_way)


class AllTakers:
    """Of one app."""

    def __init__(self) -> None:
        self._by_queues: dict[frozenset[str], Takers] = {}

    def observe(
        self,
        at: float,
        pools: Sequence[WorkerPool],
        fresh: Collection[str],
        lengths: Mapping[str, QueueLength],
        reserved: Mapping[str, int],
    ) -> dict[str, PoolDemand]:
        """Worker → what comes to it. Where one of several is late nothing new is known of any of them: what
        it takes meanwhile would seem to have vanished.
        """
        sets: dict[frozenset[str], list[WorkerPool]] = {}
        for pool in pools:
            sets.setdefault(frozenset(pool.queues), []).append(pool)
        self._by_queues = {queues: self._by_queues.get(queues) or Takers() for queues in sets}
        demands: dict[str, PoolDemand] = {}
        for queues, members in sets.items():
            takers = self._by_queues[queues]
            if all(pool.worker in fresh for pool in members):
                ready = {
                    queue: (lengths[queue].waiting, _part(members, [p for p in pools if queue in p.queues]))
                    for queue in queues
                    if queue in lengths
                }
                takers.observe(at, members, ready, sum(reserved[pool.worker] for pool in members))
            rate, oldest = takers.arrivals.per_second, takers.arrivals.oldest_seconds
            for pool in members:
                part = _part([pool], members)
                demands[pool.worker] = PoolDemand(None if rate is None else rate * part, oldest)
        return demands


def shares(pools: Sequence[WorkerPool], lengths: Mapping[str, QueueLength]) -> dict[str, float]:
    """Worker → what is ready in its queues, of each its part by processes."""
    sums = {pool.worker: 0.0 for pool in pools}
    for queue, length in lengths.items():
        takers = [pool for pool in pools if queue in pool.queues]
        for pool in takers:
            sums[pool.worker] += length.waiting * _part([pool], takers)
    return sums


def _part(some: Sequence[WorkerPool], of: Sequence[WorkerPool]) -> float:
    """By processes."""
    processes = sum(pool.processes for pool in of)
    return sum(pool.processes for pool in some) / processes if processes else len(some) / len(of)
