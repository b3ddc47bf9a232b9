"""A Celery app as a topology: queues are sources, the pools of workers operators, processes their tasks.

A path leads from a queue to a pool that takes from it, and ends where a task starts. Its latency is the time that a
task waits, in the broker and in the worker that has taken it. The run time of the task is its service time.

Counts are rates (`consumers`) times WINDOW_SECONDS, divided evenly among the processes of a pool: a pool has one queue
for all of them. Ready messages in a queue of several pools are divided by their processes.

A topology has at most MAX_PATHS paths. If queues and workers make more, queues with the same workers become one source.
Paths beyond that are left out, and reported (`describe_left_out`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from controllers.parallelism.measured_topology import MAX_PATHS, Link, MeasuredOperator, MeasuredTopology
from workers.plants.foreign.celery_app.arrivals import Arrivals
from workers.plants.foreign.celery_app.broker import MAX_QUEUES, QueueLength
from workers.plants.foreign.celery_app.consumers import PoolDemand
from workers.plants.foreign.celery_app.remote_control import MAX_WORKERS, WorkerPool
from workers.plants.foreign.celery_app.task_events import PoolEvents, select_recent_seconds

WINDOW_SECONDS = 10.0
MAX_ROWS = 100
A_QUEUE = "a queue, which has no processes"
QUEUE, QUEUES = "queue {}", "queue {} and {} more"
# If paths are left out: in addition, each queue and each worker may be a path of its own.
MAX_LINKS = MAX_PATHS - MAX_QUEUES - MAX_WORKERS


@dataclass(frozen=True, kw_only=True)
class PoolMeasures:
    """The current measures of one pool.

    waiting: tasks in front of the pool, in the broker and in the worker; oldest: how long the first task has waited,
    among all workers of the same queues. None: unknown.
    """

    pool: WorkerPool
    waiting: float
    busy: int | None
    oldest_seconds: float
    wait_seconds: float | None
    arrivals_per_second: float | None
    begun_per_second: float | None
    run_seconds: tuple[float, ...]

    @property
    def service_seconds(self) -> float | None:
        return fmean(self.run_seconds) if self.run_seconds else None

    @property
    def latency_seconds(self) -> float | None:
        """Return how long tasks wait: the first waiting task, or else those that started recently."""
        return self.oldest_seconds if self.waiting > 0 else self.wait_seconds


class PoolHistory:
    """The counts of one pool since its worker was started."""

    def __init__(self) -> None:
        self._begun = Arrivals()

    def measure(
        self,
        pool: WorkerPool,
        events: PoolEvents | None,
        at: float,
        waiting: float,
        busy: int | None,
        demand: PoolDemand,
    ) -> PoolMeasures:
        """Record an observation and return the measures."""
        self._begun.observe(at, pool.begun, 0.0)
        waits = select_recent_seconds(events.waits, at) if events else []
        return PoolMeasures(
            pool=pool,
            waiting=waiting,
            busy=busy,
            oldest_seconds=demand.oldest_seconds,
            wait_seconds=fmean(waits) if waits else None,
            arrivals_per_second=demand.per_second,
            begun_per_second=self._begun.per_second,
            run_seconds=_run_seconds(events, busy, self._begun.per_second, at),
        )


def _run_seconds(
    events: PoolEvents | None, busy: int | None, begun_per_second: float | None, at: float
) -> tuple[float, ...]:
    """Return the run times of tasks that ended recently; if none has, the current run times of running tasks.

    Without events, use Little's law: running tasks divided by tasks started per second.
    """
    if events is not None and events.sends_tasks:
        ended = select_recent_seconds(events.runs, at)
        return tuple(ended or [at - began for began in events.running.values()])
    return (busy / begun_per_second,) if busy and begun_per_second else ()


def build_topology(
    plant: str, at: float, pools: Sequence[PoolMeasures], lengths: Mapping[str, QueueLength], most: int
) -> MeasuredTopology:
    """Return the topology of the queues and the pools that take from them."""
    sources = group_queues_by_source(pools, lengths)
    operators = {pool.pool.worker: _build_operator(pool, most) for pool in pools}
    links = _build_links(pools, sources)
    kept = links if len(links) + len(sources) + len(pools) <= MAX_PATHS else links[:MAX_LINKS]
    queues = {name: _build_source(name, of, pools) for name, of in sources.items()}
    return MeasuredTopology(plant, at, WINDOW_SECONDS, {**queues, **operators}, tuple(kept))


def group_queues_by_source(
    pools: Sequence[PoolMeasures], lengths: Mapping[str, QueueLength]
) -> dict[str, tuple[str, ...]]:
    """Return the queues of each source: one queue, unless that would make too many paths."""
    each_its_own: dict[str, tuple[str, ...]] = {QUEUE.format(name): (name,) for name in lengths}
    if len(_build_links(pools, each_its_own)) + len(lengths) + len(pools) <= MAX_PATHS:
        return each_its_own
    by_consumers: dict[tuple[str, ...], list[str]] = {}
    for name in lengths:
        consumers = tuple(pool.pool.worker for pool in pools if name in pool.pool.queues)
        by_consumers.setdefault(consumers, []).append(name)
    return {
        QUEUES.format(names[0], len(names) - 1) if names[1:] else QUEUE.format(names[0]): tuple(names)
        for names in by_consumers.values()
    }


def describe_left_out(pools: Sequence[PoolMeasures], lengths: Mapping[str, QueueLength]) -> list[str]:
    """Return a message for each part of the queues and workers that the topology leaves out."""
    sources, notes = group_queues_by_source(pools, lengths), []
    if len(sources) < len(lengths):
        notes.append(
            f"{len(lengths)} queues are shown as {len(sources)} sources, one for each set of"
            f" workers, because separate queues would need more than {MAX_PATHS:,} paths."
        )
    links = len(_build_links(pools, sources))
    if links + len(sources) + len(pools) > MAX_PATHS:
        notes.append(
            f"Paths not shown: {links - MAX_LINKS:,}, because at most {MAX_LINKS:,} can be"
            " shown. Their workers"
            " are still observed."
        )
    return notes


def _build_links(pools: Sequence[PoolMeasures], sources: Mapping[str, tuple[str, ...]]) -> list[Link]:
    """Return a link from each source to each pool that takes from one of its queues."""
    return [
        Link(name, pool.pool.worker, pool.latency_seconds)
        for pool in pools
        for name, queues in sources.items()
        if not set(queues).isdisjoint(pool.pool.queues)
    ]


def _build_source(name: str, queues: tuple[str, ...], pools: Sequence[PoolMeasures]) -> MeasuredOperator:
    """Return a source. Its output is known if all workers of its queues take from no other queues."""
    consumers = [pool for pool in pools if not set(queues).isdisjoint(pool.pool.queues)]
    rates = [consumer.arrivals_per_second for consumer in consumers if set(consumer.pool.queues) == set(queues)]
    known = [rate for rate in rates if rate is not None]
    tasks: tuple[Mapping[str, float | None], ...] = ()
    if consumers and len(known) == len(consumers):
        tasks = ({"outputs": sum(known) * WINDOW_SECONDS},)
    return MeasuredOperator(name, "source", 1, 1, 1, A_QUEUE, tasks=tasks)


def _build_operator(each: PoolMeasures, most: int) -> MeasuredOperator:
    pool = each.pool
    task = _compute_task_measures(each)
    return MeasuredOperator(
        pool.worker,
        "operator",
        pool.processes,
        1,
        max(most, pool.processes),
        pool.fixed,
        waiting=each.waiting if task else None,
        tasks=(task,) * _count_measure_rows(pool) if task else (),
    )


def _compute_task_measures(each: PoolMeasures) -> Mapping[str, float | None]:
    rate, processes = each.arrivals_per_second, each.pool.processes
    if rate is None or not processes:
        return {}
    begun = (each.begun_per_second or 0.0) * WINDOW_SECONDS / _count_measure_rows(each.pool)
    return {
        "latency_seconds": 0.0,
        "service_seconds": each.service_seconds,
        "service_variance": variance(each.run_seconds) if len(each.run_seconds) > 1 else None,
        "arrival_interval_seconds": processes / rate if rate else None,
        "utilisation": min(1.0, each.busy / processes) if each.busy is not None else None,
        "inputs": rate * WINDOW_SECONDS / _count_measure_rows(each.pool),
        "executions": begun,
        "outputs": begun,
    }


def _count_measure_rows(pool: WorkerPool) -> int:
    """Return the number of rows of measures: 1,000 green threads have 100 rows, with the sums of all."""
    return min(pool.processes, MAX_ROWS)


def build_unmeasured(pool: WorkerPool) -> PoolMeasures:
    """Return a pool without measures."""
    return PoolMeasures(
        pool=pool,
        waiting=0.0,
        busy=None,
        oldest_seconds=0.0,
        wait_seconds=None,
        arrivals_per_second=None,
        begun_per_second=None,
        run_seconds=(),
    )
