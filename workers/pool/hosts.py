"""The pool of a worker host, which grows and shrinks while it works.

Celery grows a pool of processes (prefork) at once. Its `shrink` takes only idle processes, of which a busy pool has
none. A pool therefore shrinks by a message to leave (`leave`), queued behind the work that the pool received before:
the next free process takes it, and ends. No work is interrupted.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import orjson
import redis
from celery import Celery, bootsteps, signals
from celery.utils.nodenames import worker_direct
from celery.worker import state
from kombu.asynchronous.timer import Entry, Timer

from common import environment as variables
from common.checks import check_capabilities
from common.stored_document import BadDocument, convert, decode_document, encode_document, replace_fields
from queues import keys
from queues.control.replies import expect_bytes
from workers.coordination.connections import control_server
from workers.documents.hosts import PoolWork, ReportedHost, parse_role
from workers.pool import departures
from workers.pool.departures import BusyTime, Departures

logger = logging.getLogger(__name__)


Answer = TypeVar("Answer")


class Controller(Protocol):
    """Celery's `WorkController`; its type stubs have other types for most of these."""

    app: Celery
    pool: Any
    consumer: Any
    timer: Timer
    hostname: str


@dataclass(frozen=True, slots=True)
class PoolOrder:
    """An order of `threads` processes, for the life of the process `pid`."""

    threads: int
    pid: int

    @classmethod
    def read(cls, stored: bytes | None) -> "PoolOrder | None":
        return None if stored is None else cls(**orjson.loads(stored))


def leave() -> None:
    """Run in a process of the pool: end cleanly, without being replaced."""
    raise SystemExit(0)


class Pool:
    """The pool of a Celery worker (`WorkController`), for `workers.pool.hosts`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.started_with = self.size
        self.last_error = ""  # why it could not reach the requested size

    @property
    def _processes(self) -> Any:
        """Return Billiard's pool; None for pools of threads."""
        processes = getattr(self._controller.pool, "_pool", None)
        return processes if hasattr(processes, "_pool") else None

    @property
    def resizable(self) -> bool:
        """Return whether it has processes whose number can change."""
        return self._processes is not None and not getattr(self._controller, "autoscaler", None)

    @property
    def slots(self) -> tuple[int, ...]:
        """Return the existing processes by their pid, including those that still have to leave."""
        pool = self._processes
        return () if pool is None else tuple(process.pid for process in pool._pool)

    @property
    def size(self) -> int:
        """Return how many tasks can run at once now; `inspect` keeps the initial value as max-concurrency."""
        pool = self._controller.pool
        return len(self.slots) if self._processes is not None else int(getattr(pool, "num_processes", 1) or 1)

    def bring_to(self, threads: int) -> None:
        """Grow or shrink to this many processes, at least one. Its `last_error` says what prevents it."""
        if not self.resizable:
            return
        missing = max(1, threads) - self._processes._processes
        try:
            if missing > 0:
                self._controller.pool.grow(missing)
                self._controller.consumer._update_prefetch_count(missing)
                self._controller.pool.maintain_pool()
            elif missing < 0:
                self._shrink(-missing)
            self.last_error = ""
        except Exception as error:  # too little memory, too many processes, a pool that is being closed
            if not self.last_error:
                logger.warning("The pool can't be resized to %d processes: %r", threads, error)
            self.last_error = f"{type(error).__name__}: {error}"

    def _shrink(self, count: int) -> None:
        pool = self._processes
        for _ in range(count):
            # As Pool.shrink does, except that the process leaves when it is free.
            pool._processes -= 1
            if pool._putlock:
                pool._putlock.shrink()
            pool.apply_async(leave)
        self._controller.consumer._update_prefetch_count(-count)


class WorkIntake:
    """The Celery queues of a worker (`WorkController`), for `workers.pool.hosts`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._names: tuple[str, ...] = ()
        self.is_drained = False

    def follow(self, drained: bool) -> None:
        """Stop taking new work, or take it again. A repeated call changes nothing."""
        if drained == self.is_drained:
            return
        self.is_drained = drained
        consumer, queues = self._controller.consumer, self._controller.app.amqp.queues
        if drained:
            self._names = tuple(queues.consume_from)
        else:
            queues.select(list(self._names))  # Also for a new connection: it consumes from the selected ones.
        for name in self._names:
            consumer.call_soon(consumer.cancel_task_queue if drained else consumer.add_task_queue, name)
        logger.warning("This worker host accepts %s.", "no new work: it is drained" if drained else "new work again")


CONSUME = "workers.tasks.consume"  # the task that a consumer runs in
INTERVAL_SECONDS = 1.0
WRITE_TIMEOUT_SECONDS = 0.5
FORGOTTEN_SECONDS = 86_400.0


def read_report_time(stored: bytes | str) -> float:
    """Return the report's time in seconds since 1970; 0 for an invalid row."""
    try:
        return decode_document(ReportedHost, stored, "host").at
    except BadDocument:
        return 0.0


