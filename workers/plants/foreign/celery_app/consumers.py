"""The workers that take from the same queues, as one set: their arrival rate and waiting time.

Chance decides which of them takes a message, and the division of waiting tasks among them changes with their processes.
So arrivals are counted for all of them together (`arrivals`), from whole lengths of their queues, by the changes since
the previous observation:

    came += started since, by workers that are still there
          + growth of each queue, times these workers' share of the processes that take from it
          + growth of the tasks that the workers have taken and not started

So a worker that comes or goes does not change the load. If other workers, which also take from other queues, share a
queue, the shares are proportional to processes. The rate is divided by processes, too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from workers.plants.foreign.celery_app.arrivals import Arrivals
from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.remote_control import WorkerPool


@dataclass(frozen=True)
class PoolDemand:
    """The demand of one pool: its share of the arrivals, and the waiting time of the first waiting task."""

    per_second: float | None
    oldest_seconds: float


class ConsumerSet:
    """The consumers of one set of queues."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self._came = 0.0
        self._begun: dict[tuple[str, int | None], int] = {}
        self._ready: dict[str, int] = {}
        self._held = 0

    def observe(
        self, at: float, pools: Sequence[WorkerPool], ready: Mapping[str, tuple[int, float]], reserved: int
    ) -> None:
        """Record an observation.

        ready: queue → its length, and the share of these workers; reserved: tasks taken and not started.
        """
        begun = {(pool.worker, pool.pid): pool.begun for pool in pools}
        self._came += sum(max(0, count - self._begun.get(life, count)) for life, count in begun.items())
        self._came += sum(part * (length - self._ready.get(queue, 0)) for queue, (length, part) in ready.items())
        self._came += reserved - self._held
        self._begun, self._held = begun, reserved
        # A missing queue may only be away, with its RabbitMQ node: all of it comes back.
        self._ready |= {queue: length for queue, (length, _) in ready.items()}
        waiting = reserved + sum(part * length for length, part in ready.values())
        under_way = sum(pool.prefetch or 0 for pool in pools)
        self.arrivals.observe(at, self._came - waiting, waiting, under_way)


class AllConsumers:
    """The consumers of all sets of queues of one app."""

    def __init__(self) -> None:
        self._by_queues: dict[frozenset[str], ConsumerSet] = {}

    def observe(
        self,
        at: float,
        pools: Sequence[WorkerPool],
        fresh: Collection[str],
        lengths: Mapping[str, QueueLength],
        reserved: Mapping[str, int],
    ) -> dict[str, PoolDemand]:
        """Return the demand of each worker.

        If one worker of a set is late, the set keeps its last counts: tasks that it takes meanwhile would seem to have
        vanished.
        """
        sets: dict[frozenset[str], list[WorkerPool]] = {}
        for pool in pools:
            sets.setdefault(frozenset(pool.queues), []).append(pool)
        self._by_queues = {queues: self._by_queues.get(queues) or ConsumerSet() for queues in sets}
        demands: dict[str, PoolDemand] = {}
        for queues, members in sets.items():
            consumers = self._by_queues[queues]
            if all(pool.worker in fresh for pool in members):
                ready = {
                    queue: (
                        lengths[queue].waiting,
                        _compute_process_share(members, [p for p in pools if queue in p.queues]),
                    )
                    for queue in queues
                    if queue in lengths
                }
                consumers.observe(at, members, ready, sum(reserved[pool.worker] for pool in members))
            rate, oldest = consumers.arrivals.per_second, consumers.arrivals.oldest_seconds
            for pool in members:
                part = _compute_process_share([pool], members)
                demands[pool.worker] = PoolDemand(None if rate is None else rate * part, oldest)
        return demands


def split_ready_messages(pools: Sequence[WorkerPool], lengths: Mapping[str, QueueLength]) -> dict[str, float]:
    """Return the ready messages for each worker: its share of each of its queues, by processes."""
    sums = {pool.worker: 0.0 for pool in pools}
    for queue, length in lengths.items():
        consumers = [pool for pool in pools if queue in pool.queues]
        for pool in consumers:
            sums[pool.worker] += length.waiting * _compute_process_share([pool], consumers)
    return sums


def _compute_process_share(some: Sequence[WorkerPool], of: Sequence[WorkerPool]) -> float:
    """Return the share by processes."""
    processes = sum(pool.processes for pool in of)
    return sum(pool.processes for pool in some) / processes if processes else len(some) / len(of)
