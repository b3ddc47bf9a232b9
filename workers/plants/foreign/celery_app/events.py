"""The events of a Celery app: received by a thread, and kept as the state of its workers and last tasks.

A worker sends a heartbeat every two seconds. It sends task events only if it was started with -E, or was asked to.
Times between events of one worker are from its own clock.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from celery import Celery

from common.errors import describe_connection_error
from workers.documents.plants import PoolSamples
from workers.plants.foreign.celery_app.broker import FAILURES
from workers.plants.foreign.celery_app.task_updates import HistoryFeed
from workers.plants.foreign.celery_app.transport import count_of, parse_name, parse_seconds, parse_text
from workers.plants.foreign.redaction import SHOWN, format_arguments, redact
from workers.pool.departures import BEGAN, DONE, ENDED, MAX_PENDING, Departures, WorkerNote

STUCK_SECONDS = 30.0
CLOCK_SECONDS = 10.0  # A clock that jumps further than this was set.
DRIFT = 0.01  # of a clock that runs slower than the local one, or was set back by less; seconds per second
SILENT_SECONDS = 20.0
BEAT_SECONDS = 6.0  # three heartbeats
SAMPLES, FEW = 200, 20
SAMPLE_SECONDS = 120.0
MAX_TASKS, SHOWN_TASKS, MAX_ERRORS = 20_000, 200, 50
# Beyond this number the longest silent workers are forgotten: worker names come and go with their hosts.
MAX_WORKERS = 500
WAITS, RUNS, OUTCOMES = "waiting", "running", ("succeeded", "failed", "retried", "revoked", "rejected")
MAX_TRACEBACK = 4_000
BEATS = ("heartbeat", "online")
SENT = "task-sent"  # sent by the producer, not by a worker
WAKE_SECONDS, AGAIN_SECONDS = 1.0, 2.0
# By this time each worker has sent a heartbeat.
HEARD_SECONDS = 5.0
NOT_YET = "none received yet"
logger = logging.getLogger(__name__)


class PoolCompletions:
    """Times between completions in the pool of one worker (`workers.pool.departures`).

    An event does not say which process ran a task. That isn't needed: each task that starts takes the lowest free
    place, and leaves it when it ends. Times `at` are those of the worker's clock, and `now` of the local monotonic
    clock. The offset between them is taken from the event with the shortest delay. If the worker's clock is set, or the
    worker is replaced, counting restarts.

    Events may be lost. A lost start event has no consequence. A lost end event would keep its place taken forever, so
    if more places than processes are taken for STUCK_SECONDS, the oldest places are freed.
    """

    def __init__(self) -> None:
        self._count: tuple[Departures, float] | None = None  # and its start, in seconds since 1970
        self._places: dict[str, int] = {}  # task → its place, oldest first
        self._most_places = 0
        self._behind_seconds = math.inf  # how far the worker's clock is behind the local one
        self._heard_at = 0.0
        self._crowded_at: float | None = None
        self._unsettled = 0  # notes since the last observation

    def record_start(self, task: str, at: float | None, now: float) -> None:
        if self._count is None or at is None or not self._keeps_time(at, now):
            return
        taken = set(self._places.values())
        place = next(index for index in range(len(taken) + 1) if index not in taken)
        self._places[task] = place
        self._most_places = max(self._most_places, place + 1)
        self._add(place, WorkerNote(at, place, BEGAN))

    def record_end(self, task: str, at: float | None, now: float, name: str = "") -> None:
        """Record that a started task of this name ended, whatever its outcome."""
        place = self._places.pop(task, None)
        if self._count is None or place is None or at is None or not self._keeps_time(at, now):
            return
        self._add(place, WorkerNote(at, place, DONE, 1, name), WorkerNote(at, place, ENDED))

    def begin_anew(self) -> None:
        """Discard all counts."""
        self._count, self._places = None, {}
        self._behind_seconds, self._crowded_at, self._unsettled = math.inf, None, 0

    def observe(self, size: int, now: float, clock: float) -> PoolSamples | None:
        """Return the completions so far of a pool with `size` processes, or None if nothing is counted yet.

        clock: seconds since 1970.
        """
        if self._count is None or math.isinf(self._behind_seconds):
            self._count = self._count or (Departures(size, -math.inf), clock)
            return None
        at = now - self._behind_seconds
        departures, since = self._count
        departures.resize(size, at)
        self._free_stuck(size, now)
        self._unsettled = 0
        departures.settle(at, range(self._most_places))
        return PoolSamples(since=since, **departures.to_json())

    def _add(self, place: int, *notes: WorkerNote) -> None:
        """Add notes at once: every event is reported when it happens, so a running task delays nothing."""
        self._unsettled += len(notes)
        if self._unsettled > MAX_PENDING:  # no observer reads it
            self.begin_anew()
        elif self._count is not None:
            self._count[0].add(notes, math.inf, place)

    def _keeps_time(self, at: float, now: float) -> bool:
        behind = now - at
        if not math.isinf(self._behind_seconds) and abs(behind - self._behind_seconds) > CLOCK_SECONDS:
            self.begin_anew()
            return False
        drifted = self._behind_seconds + DRIFT * max(0.0, now - self._heard_at)
        self._behind_seconds, self._heard_at = min(drifted, behind), now
        return True

    def _free_stuck(self, size: int, now: float) -> None:
        if len(self._places) <= size:
            self._crowded_at = None
            return
        self._crowded_at = now if self._crowded_at is None else self._crowded_at
        if now - self._crowded_at < STUCK_SECONDS:
            return
        for task in list(self._places)[: len(self._places) - size]:
            place, at = self._places.pop(task), now - self._behind_seconds
            self._add(place, WorkerNote(at, place, ENDED))
        self._crowded_at = None


@dataclass(kw_only=True)
class SeenTask:
    """A task as reported by events.

    `received` and `started` are from the worker's clock; `at` is from the local one.
    """

    id: str
    name: str
    worker: str
    state: str
    at: float
    arguments: str = ""
    received: float | None = None
    started: float | None = None
    runtime_seconds: float | None = None
    retries: int = 0
    error: str = ""
    traceback: str = ""
    is_later: bool = False  # to be started at a later time


@dataclass(frozen=True)
class TaskTime:
    """The end time of a task, by the local clock, and its run time."""

    at: float
    seconds: float


@dataclass
class PoolEvents:
    """The events of one worker. Counters (started and so on) begin when the worker is first heard of.

    beat_at: last heartbeat; None: it sends none (`--without-heartbeat`). online_at: last online event;
    task_at: last task event.
    """

    heard_at: float
    beat_at: float | None = None
    pid: int | None = None
    online_at: float | None = None
    task_at: float | None = None
    received: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    revoked: int = 0
    sends_tasks: bool = False
    waiting: set[str] = field(default_factory=set)
    running: dict[str, float] = field(default_factory=dict)  # id → start time, by the local clock
    runs: deque[TaskTime] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    waits: deque[TaskTime] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    completions: PoolCompletions = field(default_factory=PoolCompletions)


class TaskEvents:
    """The state of one app; `apply` takes each event, in order of arrival."""

    def __init__(self, shown: str = SHOWN) -> None:
        self._shown = shown
        self.pools: dict[str, PoolEvents] = {}
        self._tasks: dict[str, SeenTask] = {}  # oldest first
        self._errors: deque[SeenTask] = deque()  # copies at the time of the failure: a retry continues
        self.left: set[str] = set()  # workers that sent an offline event, and nothing since

    def apply(self, event: Mapping[str, object], now: float) -> None:
        """Apply an event as received; an invalid event is ignored."""
        kind, worker = parse_name(event.get("type")), parse_name(event.get("hostname"))
        if not kind or not worker or kind == SENT:
            return
        if worker not in self.pools and len(self.pools) >= MAX_WORKERS:
            del self.pools[min(self.pools, key=lambda name: self.pools[name].heard_at)]
        pool = self.pools.setdefault(worker, PoolEvents(now))
        pool.heard_at = now
        self.left.discard(worker)
        group, _, what = kind.partition("-")
        if group == "worker":
            self._apply_worker_event(pool, worker, what, event)
        elif group == "task" and parse_name(event.get("uuid")):
            pool.sends_tasks, pool.task_at = True, now
            self._apply_task_event(pool, worker, what, event, now)

    def list_beating_workers(self, now: float) -> list[str]:
        """Return the workers that sent a heartbeat recently.

        Task events may arrive from other workers, too, but only if they have tasks, so they don't show how many workers
        there are.
        """
        beats = {name: pool.beat_at for name, pool in self.pools.items() if pool.beat_at is not None}
        return sorted(name for name, at in beats.items() if now - at <= SILENT_SECONDS)

    def list_punctual_workers(self, now: float) -> set[str]:
        """Return the workers that have not missed their last heartbeats."""
        beats = {name: pool.beat_at for name, pool in self.pools.items() if pool.beat_at is not None}
        return {name for name, at in beats.items() if now - at <= BEAT_SECONDS}

    def get_latest(self, most: int = SHOWN_TASKS) -> list[SeenTask]:
        """Return the last tasks, newest first."""
        return list(islice(reversed(self._tasks.values()), most))

    def list_errors(self) -> list[SeenTask]:
        """Return the last tasks that failed, newest first."""
        return list(reversed(self._errors))

    def count_waiting(self, worker: str, limited: Collection[str] = ()) -> int:
        """Return the number of tasks that a worker has taken and not started.

        Tasks with a rate limit are left out: they wait for their time, not for a process.
        """
        pool = self.pools.get(worker)
        if pool is None or not limited:
            return len(pool.waiting) if pool else 0
        tasks = (self._tasks.get(waiting_task) for waiting_task in pool.waiting)
        return sum(task is None or task.name not in limited for task in tasks)

    def begin_anew(self, worker: str) -> None:
        """Reset a worker: its taken and running tasks are unknown, and so is whether task events arrive."""
        if (pool := self.pools.get(worker)) is not None:
            pool.waiting.clear()
            pool.running.clear()
            pool.completions.begin_anew()
            pool.sends_tasks = False

    def _apply_worker_event(self, pool: PoolEvents, worker: str, what: str, event: Mapping[str, object]) -> None:
        """Apply a worker event. After a restart of the worker, no task of its former life waits or runs."""
        pid = event.get("pid")
        if what == "offline" or (pool.pid is not None and pid is not None and pid != pool.pid):
            self.begin_anew(worker)
        if what == "online":  # it restarted, or its broker was away
            pool.online_at = pool.heard_at
            if count_of(event.get("active")):  # its tasks keep running, and those that it had taken are delivered again
                pool.waiting.clear()
            else:
                self.begin_anew(worker)
        if what == "offline":
            self.pools.pop(worker, None)
            self.left = {worker, *islice(self.left, MAX_WORKERS - 1)}
        elif what in BEATS:
            pool.beat_at = pool.heard_at
        pool.pid = pid if isinstance(pid, int) else pool.pid

    def _apply_task_event(
        self, pool: PoolEvents, worker: str, what: str, event: Mapping[str, object], now: float
    ) -> None:
        task = self._find_or_create_task(worker, event, now)
        at = parse_seconds(event.get("timestamp"))
        if what == "received":
            pool.received += 1
            task.received, task.state = at, WAITS
            task.is_later = bool(event.get("eta"))
            if not task.is_later:
                pool.waiting.add(task.id)
        elif what == "started":
            pool.started += 1
            pool.waiting.discard(task.id)
            pool.running[task.id] = now
            if len(pool.running) > MAX_TASKS:  # their end events were lost
                del pool.running[next(iter(pool.running))]
            task.started, task.state = at, RUNS
            pool.completions.record_start(task.id, at, now)
            if at is not None and task.received is not None and not task.is_later:
                pool.waits.append(TaskTime(now, max(0.0, at - task.received)))
        elif what in OUTCOMES:
            self._record_ended(pool, task, what, event, at, now)
        task.at = now

    def _record_ended(
        self, pool: PoolEvents, task: SeenTask, what: str, event: Mapping[str, object], at: float | None, now: float
    ) -> None:
        pool.waiting.discard(task.id)
        pool.completions.record_end(task.id, at, now, task.name)
        if what in ("succeeded", "failed", "revoked"):
            setattr(pool, what, getattr(pool, what) + 1)
        elif what == "retried":
            pool.retried += 1
        seconds = parse_seconds(event.get("runtime"))
        if seconds is None and at is not None and task.started is not None:
            seconds = max(0.0, at - task.started)
        if pool.running.pop(task.id, None) is not None and seconds is not None:
            pool.runs.append(TaskTime(now, seconds))
        task.state, task.runtime_seconds = what, seconds
        task.error = redact(parse_text(event.get("exception")))
        task.traceback = redact(parse_text(event.get("traceback")), MAX_TRACEBACK)
        if task.error:
            self._errors.append(replace(task))
            if len(self._errors) > MAX_ERRORS:
                self._errors.popleft()
        task.traceback = ""  # thousands of tracebacks would take megabytes

    def _find_or_create_task(self, worker: str, event: Mapping[str, object], now: float) -> SeenTask:
        """Return the task, which becomes the newest; the oldest tasks are forgotten."""
        task_id = parse_name(event["uuid"])
        task = self._tasks.pop(task_id, None)
        if task is None:
            task = SeenTask(id=task_id, name="", worker=worker, state=WAITS, at=now)
            if len(self._tasks) >= MAX_TASKS:
                self._forget(next(iter(self._tasks)))
        self._tasks[task_id] = task
        task.worker = worker
        task.name = parse_name(event.get("name")) or task.name
        task.retries = count_of(event.get("retries")) or task.retries
        told = format_arguments(parse_text(event.get("args")), parse_text(event.get("kwargs")), self._shown)
        task.arguments = told or task.arguments
        return task

    def _forget(self, task_id: str) -> None:
        """Forget the oldest task: it can't have waited this long, so an event was lost."""
        task = self._tasks.pop(task_id)
        if (pool := self.pools.get(task.worker)) is not None:
            pool.waiting.discard(task_id)


