"""A Celery app whose workers are run by somebody else, with a plain `celery worker`.

It is observed through its broker, its remote control, and its events, and controlled through its remote control.
Nothing is changed in the app, except that workers which send no task events are asked to send them (option `events`).
They are asked to stop when Weir leaves, by this observer or a later one.

If remote control is switched off (`worker_enable_remote_control`), queues are observed and nothing can be controlled.
Without task events there are no waits, arguments, and errors, and run times follow from Little's law.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from common.errors import BadInput
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.plants import GuardStatus, PlantSection, PlantStatus, PoolSamples, SetValue, UnservedQueue
from workers.plants.foreign.celery_app import measures, sections
from workers.plants.foreign.celery_app.broker import MAX_QUEUES, Broker, QueueLength
from workers.plants.foreign.celery_app.events import EventListener, PoolEvents
from workers.plants.foreign.celery_app.interventions import AppInterventions
from workers.plants.foreign.celery_app.leases import EVENTS, AppLeases, MemoryLeases
from workers.plants.foreign.celery_app.remote_control import ANSWER_SECONDS, UPTIME_SECONDS, RemoteControl, WorkerPool
from workers.plants.foreign.celery_app.sending import check_task, list_task_names
from workers.plants.foreign.celery_app.workers import EventRequests, MissedWorkers, UnservedQueues
from workers.plants.foreign.kind import MAX_POOLS, Adapter, PlantAddress, RestoredValue, TaskRequest
from workers.plants.foreign.leases import TasksBefore
from workers.plants.foreign.stored_notes import ExpiringNotes, StoredNotes
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

# Maximum of a pool. Loops and people have to choose much lower values themselves.
MAX_PROCESSES = 100
USUAL_QUEUE = "celery"
logger = logging.getLogger(__name__)
ASK, LISTEN = "ask", "listen"
# A worker that is late once, on a busy host, is assumed to be unchanged.
LATE_SECONDS = 8.0
# Interval at which the full timeout is waited for, so that workers without heartbeats can answer, too.
ALL_SECONDS = 30.0
# Idle processes end at once; if too few are idle, they are requested again within this time.
SHRINK_SECONDS, AGAIN_SECONDS = 0.5, 0.15
# Celery executes `pool_grow` only at its next pool maintenance, every five seconds.
SETTLES_SECONDS = 7.0
# After this time, a pool that has its former size was restored by somebody else. An order takes effect much earlier.
UNDONE_SECONDS = 30.0
# A worker that does not resume a queue is asked again after this time.
RESUME_SECONDS = 30.0
SAME_SECONDS = 100.0  # since two workers of one name last answered: three times ALL_SECONDS
SAME_NAME = "two workers have this name, and a command would reach both; give each worker its own name (-n)"


class CeleryPlant(Adapter):
    """One app: everything that uses one database of Redis, or one virtual host of RabbitMQ."""

    observe_seconds = 1.0
    anew_seconds = 30.0  # a restarted broker may have another address
    tasks_before: TasksBefore

    def __init__(
        self,
        address: PlantAddress,
        control: RemoteControl,
        broker: Broker,
        listener: EventListener,
        *,
        send: Callable[[TaskRequest], None],
        orders: ExpiringNotes | None = None,
        resumed: StoredNotes | None = None,
        asked: StoredNotes | None = None,
        known: StoredNotes | None = None,
        paused: Callable[[], Collection[str]] = list,
        leases: AppLeases | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Set up the plant.

        orders: worker → {pid, processes}, the number that was last ordered; until it is reached, the pool looks as if
        it had no order, and a process that orders again must count from the ordered size. resumed: as in
        `AppInterventions`; asked: as in `EventRequests`; known: as in `MissedWorkers`. None keeps them in this process
        alone. paused: returns the queues that people have paused in Weir. leases: of what Weir has set at the app.
        send: sends a task to the broker, as `sending.send_task` does.
        """
        self._resumed = resumed or StoredNotes()
        self.control, self._interventions = control, AppInterventions(control, clock, self._resumed)
        self._name, self._address, self._paused, self._send = address.name, address, paused, send
        self._broker, self._listener = broker, listener
        self._orders = orders or ExpiringNotes(monotonic=monotonic)
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep
        self._asks = address.get_option("events", ASK) == ASK
        self._requests = EventRequests(control, listener, asked or StoredNotes(), clock, monotonic)
        self._missed = MissedWorkers(known or StoredNotes())
        self._leases = leases or AppLeases(MemoryLeases(), TasksBefore(clock), StoredNotes(), tuple, clock)
        self.tasks_before = self._leases.sizes
        self._guard: GuardStatus | None = None
        self._history: dict[tuple[str, int | None], measures.PoolHistory] = {}
        self._consumers, self._unserved = measures.AllConsumers(), UnservedQueues()
        self._unserved_now: dict[str, UnservedQueue] = {}
        self._answered: dict[str, tuple[float, WorkerPool]] = {}  # worker → (time of its answer, pool)
        self._lives: dict[str, float] = {}  # worker → start time, in seconds since 1970
        self._same_at: dict[str, float] = {}  # name → when two workers of this name last answered
        self._known_queues: list[str] = []
        self._resumed_at: dict[tuple[str, str], float] = {}  # (worker, queue) → when it was asked to resume the queue
        self._all_at = -math.inf  # when all workers were asked
        self._fresh: set[str] = set()  # workers that answered the last request
        self._measured: list[measures.PoolMeasures] = []
        self._lengths: dict[str, QueueLength] = {}
        self._unacknowledged: int | None = None
        self._completions: dict[str, PoolSamples] = {}
        self._limits: Mapping[str, Mapping[str, str]] = {}  # worker → name of a task → its rate limit
        self._left_queues = 0
        self._undone_pools: set[str] = set()  # pools that had their former size at the last renewal

    def get_topology(self) -> MeasuredTopology:
        """Return the current queues and pools. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        self._listener.start()
        pools = self._list_answering()
        if self._listener.history is not None:
            self._listener.history.queues = {pool.worker: pool.queues for pool in pools}
        if self._asks:
            self._requests.ask(pools)
        self._resume_again(pools)
        self._lengths = self._broker.read_queue_lengths(self._list_queues(pools))
        self._unacknowledged = self._broker.count_unacknowledged()
        self._unserved_now = self._find_unserved_queues(pools)
        at, ready, held = (
            self._monotonic(),
            measures.split_ready_messages(pools, self._lengths),
            self._list_held_tasks(pools),
        )
        waiting = {worker: count for worker, (count, _) in held.items()}
        demands = self._consumers.observe(at, pools, self._fresh, self._lengths, waiting)
        before = {measured.pool.worker: measured for measured in self._measured}
        # A late worker keeps its last measures: zero started tasks would be a guess.
        self._measured = [
            self._measure(pool, at, ready[pool.worker], *held[pool.worker], demands[pool.worker])
            if pool.worker in self._fresh
            else before.get(pool.worker, measures.PoolMeasures(pool=pool))
            for pool in pools
        ]
        self._completions = self._measure_completions(pools, at)
        living = {pool.worker for pool in pools}
        self._history = {key: history for key, history in self._history.items() if key[0] in living}
        self._requests.retain(living)
        return measures.build_topology(self._name, self._clock(), self._measured, self._lengths, MAX_PROCESSES)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set the processes of pools, one after the other.

        If one fails, the orders before it are reverted as far as possible. Raise as `ElasticPlant` says. If a pool is
        to shrink, idle processes end.
        """
        if not tasks:
            return
        pools = self.control.request_pools(workers=list(tasks))
        if set(tasks) - set(pools):  # all workers are asked only then, which takes longer
            pools = self.control.list_pools()
        measured = [measures.PoolMeasures(pool=pool) for pool in pools.values()]
        queues = dict.fromkeys(self._list_queues(pools.values()), QueueLength(0))
        measures.build_topology(self._name, 0.0, measured, queues, MAX_PROCESSES).check_tasks(tasks)
        done: list[tuple[WorkerPool, int]] = []  # with the size that was ordered before
        for worker, count in tasks.items():
            before = self._get_ordered_size(pools[worker])
            try:
                self._resize(pools[worker], count)
            except (PlantUnavailable, InvalidPlantResponse) as error:
                raise type(error)(f"{error}{self._call_back(done)}") from error
            if before != count:
                done.append((pools[worker], before))

    def list_sections(self) -> Sequence[PlantSection]:
        """Return the workers, queues, kinds of tasks, last tasks, and errors."""
        workers = [pool.pool.worker for pool in self._measured]
        self._limits, missing = self.control.list_rate_limits(workers), self.list_missing()
        with self._listener.lock:
            return sections.build_sections(
                self._measured, self._lengths, self._unacknowledged, self._listener.events, self._limits, missing
            )

    def get_details(self) -> PlantStatus:
        """Return the details.

        lives: the start time of each worker, from the uptime that it reports. completions: of the first MAX_POOLS pools
        that can be set and that send task events. missed_workers: those that are not merely late.
        """
        missed = self._missed.missed_seconds
        return PlantStatus(
            lives=self._lives,
            completions=self._completions,
            missed_workers={name: round(seconds, 1) for name, seconds in missed.items() if seconds > LATE_SECONDS},
            unserved_queues=self._unserved_now,
            queue_names=sorted(self._known_queues),
            task_names=list_task_names(self._limits),
        )

    def list_workers_without_events(self) -> list[str]:
        """Return the workers of which no task events arrive."""
        workers = [pool.pool.worker for pool in self._measured]
        return [worker for worker in workers if not self._requests.sends(worker)]

    def list_missing(self, without_events: Sequence[str] | None = None) -> list[str]:
        """Return a message for each thing that can't be observed or controlled.

        without_events: workers to report as sending no task events; None: all of which none arrive.
        """
        workers = [pool.pool.worker for pool in self._measured]
        without = self.list_workers_without_events() if without_events is None else without_events
        with self._listener.lock:
            beating = self._listener.events.list_punctual_workers(self._monotonic())
        gone = self._missed.describe(beating, LATE_SECONDS, sections.MAX_NAMED)
        said = sections.describe_missing(workers, without, self._listener.error, self._asks, self._left_queues, gone)
        said += [*self._broker.list_missing(), *measures.describe_left_out(self._measured, self._lengths)]
        if (left := sum(pool.pool.fixed is None for pool in self._measured) - MAX_POOLS) > 0:
            said.append(
                f"Pools without a concurrency loop: {left:,}. Only the first {MAX_POOLS}, by name, have a loop."
            )
        return said

    def read_before(self, kind: str, subject: str, value: str, earlier: str = "") -> str:
        return self._interventions.read_before(kind, subject, value, earlier)

    def intervene(self, kind: str, subject: str, value: str) -> None:
        """Carry out an intervention. The lease is written first: it ends what is done even if this process dies."""
        self._leases.renew()
        self._interventions.intervene(kind, subject, value)

    def undo(self, kind: str, subject: str, before: str) -> None:
        self._interventions.undo(kind, subject, before)

    def check_restored(self, kind: str, subject: str, before: str) -> str:
        return self._interventions.check_restored(kind, subject, before)

    def renew_leases(self) -> Sequence[RestoredValue]:
        """Renew the lease. Workers that no longer send events are asked again.

        A guard may still be resizing a pool when Weir returns, and no longer reports it then. So the size counts.
        """
        self.tasks_before.forget_restarted(self._lives)
        undone = self._forget_undone_pools()
        restored = self._leases.renew()
        if any(value.kind == EVENTS for value in restored):
            self._requests.ask_again()
        return [*restored, *(RestoredValue(operator=worker) for worker in undone)]

    def _forget_undone_pools(self) -> set[str]:
        """Forget pools that had their former size at the last renewal, too: a process may have crashed at one."""
        sizes = {worker: self._answered[worker][1].processes for worker in self._fresh if worker in self._answered}
        undone = set(self.tasks_before.list_undone(sizes, self._clock() - UNDONE_SECONDS))
        confirmed, self._undone_pools = undone & self._undone_pools, undone
        self.tasks_before.forget(confirmed)
        return confirmed

    def list_set_values(self) -> Sequence[SetValue]:
        values = self._leases.list_set_values()
        self._guard = self._leases.store.read_guard()
        return values

    def read_tasks(self, operators: Sequence[str]) -> Mapping[str, int]:
        pools = self.control.request_pools(workers=list(operators))
        return {worker: pool.processes for worker, pool in pools.items()}

    def end_observation(self) -> Sequence[tuple[str, str]]:
        """Switch off the task events that Weir has enabled, and end the lease."""
        workers = self._requests.stop_all()
        self._leases.renew()
        return [(f"task events of {worker}", "off") for worker in workers]

    def get_guard(self) -> GuardStatus | None:
        return self._guard

    def check_task(self, request: TaskRequest) -> None:
        pools = self.control.list_pools()
        queues, registered = self._list_queues(pools.values()), self.control.list_rate_limits(list(pools))
        check_task(request, pools.values(), queues, registered)
        if request.queue not in self._broker.read_queue_lengths([request.queue]):
            raise BadInput("queue", f"{request.queue} does not exist at the broker.")

    def revoke_tasks(self, task_ids: Sequence[str], terminate: bool) -> None:
        self._interventions.revoke(task_ids, terminate)

    def start_task(self, request: TaskRequest) -> None:
        self._send(request)

    def close(self) -> None:
        """Ask workers to stop sending events, then close: a caller waits only for this long."""
        self._requests.stop()
        self._listener.close()
        self.control.close()
        self._broker.close()

    def _list_answering(self) -> list[WorkerPool]:
        """Return the pools that answer, and for LATE_SECONDS those that answered before.

        Two workers that were started with the same name (`-n`), on two hosts or in two containers, are one for remote
        control: an order reaches both, and either one answers. So they can't be set.
        """
        now = self._monotonic()
        beating = self._listener.count_workers()
        expected = None if beating is None else max(beating, len(self._answered))
        if expected is None or now - self._all_at >= ALL_SECONDS:
            self._all_at, expected = now, None
        pools = self.control.request_pools(expected)
        self._fresh = set(pools)
        self._requests.observe(now, pools)
        self._answered |= {worker: (now, pool) for worker, pool in pools.items()}
        self._answered = {
            worker: answer for worker, answer in self._answered.items() if now - answer[0] <= LATE_SECONDS
        }
        starts = {worker: self._compute_start_time(pool) for worker, pool in pools.items()}
        lives = {worker: self._lives.get(worker) for worker in self._answered} | starts
        self._lives = {worker: at for worker, at in lives.items() if at is not None}
        with self._listener.lock:
            left = set(self._listener.events.left)
        self._missed.observe(self._clock(), pools.values(), left)
        self._same_at |= dict.fromkeys(self.control.twice, now)
        self._same_at = {worker: at for worker, at in self._same_at.items() if now - at < SAME_SECONDS}
        return [
            replace(pool, fixed=SAME_NAME) if worker in self._same_at else pool
            for worker, (_, pool) in sorted(self._answered.items())
        ]

    def _find_unserved_queues(self, pools: Sequence[WorkerPool]) -> dict[str, UnservedQueue]:
        now, answering = self._monotonic(), {pool.worker for pool in pools}
        with self._listener.lock:
            is_sure = set(self._listener.events.list_punctual_workers(now)) <= answering
        served = {queue for pool in pools for queue in pool.queues}
        return self._unserved.observe(now, self._lengths, served, self._paused(), is_sure)

    def _compute_start_time(self, pool: WorkerPool) -> float | None:
        """Return the earliest possible start time of the worker.

        It stays the same for the whole life of the worker, unless a clock is set.
        """
        if pool.uptime_seconds is None:
            return None
        at, before = self._clock() - pool.uptime_seconds - UPTIME_SECONDS, self._lives.get(pool.worker)
        return at if before is None or abs(at - before) > UPTIME_SECONDS else before

    def _resume_again(self, pools: Iterable[WorkerPool]) -> None:
        """Ask workers again that no longer take from a queue whose pause was undone.

        Before Celery 5.7, a worker that was asked to leave a queue (`cancel_consumer`) and to resume it
        (`add_consumer`) forgets the second order when its broker was away (celery#7733).

        The resumed queues are read after the pools. A pause removes its queue from them first, so no pause is undone
        here.
        """
        now, clock = self._monotonic(), self._clock()
        self._resumed_at = {key: at for key, at in self._resumed_at.items() if now - at < RESUME_SECONDS}
        for queue, lives in self._resumed.load_all().items():
            idle = [
                pool.worker
                for pool in pools
                if pool.worker in self._fresh and pool.pid is not None and queue not in pool.queues
                if pool.matches_recorded_life(lives.get(pool.worker), clock)
                if (pool.worker, queue) not in self._resumed_at
            ]
            self._resumed_at |= {(worker, queue): now for worker in idle}
            for worker, error in self.control.order_all("add_consumer", idle, queue=queue).items():
                logger.warning("%s did not resume queue %s: %s", worker, queue, error)

    def _list_queues(self, pools: Iterable[WorkerPool]) -> list[str]:
        """Return the configured queues, and those that workers take from or took from before a pause.

        They are at most MAX_QUEUES.
        """
        named = (part.strip() for part in self._address.get_option("queues").split(","))
        taken = dict.fromkeys(queue for pool in pools for queue in pool.queues)
        names = list(dict.fromkeys([*filter(None, named), *taken, *self._known_queues, *self._missed.list_queues()]))
        if not names:  # neither a worker nor an option names it: not kept, because this queue may not exist
            return [USUAL_QUEUE]
        self._left_queues = max(0, len(names) - MAX_QUEUES)
        self._known_queues = names[:MAX_QUEUES]
        return self._known_queues

    def _measure_completions(self, pools: Iterable[WorkerPool], now: float) -> dict[str, PoolSamples]:
        """Return the completions; a late worker keeps its last ones."""
        samples_by_worker: dict[str, PoolSamples] = {}
        with self._listener.lock:
            for pool in [pool for pool in pools if pool.fixed is None][:MAX_POOLS]:
                samples, events = None, self._listener.events.pools.get(pool.worker)
                if pool.worker not in self._fresh:
                    samples = self._completions.get(pool.worker)
                elif events is not None and self._requests.sends(pool.worker):
                    samples = events.completions.observe(pool.processes, now, self._clock())
                if samples is not None:
                    samples_by_worker[pool.worker] = samples
        return samples_by_worker

    def _list_held_tasks(self, pools: Iterable[WorkerPool]) -> dict[str, tuple[int, int | None]]:
        """Return for each worker its taken tasks that wait for a process, and its running tasks.

        Tasks whose rate the worker limits don't wait for a process. Workers that send no events are asked, all at once.
        """
        fresh = [pool.worker for pool in pools if pool.worker in self._fresh]
        silent = [worker for worker in fresh if not self._requests.sends(worker)]
        taken, busy = self.control.list_reserved_tasks(silent), self.control.count_running_tasks(silent)
        held: dict[str, tuple[int, int | None]] = {}
        with self._listener.lock:
            for worker in fresh:
                limited = {name for name, limit in self._limits.get(worker, {}).items() if limit}
                if worker in silent:
                    held[worker] = sum(name not in limited for name in taken.get(worker, ())), busy.get(worker)
                else:
                    pool = self._listener.events.pools.get(worker)
                    waiting = self._listener.events.count_waiting(worker, limited)
                    held[worker] = waiting, len(pool.running) if pool else 0
        return held

    def _measure(
        self, pool: WorkerPool, at: float, ready: float, waiting: int, busy: int | None, demand: measures.PoolDemand
    ) -> measures.PoolMeasures:
        history = self._history.setdefault((pool.worker, pool.pid), measures.PoolHistory())
        if not self._requests.sends(pool.worker):
            return history.measure(pool, None, at, ready + waiting, busy, demand)
        with self._listener.lock:
            events = self._listener.events.pools.get(pool.worker) or PoolEvents(at)
            return history.measure(pool, events, at, ready + waiting, busy, demand)

    def _get_ordered_size(self, pool: WorkerPool) -> int:
        """Return the last ordered size while it may not have been reached; otherwise the current size."""
        order = self._orders.get(pool.worker)
        return int(order["processes"]) if order and order["pid"] == pool.pid else pool.processes

    def _call_back(self, done: Sequence[tuple[WorkerPool, int]]) -> str:
        """Revert these orders, and return the result as a sentence ("" if there are none).

        A pool that is to grow has to grow before it can shrink again.
        """
        left = []
        for pool, before in reversed(done):
            try:
                self._resize(pool, before)
            except (PlantUnavailable, InvalidPlantResponse):
                left.append(pool.worker)
            else:
                left += [pool.worker] if self._get_ordered_size(pool) != before else []
        if left:
            return f" Part of the change may be in effect: {', '.join(left)} could not be reverted."
        return " The changes to other workers were reverted." if done else ""

    def _resize(self, pool: WorkerPool, count: int) -> None:
        """Order processes. An order is recorded before it is sent: one whose answer is lost may have been executed.

        As many processes as are idle end, in one order: a second order, before they have ended, would choose the same
        processes. If too few are idle, some stay: a loop orders it again at its next tick, and a person's order is
        repeated meanwhile (`repeated_orders`).
        """
        now = self._get_ordered_size(pool)
        if count == now:
            return
        if self._leases.store.sends_orders:
            self._change_size(pool, now, count)
            return
        # Before the order: the lease ends it even if this process dies.
        worker = pool.worker
        self.tasks_before.remember({worker: now}, {worker: min(count, now)}, is_reached=False)
        self._leases.renew()
        self._change_size(pool, now, count)
        self.tasks_before.remember({worker: now}, {worker: self._get_ordered_size(pool)})
        self._leases.renew()

    def _change_size(self, pool: WorkerPool, now: int, count: int) -> None:
        if count > now:
            self._order_size(pool, now, count)
        if not count < now <= pool.processes:  # a pool that still grows has to finish growing first
            return
        until = self._monotonic() + SHRINK_SECONDS
        while True:
            busy = self.control.count_running_tasks([pool.worker]).get(pool.worker)
            if busy is None:
                raise PlantUnavailable(f"{self._name}: {pool.worker} did not respond within {ANSWER_SECONDS:g} s.")
            if (fewer := min(now - count, now - busy)) > 0:
                self._order_size(pool, now, now - fewer)
                now -= fewer
            if now <= count or self._monotonic() >= until:
                return
            self._sleep(AGAIN_SECONDS)

    def _order_size(self, pool: WorkerPool, now: int, processes: int) -> None:
        worker = pool.worker
        self._orders.put(worker, {"pid": pool.pid, "processes": processes}, SETTLES_SECONDS)
        method = "pool_grow" if processes > now else "pool_shrink"
        arguments = {"n": abs(processes - now)}
        if self._leases.store.sends_orders:
            self.tasks_before.remember({worker: now}, {worker: processes})
            self._leases.renew({"method": method, "arguments": arguments, "destination": [worker]})
        else:
            self.control.order(method, worker, **arguments)
