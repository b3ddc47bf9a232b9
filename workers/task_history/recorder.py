"""The recorder of one plant's tasks: receives changes from a listener, and stores them once a second.

Changes wait in memory until they are stored, together with how far the plant was heard, in one transaction. A recorder
that is killed therefore leaves a range without events from its last transaction until its successor listens, which is
stored as a gap.

Two observers may run. The recorder with the lease stores changes; the other keeps those of the last STANDBY_SECONDS and
continues where the first one stopped. A recorder that lost its lease without noticing it stores nothing: its fencing
number is too low.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec
import redis
from django.db import DatabaseError, close_old_connections, connection, transaction

from workers.task_history.blocks import AT_ONCE, STALE_SECONDS, decode_record, find_rows, seal_settled, supersede
from workers.task_history.failures import TaskFailure, count_failures, is_failure
from workers.task_history.models import RecentTask, TaskFeed, TaskGap
from workers.task_history.record import RECEIVED, SENT, TaskRecord, TaskUpdate, apply_update

FLUSH_SECONDS, IDLE_SECONDS = 1.0, 5.0
LEASE_SECONDS = 5.0
STANDBY_SECONDS = 30.0
PARTLY_SECONDS = 3_600.0
# A listener that was not called for longer may have missed events: RabbitMQ drops those that wait for 5 s.
STALL_SECONDS = 4.0
BEAT_SECONDS = 10.0
MAX_WAITING, MAX_CHANGED, MAX_OPEN = 100_000, 50_000, 20_000
# Tasks of one second that are searched in blocks; the others begin a record of their own.
MAX_SEARCHED = 10
MAX_WORKERS = 1_000
RESTART, RECONNECT = "Weir was not listening", "the connection to the broker was interrupted"
STALL, OVERFLOW = "Weir was suspended or overloaded", "the database was not available, and the buffer was full"
NO_BEAT = "no heartbeat from the worker"
logger = logging.getLogger(__name__)
_UPSERT = (
    "INSERT INTO workers_recenttask (plant, task_id, at, finished, record) VALUES (%s, %s, %s, %s, %s) "
    "ON CONFLICT (plant, task_id) DO UPDATE SET at = excluded.at, finished = excluded.finished, "
    "record = excluded.record"
)


class RecorderLease(Protocol):
    """The part of `workers.coordination.leases.Lease` that the recorder uses."""

    fence: int | None

    def acquire(self, at_least: int = 0) -> int | None: ...

    def renew(self) -> bool: ...

    def release(self) -> bool: ...


@dataclass(frozen=True)
class MissedRange:
    """A time range in which events may be missing; worker: "" for all workers."""

    since: float
    until: float
    reason: str
    worker: str = ""


class FeedTaken(Exception):  # noqa: N818
    """Another recorder has stored changes with a higher fencing number."""


class TaskRecorder:
    """Recorder of one plant. The listener's thread calls `hear`, `connect`, and the like; another thread `flush`."""

    def __init__(self, plant: str, lease: RecorderLease, clock: Callable[[], float] = time.time) -> None:
        self._plant, self._lease, self._clock = plant, lease, clock
        self._lock = threading.Lock()
        # Written by the listener's thread, under the lock.
        self._waiting: deque[TaskUpdate] = deque()
        self._missed: list[MissedRange] = []
        self._connected_at: float | None = None
        self._alive_at: float | None = None
        self._dropped_since: float | None = None
        self._beats: dict[str, tuple[float, float]] = {}  # worker → last event: (our clock, its clock)
        # Of the storing thread.
        self._holds = False
        self._records: dict[str, TaskRecord] = {}  # unfinished tasks, the oldest first
        self._changed: dict[str, TaskRecord] = {}
        self._failures: list[TaskFailure] = []
        self._superseded: list[tuple[int, int]] = []
        self._merged_until: float | None = None
        self._stored_until: float | None = None
        self._partly_at = 0.0
        self._is_failing = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # The listener's side.

    def connect(self, at: float) -> None:
        """Record that the listener receives all events from now on."""
        with self._lock:
            if self._alive_at is not None:
                self._miss(self._alive_at, at, RECONNECT)
            self._connected_at = self._connected_at or at
            self._alive_at = at
            self._beats.clear()

    def touch(self, at: float) -> None:
        """Record that the listener has received everything until now; it does so at least once a second."""
        with self._lock:
            if self._alive_at is not None and at - self._alive_at > STALL_SECONDS:
                self._miss(self._alive_at, at, STALL)
            self._alive_at = at

    def hear(self, change: TaskUpdate) -> None:
        """Take a change, to be stored at the next flush."""
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self._dropped_since = self._dropped_since or change.at
                return
            self._waiting.append(change)

    def hear_worker(
        self, worker: str, at: float, time_sent: float, allowed_seconds: float = 0.0, is_new: bool = False
    ) -> None:
        """Take a heartbeat of a worker.

        time_sent: by its clock. allowed_seconds: between two heartbeats, if more than BEAT_SECONDS. is_new: the worker
        or its connection has just started.
        """
        with self._lock:
            before = self._beats.pop(worker, None)
            if before is not None and not is_new and time_sent - before[1] > max(BEAT_SECONDS, allowed_seconds):
                self._miss(before[0], at, NO_BEAT, worker)
            if len(self._beats) >= MAX_WORKERS:
                del self._beats[next(iter(self._beats))]
            self._beats[worker] = at, time_sent

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that reported its end."""
        with self._lock:
            self._beats.pop(worker, None)

    def _miss(self, since: float, until: float, reason: str, worker: str = "") -> None:
        if until > since:
            self._missed.append(MissedRange(since, until, reason, worker))
            del self._missed[:-1_000]

    # The storing side.

    def start(self) -> None:
        """Start the thread that stores changes, on the first call only."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"tasks {self._plant}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Store what waits, and stop."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(5 * FLUSH_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(FLUSH_SECONDS):
            self.flush()
        self.flush()
        with suppress(redis.RedisError):
            self._lease.release()
        connection.close()

    def flush(self) -> None:
        """Store all changes so far. A failure is logged once, and the changes are stored at a later call."""
        try:
            if self._hold_lease():
                self._merge()
                self._store()
                self._seal()
            else:
                self._trim()
            self._is_failing = False
        except FeedTaken:
            self._let_go()
        except (DatabaseError, redis.RedisError) as error:
            self._complain(error)
            close_old_connections()
        except Exception as error:  # no failure may end the recording
            logger.exception("Recording the tasks of %s failed.", self._plant)
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._is_failing:
            logger.warning("The tasks of %s can't be stored now: %s", self._plant, error)
        self._is_failing = True

    def _hold_lease(self) -> bool:
        """Return whether this recorder stores the tasks: it is connected, and has the lease."""
        with self._lock:
            if self._connected_at is None:
                return False
        try:
            held = self._lease.renew() if self._holds else self._lease.acquire() is not None
        except redis.RedisError:
            # Nobody else can acquire it either, and the fencing number protects the tables.
            return self._holds
        if held and not self._holds:
            self._continue_feed()
            self._holds = True
        elif self._holds and not held:
            self._let_go()
        return self._holds

    def _continue_feed(self) -> None:
        """Continue where the last recorder stopped: note the gap, and leave out what it has stored."""
        with self._lock:
            began_at = self._connected_at or self._clock()
        feed, is_new = TaskFeed.objects.get_or_create(
            plant=self._plant, defaults={"began_at": began_at, "heard_until": began_at}
        )
        if self._lease.fence is not None and self._lease.fence <= feed.fence:  # the control server lost its numbers
            self._lease.acquire(feed.fence)
        if is_new:
            return
        with self._lock:
            self._waiting = deque(change for change in self._waiting if change.at > feed.heard_until)
            self._missed = [gap for gap in self._missed if gap.until > feed.heard_until]
            if began_at > feed.heard_until:
                self._miss(feed.heard_until, began_at, RESTART)

    def _let_go(self) -> None:
        """Forget everything: the holder of the lease stores it."""
        self._holds = False
        self._records, self._changed, self._failures, self._superseded = {}, {}, [], []
        self._merged_until = self._stored_until = None
        self._trim()

    def _trim(self) -> None:
        since = self._clock() - STANDBY_SECONDS
        with self._lock:
            while self._waiting and self._waiting[0].at < since:
                self._waiting.popleft()
            self._missed = [gap for gap in self._missed if gap.until >= since]
            if self._connected_at is not None:
                self._connected_at = max(self._connected_at, since)
            self._dropped_since = None

    def _merge(self) -> None:
        """Apply the waiting changes to the records in memory, which then wait to be stored."""
        with self._lock:
            room = MAX_CHANGED - len(self._changed)
            changes = [self._waiting.popleft() for _ in range(min(len(self._waiting), max(0, room)))]
            is_all, until = not self._waiting, self._alive_at
        try:
            self._load(changes)
        except Exception:  # whatever failed may work later, and no change is lost
            with self._lock:
                self._waiting.extendleft(reversed(changes))
            raise
        for change in changes:
            before = self._changed.get(change.id) or self._records.pop(change.id, None)
            if before is not None and _is_repeated(before, change):
                self._changed[change.id] = before
                continue
            record = apply_update(before, change)
            self._changed[change.id] = record
            if change.state == record.state and is_failure(record):
                self._failures.append(TaskFailure(record, change.at))
        last = changes[-1].at if changes else None
        known = [at for at in (last, until if is_all else None, self._merged_until) if at is not None]
        self._merged_until = max(known, default=None)
        with self._lock:
            if self._dropped_since is not None and len(self._waiting) < MAX_WAITING // 2:
                self._miss(self._dropped_since, self._clock(), OVERFLOW)
                self._dropped_since = None

    def _load(self, changes: Iterable[TaskUpdate]) -> None:
        """Read the stored records of tasks that are not in memory: recent ones, and some that continue in a block."""
        unknown: dict[str, TaskUpdate] = {}
        late: list[str] = []
        for change in changes:
            record = self._changed.get(change.id) or self._records.get(change.id)
            if record is not None and record.at <= change.at - STALE_SECONDS and change.id not in self._changed:
                del self._records[change.id]  # it may be in a block by now
                late.append(change.id)
                record = None
            if record is None:
                unknown.setdefault(change.id, change)
        ids = list(unknown)
        for start in range(0, len(ids), AT_ONCE):
            rows = RecentTask.objects.filter(plant=self._plant, task_id__in=ids[start : start + AT_ONCE])
            for task_id, stored in rows.values_list("task_id", "record"):
                self._records[task_id] = decode_record(stored, "")
                del unknown[task_id]
        late += [change.id for change in unknown.values() if _continues(change) and change.id not in late]
        for task_id, (head, row, record) in find_rows(
            self._plant, [key for key in late if key in unknown][:MAX_SEARCHED]
        ).items():
            record.plant = ""
            self._records[task_id] = record
            self._superseded.append((head.pk, row))

    def _store(self) -> None:
        """Write everything that changed in one transaction. Raises FeedTaken, DatabaseError."""
        with self._lock:
            missed = list(self._missed)
        until = self._merged_until
        if until is None or not self._is_due(until, bool(missed)):
            return
        with transaction.atomic():
            self._advance_feed(until)
            _write_records(self._plant, self._changed.values())
            for key in {key for key, _ in self._superseded}:
                supersede(key, [row for block, row in self._superseded if block == key])
            if self._failures:
                count_failures(self._plant, self._failures)
            TaskGap.objects.bulk_create(
                TaskGap(plant=self._plant, worker=gap.worker, since=gap.since, until=gap.until, reason=gap.reason)
                for gap in missed
            )
        for task_id, record in self._changed.items():
            if not record.is_finished:
                self._records[task_id] = record
        while len(self._records) > MAX_OPEN:
            del self._records[next(iter(self._records))]
        self._changed, self._failures, self._superseded = {}, [], []
        self._stored_until = until
        with self._lock:
            del self._missed[: len(missed)]

    def _is_due(self, until: float, has_gaps: bool) -> bool:
        """Return whether there is something to store. Without tasks, only the time is stored, and less often."""
        has_changes = bool(self._changed or self._failures or self._superseded or has_gaps)
        return has_changes or self._stored_until is None or until - self._stored_until >= IDLE_SECONDS

    def _advance_feed(self, until: float) -> None:
        """Write how far the plant was heard. This is first: it locks the feed for the transaction."""
        fence = self._lease.fence or 0
        feed = TaskFeed.objects.filter(plant=self._plant, fence__lte=fence)
        if not feed.update(fence=fence, heard_until=until):
            raise FeedTaken(self._plant)

    def _seal(self) -> None:
        now = self._clock()
        partly = now - self._partly_at >= PARTLY_SECONDS
        if partly:
            self._partly_at = now
        seal_settled(self._plant, now, partly)


