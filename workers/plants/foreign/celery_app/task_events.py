"""The state of an app from Celery's events: workers, tasks of each pool, and the last tasks.

A worker sends a heartbeat every two seconds. It sends task events only if it was started with -E, or was asked to.
Times between events of one worker are from its own clock.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from workers.plants.foreign.celery_app.completions import PoolCompletions
from workers.plants.foreign.celery_app.outside import count_of, parse_name, parse_seconds, parse_text
from workers.plants.foreign.redaction import SHOWN, format_arguments, redact

SILENT_SECONDS = 20.0
BEAT_SECONDS = 6.0  # three heartbeats
SAMPLES, FEW = 200, 20
SAMPLE_SECONDS = 120.0
MAX_TASKS, SHOWN_TASKS, MAX_ERRORS = 20_000, 200, 50
# Beyond this number the longest silent workers are forgotten: worker names come and go with their hosts.
MAX_WORKERS = 500
WAITS, RUNS, ENDED = "waiting", "running", ("succeeded", "failed", "retried", "revoked", "rejected")
MAX_TRACEBACK = 4_000
BEATS = ("heartbeat", "online")
SENT = "task-sent"  # sent by the producer, not by a worker


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

    def apply(self, event: Mapping[str, Any], now: float) -> None:
        """Apply an event as received; an invalid event is ignored."""
        kind, worker = parse_name(event.get("type")), parse_name(event.get("hostname"))
        if not kind or not worker or kind == SENT:
            return
        pool = self._find_or_create_pool(worker, now)
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
        beats = {name: each.beat_at for name, each in self.pools.items() if each.beat_at is not None}
        return sorted(name for name, at in beats.items() if now - at <= SILENT_SECONDS)

    def list_punctual_workers(self, now: float) -> set[str]:
        """Return the workers that have not missed their last heartbeats."""
        beats = {name: each.beat_at for name, each in self.pools.items() if each.beat_at is not None}
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

    def find_task(self, task_id: str) -> SeenTask | None:
        return self._tasks.get(task_id)

    def _find_or_create_pool(self, worker: str, now: float) -> PoolEvents:
        if worker not in self.pools and len(self.pools) >= MAX_WORKERS:
            del self.pools[min(self.pools, key=lambda name: self.pools[name].heard_at)]
        pool = self.pools.setdefault(worker, PoolEvents(now))
        pool.heard_at = now
        self.left.discard(worker)
        return pool

    def begin_anew(self, worker: str) -> None:
        """Reset a worker: its taken and running tasks are unknown, and so is whether task events arrive."""
        if (pool := self.pools.get(worker)) is not None:
            pool.waiting.clear()
            pool.running.clear()
            pool.completions.begin_anew()
            pool.sends_tasks = False

    def _apply_worker_event(self, pool: PoolEvents, worker: str, what: str, event: Mapping[str, Any]) -> None:
        """Apply a worker event. After a restart of the worker, no task of its former life waits or runs."""
        pid = event.get("pid")
        if what == "offline" or (pool.pid is not None and pid is not None and pid != pool.pid):
            self.begin_anew(worker)
        if what == "online":
            self._apply_online_event(pool, worker, count_of(event.get("active")) or 0)
        if what == "offline":
            self.pools.pop(worker, None)
            self.left = {worker, *islice(self.left, MAX_WORKERS - 1)}
        elif what in BEATS:
            pool.beat_at = pool.heard_at
        pool.pid = pid if isinstance(pid, int) else pool.pid

    def _apply_online_event(self, pool: PoolEvents, worker: str, active: int) -> None:
        """Apply an online event: the worker restarted, or its broker was away.

        In the second case its tasks keep running, and tasks that it had taken are delivered again.
        """
        pool.online_at = pool.heard_at
        if active:
            pool.waiting.clear()
        else:
            self.begin_anew(worker)

    def _apply_task_event(self, pool: PoolEvents, worker: str, what: str, event: Mapping[str, Any], now: float) -> None:
        task = self._find_or_create_task(worker, event, now)
        at = parse_seconds(event.get("timestamp"))
        if what == "received":
            self._record_received(pool, task, event, at)
        elif what == "started":
            self._record_started(pool, task, at, now)
        elif what in ENDED:
            self._record_ended(pool, task, what, event, at, now)
        task.at = now

    def _record_received(self, pool: PoolEvents, task: SeenTask, event: Mapping[str, Any], at: float | None) -> None:
        pool.received += 1
        task.received, task.state = at, WAITS
        task.is_later = bool(event.get("eta"))
        if not task.is_later:
            pool.waiting.add(task.id)

    def _record_started(self, pool: PoolEvents, task: SeenTask, at: float | None, now: float) -> None:
        pool.started += 1
        pool.waiting.discard(task.id)
        pool.running[task.id] = now
        if len(pool.running) > MAX_TASKS:  # their end events were lost
            del pool.running[next(iter(pool.running))]
        task.started, task.state = at, RUNS
        pool.completions.record_start(task.id, at, now)
        if at is not None and task.received is not None and not task.is_later:
            pool.waits.append(TaskTime(now, max(0.0, at - task.received)))

    def _record_ended(
        self, pool: PoolEvents, task: SeenTask, what: str, event: Mapping[str, Any], at: float | None, now: float
    ) -> None:
        pool.waiting.discard(task.id)
        pool.completions.record_end(task.id, at, now)
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

    def _find_or_create_task(self, worker: str, event: Mapping[str, Any], now: float) -> SeenTask:
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
