"""A Celery app as a topology: queues are sources, the pools of workers operators, processes their tasks.

A path leads from a queue to a pool that takes from it, and ends where a task starts. Its latency is the time that a
task waits, in the broker and in the worker that has taken it. The run time of the task is its service time.

Counts are rates (`consumers`) times WINDOW_SECONDS, divided evenly among the processes of a pool: a pool has one queue
for all of them. Ready messages in a queue of several pools are divided by their processes.

A topology has at most MAX_PATHS paths. If queues and workers make more, queues with the same workers become one source.
Paths beyond that are left out, and reported (`describe_left_out`).
"""

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from controllers.parallelism.measured_topology import MAX_PATHS, Link, MeasuredOperator, MeasuredTopology
from workers.plants.foreign.celery_app.broker import MAX_QUEUES, QueueLength
from workers.plants.foreign.celery_app.events import PoolEvents, select_recent_seconds
from workers.plants.foreign.celery_app.remote_control import MAX_WORKERS, WorkerPool

ENOUGH, MIN_SECONDS, MAX_SECONDS = 30, 10.0, 600.0
SHORT_SECONDS, DEVIATIONS = (1.0, 3.0, 10.0, 30.0), 3.5
FALL_SECONDS = 5.0
# Number of observations that are kept: no waiting time further back is known.
REMEMBERED = 4_096
WINDOW_SECONDS = 10.0
MAX_ROWS = 100
A_QUEUE = "a queue, which has no processes"
QUEUE, QUEUES = "queue {}", "queue {} and {} more"
# If paths are left out: in addition, each queue and each worker may be a path of its own.
MAX_LINKS = MAX_PATHS - MAX_QUEUES - MAX_WORKERS


class Arrivals:
    """The arrivals of one stream of tasks. Times are monotonic, in seconds.

    A Celery message has no send time. But the number of tasks that have been started, S, and the number that wait now,
    W, are known. So A = S + W tasks have arrived, and A(t) of all observations gives

        arrivals/s   (A(now) - A(then)) / (now - then)
        oldest       now - t with A(t) = A(now) - W: the arrival time of the task that is started next

    A rate is computed from the last ENOUGH arrivals, over at least MIN_SECONDS and at most MAX_SECONDS. If one of the
    SHORT_SECONDS windows has more or fewer arrivals than that rate predicts, by more than DEVIATIONS standard
    deviations of a count, the load has changed, and older observations no longer count.

    A never falls, but the counts can fall: S and W are not read at the same instant, so messages in flight are in
    neither for a moment. A fall is made up by later arrivals. A fall that is larger, or that is not made up within
    FALL_SECONDS, means that tasks disappeared without being started, for example because a queue was purged. A then
    continues from its former value, as if these tasks had been started.
    """

    def __init__(self) -> None:
        self._came: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)  # (time, total arrivals)
        self._since = -math.inf  # start of the current load
        self._waiting = 0.0
        self._gone = 0.0  # tasks that disappeared without being started
        self._fell_at: float | None = None  # since when the count is below the known arrivals

    def observe(self, at: float, started: float, waiting: float, under_way: float = 0.0) -> None:
        """Record the started tasks so far and the tasks that wait now.

        under_way: number of messages that may be in neither count.
        """
        if self._came and at <= self._came[-1][0]:
            return
        came = started + waiting + self._gone
        before = self._came[-1][1] if self._came else came
        if came >= before:
            self._fell_at = None
        else:
            self._fell_at = at if self._fell_at is None else self._fell_at
            usual = (self.per_second or 0.0) * FALL_SECONDS
            noise = 1 + under_way + usual + DEVIATIONS * math.sqrt(usual)
            if before - came > noise or at - self._fell_at >= FALL_SECONDS:  # they disappeared: they aren't in flight
                self._gone += before - came
                came, self._fell_at = before, None
        self._came.append((at, max(before, came)))
        self._waiting = waiting
        self._notice_change(at)

    @property
    def per_second(self) -> float | None:
        """Return the arrival rate, or None before two observations."""
        if len(self._came) < 2:
            return None
        now, came = self._came[-1]
        for at, before in reversed(self._came):
            span, growth = now - at, came - before
            if at <= self._since or span >= MAX_SECONDS or (growth >= ENOUGH and span >= MIN_SECONDS):
                break
        return growth / span

    @property
    def oldest_seconds(self) -> float:
        """Return how long the first task has waited, as far back as is recorded; 0 if none waits."""
        if self._waiting <= 0 or not self._came:
            return 0.0
        now, came = self._came[-1]
        return now - self._find_time(came - self._waiting)

    def _notice_change(self, now: float) -> None:
        for seconds in SHORT_SECONDS:
            usual, (_, came) = self.per_second, self._came[-1]
            last = (arrival for arrival in reversed(self._came) if now - arrival[0] >= seconds)
            at, before = next(last, self._came[0])
            span, growth = now - at, came - before
            if usual is None or span < seconds or now - span < self._since:
                return
            expected = usual * span
            if abs(growth - expected) > 1 + DEVIATIONS * math.sqrt(expected):
                self._since = now - span
                return

    def _find_time(self, came: float) -> float:
        """Return when `came` tasks had arrived, interpolated between the two surrounding observations."""
        later = self._came[-1]
        for earlier in reversed(self._came):
            if earlier[1] <= came:
                rise = later[1] - earlier[1]
                share = (came - earlier[1]) / rise if rise > 0 else 0.0
                return earlier[0] + share * (later[0] - earlier[0])
            later = earlier
        return later[0]