def select_recent_seconds(samples: deque[TaskTime], now: float) -> list[float]:
    """Return the samples of the last SAMPLE_SECONDS, or the last FEW if those are fewer."""
    seconds = [sample.seconds for sample in samples if now - sample.at <= SAMPLE_SECONDS]
    return seconds if len(seconds) >= FEW else [sample.seconds for sample in list(samples)[-FEW:]]


class EventListener:
    """A thread that applies received events to `events`, also after the broker was away; a reader takes `lock`.

    history: stores every task. error: why no events arrive. gaps: how often events may have been missed: tasks that
    workers had taken or were running may have ended since.
    """

    def __init__(
        self,
        app: Celery,
        events: TaskEvents,
        monotonic: Callable[[], float] = time.monotonic,
        history: HistoryFeed | None = None,
    ) -> None:
        self.lock, self.events, self.history = threading.Lock(), events, history
        self.error: str | None = NOT_YET
        self.gaps = 0
        self._app, self._monotonic = app, monotonic
        self._since: float | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread on the first call only."""
        if self._thread is None:
            if self.history is not None:
                self.history.start()
            self._thread = threading.Thread(target=self._listen, name="celery events", daemon=True)
            self._thread.start()

    def count_workers(self) -> int | None:
        """Return the minimum number of workers, by their heartbeats, or None while it is unknown."""
        now = self._monotonic()
        if self.error is not None or self._since is None or now - self._since < HEARD_SECONDS:
            return None
        with self.lock:
            return len(self.events.list_beating_workers(now)) or None

    def close(self) -> None:
        """Stop the thread; it ends within WAKE_SECONDS."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(2 * WAKE_SECONDS)
            if self.history is not None:
                self.history.close()

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                self._receive()
            except FAILURES as error:
                self.error = f"can't be received ({describe_connection_error(error)})"
            except Exception as error:  # No other exception of a driver may end the listener.
                logger.exception("Receiving Celery events failed.")
                self.error = f"can't be received ({type(error).__name__})"
            self._ended.wait(AGAIN_SECONDS)

    def _receive(self) -> None:
        """Receive events until the end. Every start but the first follows a gap."""

        def apply(event: dict[str, object]) -> None:
            with self.lock:
                self.events.apply(event, self._monotonic())
            if self.history is not None:
                self.history.receive(event)

        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers={"*": apply})
            with receiver.consumer_context(wakeup=True) as (reading, _, _):  # by a connection of its own
                with self.lock:
                    if self._since is not None:
                        self.gaps += 1
                        for worker in self.events.pools:
                            self.events.begin_anew(worker)
                    self.error, self._since = None, self._monotonic()
                if self.history is not None:
                    self.history.connect()
                while not self._ended.is_set():
                    with suppress(TimeoutError):
                        reading.drain_events(timeout=WAKE_SECONDS)
                    if self.history is not None:
                        self.history.touch()
