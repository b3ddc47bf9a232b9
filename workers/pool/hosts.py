"""Reports of Celery worker hosts.

Each host reports to the control server once a second what it is and how busy it is. `weir:hosts`: host →
`workers.documents.hosts.ReportedHost`. `slots` are the pool's real processes, not its initial size: a pool may grow and
shrink while it runs, and the host follows the order in force (`workers.pool.orders`). `done` is what its workers
completed while all slots had work (`workers.pool.departures`), `at_work` how many slots were busy on average in the
second before (`workers.pool.busy_time`). A host that is to be drained takes no new work (`workers.pool.intake`);
`reserved` are the tasks that it still has to finish. `ahead_seconds` is how far its clock was ahead of the control
server's at the previous report. The report runs on the worker's own timer: no additional thread, one small exchange a
second.
"""

import logging
import os
import time
from typing import Any

import redis
from celery import bootsteps, signals
from celery.worker import state

from common.stored_document import BadDocument, convert, decode_document, encode_document, replace_fields
from queues import keys
from workers.coordination.connections import control_server
from workers.documents.hosts import PoolWork, ReportedHost, parse_role
from workers.pool import completions
from workers.pool.busy_time import BusyTime
from workers.pool.departures import Departures
from workers.pool.intake import WorkIntake
from workers.pool.pool import Order, Pool

CONSUME = "workers.tasks.consume"  # the task that a consumer runs in
INTERVAL_SECONDS = 1.0
WRITE_TIMEOUT_SECONDS = 0.5
FORGOTTEN_SECONDS = 86_400.0
logger = logging.getLogger(__name__)


def read_report_time(stored: bytes | str) -> float:
    """Return the report's time in seconds since 1970; 0 for an invalid row."""
    try:
        return decode_document(ReportedHost, stored, "host").at
    except BadDocument:
        return 0.0


class HostReport(bootsteps.StartStopStep):
    """The host's report: starts with the worker's pool and timer, removes its row when the worker stops."""

    requires = ("celery.worker.components:Pool", "celery.worker.components:Timer")

    def __init__(self, parent: Any, **options: Any) -> None:
        self._entry: Any = None
        self._control = control_server(WRITE_TIMEOUT_SECONDS, acknowledged=False)
        self._silent = False
        self._read_to = "0-0"
        self._ahead_seconds = 0.0
        self._at_work: float | None = None
        super().__init__(parent, **options)

    def start(self, parent: Any) -> None:
        self._pool, self._intake = Pool(parent), WorkIntake(parent)
        self._departures = Departures(self._pool.size, time.monotonic())
        self._busy = BusyTime(time.monotonic())
        self._attempt_exchange(self._forget_the_silent)
        self._entry = parent.timer.call_repeatedly(INTERVAL_SECONDS, self._report, (parent,))

    def _forget_the_silent(self) -> None:
        """Remove hosts that were killed.

        They don't remove themselves, and in a cluster each has a name of its own.
        """
        seconds, _ = self._control.time()
        for name, stored in self._control.hgetall(keys.HOSTS).items():
            if seconds - read_report_time(stored) > FORGOTTEN_SECONDS:
                self._control.hdel(keys.HOSTS, name)

    def stop(self, parent: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()
        self._attempt_exchange(lambda: self._control.hdel(keys.HOSTS, parent.hostname))

    def _report(self, parent: Any) -> None:
        self._departures.resize(self._pool.size, time.monotonic())
        self._departures.settle(time.monotonic(), self._pool.slots, count_other_tasks())
        document = replace_fields(
            report(parent.hostname, self._pool, self._departures, time.time()),
            drained=self._intake.is_drained,
            ahead_seconds=self._ahead_seconds,
            at_work=compute_busy_slots(self._at_work, count_other_tasks(), self._pool.size),
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
            pipe.xrange(keys.DONE.build(hostname), f"({self._read_to}", "+", completions.MAX_ENTRIES)
            pipe.time()
            _, stored, drain, entries, (seconds, microseconds) = pipe.execute()
        self._ahead_seconds = round(document.at - seconds - microseconds / 1e6, 3)
        return stored, drain, entries

    def _follow(self, stored: bytes | None, drain: bytes | None, entries: list[Any]) -> None:
        self._intake.follow(drain is not None)
        for entry_id, fields in entries:
            self._read_to = entry_id.decode()
            if int(fields[b"p"]) in self._pool.slots:  # A previous host of this name left notes, too.
                completions.note(self._departures, fields)
                completions.note_time(self._busy, fields)
        self._at_work = self._busy.compute_mean(time.monotonic(), self._pool.slots)
        order = Order.read(stored)
        ours = order is not None and order.pid == os.getpid()
        self._pool.bring_to(order.threads if order is not None and ours else self._pool.started_with)

    def _attempt_exchange(self, exchange: Any) -> Any:
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
    """Return a host's report as of now."""
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


def install(sender: Any = None, **unused: Any) -> None:
    """Add the step to any Celery application that starts a worker in this process."""
    signals.celeryd_init.connect(_add_step, weak=False, dispatch_uid="weir-host-report")


def _add_step(instance: Any = None, **unused: Any) -> None:
    instance.app.steps["worker"].add(HostReport)