@dataclass(frozen=True)
class PoolDemand:
    """The demand of one pool: its share of the arrivals, and the waiting time of the first waiting task."""

    per_second: float | None
    oldest_seconds: float


class ConsumerSet:
    """The workers that take from the same queues, as one set: their arrival rate and waiting time.

    Chance decides which of them takes a message, and the division of waiting tasks among them changes with their
    processes. So arrivals are counted for all of them together, from whole lengths of their queues, by the changes
    since the previous observation:

        came += started since, by workers that are still there
              + growth of each queue, times these workers' share of the processes that take from it
              + growth of the tasks that the workers have taken and not started

    So a worker that comes or goes does not change the load. If other workers, which also take from other queues, share
    a queue, the shares are proportional to processes. The rate is divided by processes, too.
    """

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
    processes = sum(pool.processes for pool in of)
    return sum(pool.processes for pool in some) / processes if processes else len(some) / len(of)


@dataclass(frozen=True, kw_only=True)
class PoolMeasures:
    """The current measures of one pool.

    waiting: tasks in front of the pool, in the broker and in the worker; oldest: how long the first task has waited,
    among all workers of the same queues. None: unknown.
    """

    pool: WorkerPool
    waiting: float = 0.0
    busy: int | None = None
    oldest_seconds: float = 0.0
    wait_seconds: float | None = None
    arrivals_per_second: float | None = None
    begun_per_second: float | None = None
    run_seconds: tuple[float, ...] = ()

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
            f"Paths not shown: {links - MAX_LINKS:,}, because at most {MAX_LINKS:,} can be shown. Their workers are "
            "still observed."
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


def _build_operator(measures: PoolMeasures, most: int) -> MeasuredOperator:
    pool = measures.pool
    task = _compute_task_measures(measures)
    return MeasuredOperator(
        pool.worker,
        "operator",
        pool.processes,
        1,
        max(most, pool.processes),
        pool.fixed,
        waiting=measures.waiting if task else None,
        tasks=(task,) * _count_measure_rows(pool) if task else (),
    )


def _compute_task_measures(measures: PoolMeasures) -> Mapping[str, float | None]:
    rate, processes = measures.arrivals_per_second, measures.pool.processes
    if rate is None or not processes:
        return {}
    begun = (measures.begun_per_second or 0.0) * WINDOW_SECONDS / _count_measure_rows(measures.pool)
    return {
        "latency_seconds": 0.0,
        "service_seconds": measures.service_seconds,
        "service_variance": variance(measures.run_seconds) if len(measures.run_seconds) > 1 else None,
        "arrival_interval_seconds": processes / rate if rate else None,
        "utilisation": min(1.0, measures.busy / processes) if measures.busy is not None else None,
        "inputs": rate * WINDOW_SECONDS / _count_measure_rows(measures.pool),
        "executions": begun,
        "outputs": begun,
    }


def _count_measure_rows(pool: WorkerPool) -> int:
    """Return the number of rows of measures: 1,000 green threads have 100 rows, with the sums of all."""
    return min(pool.processes, MAX_ROWS)