def _is_repeated(record: TaskRecord, change: TaskUpdate) -> bool:
    """Return whether this end of the task is stored already, by another recorder that heard it, too."""
    return change.time is not None and (record.state, record.ended) == (change.state, change.time)


def _continues(change: TaskUpdate) -> bool:
    """Return whether the first event that was heard of a task is not its first one."""
    return change.state not in (SENT, RECEIVED) or bool(change.retries)


def _write_records(plant: str, records: Iterable[TaskRecord]) -> None:
    rows = [(plant, record.id, record.at, record.is_finished, msgspec.json.encode(record)) for record in records]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT, rows)


def record_finished(plant: str, records: Sequence[TaskRecord]) -> None:
    """Store finished tasks of a plant without a recorder. A task whose end is stored already is left as it is."""
    if not records:
        return
    latest = max(record.at for record in records)
    with transaction.atomic():
        feed, _ = TaskFeed.objects.get_or_create(plant=plant, defaults={"began_at": latest, "heard_until": latest})
        TaskFeed.objects.filter(pk=feed.pk).update(heard_until=latest)
        stored = dict[str, float | None]()
        for start in range(0, len(records), AT_ONCE):
            ids = [record.id for record in records[start : start + AT_ONCE]]
            rows = RecentTask.objects.filter(plant=plant, task_id__in=ids).values_list("task_id", "record")
            stored |= {task_id: decode_record(row, plant).ended for task_id, row in rows}
        new = [record for record in records if record.id not in stored or stored[record.id] != record.ended]
        _write_records(plant, new)
        count_failures(plant, [TaskFailure(record, record.at) for record in new if is_failure(record)])