class HostReport(bootsteps.StartStopStep):
    """The host's report: starts with the worker's pool and timer, removes its row when the worker stops."""

    requires = ("celery.worker.components:Pool", "celery.worker.components:Timer")

    def __init__(self, parent: Controller, **options: object) -> None:
        self._entry: Entry | None = None
        self._control = control_server(WRITE_TIMEOUT_SECONDS, acknowledged=False)
        self._silent = False
        self._read_to = "0-0"
        self._ahead_seconds = 0.0
        self._at_work: float | None = None
        self._capabilities = read_capabilities()
        super().__init__(parent, **options)

    def start(self, parent: Controller) -> None:
        self._pool, self._intake = Pool(parent), WorkIntake(parent)
        self._departures = Departures(self._pool.size, time.monotonic())
        self._busy = BusyTime(time.monotonic())
        self._attempt_exchange(self._forget_the_silent)
        self._entry = parent.timer.call_repeatedly(INTERVAL_SECONDS, self._report, (parent,))

    def _forget_the_silent(self) -> None:
        """Remove hosts that were killed. They don't remove themselves, and in a cluster each has a name of its own."""
        seconds, _ = self._control.time()
        for name, stored in expect_bytes(self._control).hgetall(keys.HOSTS).items():
            if seconds - read_report_time(stored) > FORGOTTEN_SECONDS:
                self._control.hdel(keys.HOSTS, name)
                self._control.delete(*list_broker_keys(name.decode()))

    def stop(self, parent: Controller) -> None:
        if self._entry is not None:
            self._entry.cancel()
        self._attempt_exchange(lambda: self._control.hdel(keys.HOSTS, parent.hostname))

    def _report(self, parent: Controller) -> None:
        self._departures.resize(self._pool.size, time.monotonic())
        self._departures.settle(time.monotonic(), self._pool.slots, count_other_tasks())
        document = replace_fields(
            report(parent.hostname, self._pool, self._departures, time.time()),
            drained=self._intake.is_drained,
            ahead_seconds=self._ahead_seconds,
            at_work=compute_busy_slots(self._at_work, count_other_tasks(), self._pool.size),
            capabilities=self._capabilities,
        )
        answer = self._attempt_exchange(lambda: self._exchange(parent.hostname, document))
        if answer is not None:
            self._follow(*answer)

    def _exchange(self, hostname: str, document: ReportedHost) -> tuple[bytes | None, bytes | None, list[Any]]:
        """Send the report; receive the order, the drain, and the workers' notes."""
        with self._control.pipeline(transaction=False) as pipe:
            pipe.hset(keys.HOSTS, hostname, encode_document(document))
            pipe.get(keys.POOL.build(hostname))
            pipe.get(keys.DRAIN.build(hostname))
            pipe.xrange(keys.DONE.build(hostname), f"({self._read_to}", "+", departures.MAX_ENTRIES)
            pipe.time()
            _, stored, drain, entries, (seconds, microseconds) = pipe.execute()
        self._ahead_seconds = round(document.at - seconds - microseconds / 1e6, 3)
        return stored, drain, entries

    def _follow(self, stored: bytes | None, drain: bytes | None, entries: list[Any]) -> None:
        self._intake.follow(drain is not None)
        for entry_id, fields in entries:
            self._read_to = entry_id.decode()
            if int(fields[b"p"]) in self._pool.slots:  # A previous host of this name left notes, too.
                departures.add_worker_note(self._departures, fields)
                departures.add_busy_time(self._busy, fields)
        self._at_work = self._busy.compute_mean(time.monotonic(), self._pool.slots)
        order = PoolOrder.read(stored)
        ours = order is not None and order.pid == os.getpid()
        self._pool.bring_to(order.threads if order is not None and ours else self._pool.started_with)

    def _attempt_exchange(self, exchange: Callable[[], Answer]) -> Answer | None:
        """Run an exchange; log once that a control server is unavailable, which must not stop the worker."""
        try:
            answer = exchange()
            self._silent = False
            return answer
        except redis.RedisError as error:
            if not self._silent:
                logger.warning("The host report can't be written: %s", error)
            self._silent = True
            return None


def report(hostname: str, its_pool: Pool, departures: Departures, now: float) -> ReportedHost:
    return ReportedHost(
        role=parse_role(hostname),
        slots=its_pool.size,
        busy=len(state.active_requests),
        reserved=len(state.reserved_requests),
        pid=os.getpid(),
        at=now,
        resizable=its_pool.resizable,
        started_with=its_pool.started_with,
        trouble=its_pool.last_error,
        done=convert(PoolWork, departures.to_json(), "done"),
    )


def read_capabilities() -> list[str]:
    """Return the capabilities of this host. Raises `BadInput` that names the variable."""
    return list(check_capabilities(variables.CAPABILITIES.get_words(), variables.CAPABILITIES.name))


def list_broker_keys(hostname: str) -> list[str]:
    """Return the keys of a host's own Celery queue, one for each priority."""
    name = f"{keys.CELERY}{worker_direct(hostname).name}"
    return [name, *(f"{name}:{priority}" for priority in range(1, 10))]


def count_other_tasks() -> int:
    """Return the slots that another task than a consumer occupies, such as a batch task."""
    return sum(request.name != CONSUME for request in tuple(state.active_requests))


def compute_busy_slots(consumers: float | None, other_tasks: int, size: int) -> float | None:
    """Return the busy slots: the mean of consumers, and the others that are busy now.

    The result is 0 to the pool's size, or None if no time has passed.
    """
    if consumers is None:
        return None
    return round(min(max(0.0, consumers) + other_tasks, float(size)), 2)


def install(sender: object = None, **unused: object) -> None:
    """Add the step to any Celery application that starts a worker in this process."""
    signals.celeryd_init.connect(_add_step, weak=False, dispatch_uid="weir-host-report")


def _add_step(instance: Controller, **unused: object) -> None:
    instance.app.steps["worker"].add(HostReport)
