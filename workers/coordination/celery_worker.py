"""Weir's changes to Celery's defaults: reconnection, the expiry of tasks, and a watchdog of the pool."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from celery import bootsteps
from celery.app.amqp import AMQP
from celery.concurrency.thread import TaskPool
from celery.worker import state
from celery.worker.request import Request
from celery.worker.state import revoked
from kombu import Connection

from common.own_process import STUCK_CHECKS, watch
from queues.control.connection import know_of_refused_writes
from workers.coordination.plant_clock import get_plant_clock

know_of_refused_writes()  # otherwise a worker would exit when the control server's disk is full

PAUSES_SECONDS = {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 1.0}


class PromptConnection(Connection):
    """A connection that is retried every second without a limit (CELERY_BROKER_CONNECTION_MAX_RETRIES)."""

    def ensure_connection(self, *arguments: Any, **options: Any) -> Self:
        """Connect like kombu, with shorter pauses where the caller passes none."""
        super().ensure_connection(*arguments, **{**PAUSES_SECONDS, **options})
        return self


class PromptConnections(AMQP):
    """Celery's AMQP with such connections."""

    Connection = PromptConnection
    BrokerConnection = PromptConnection


SYNCHRONISED_SECONDS = 0.5  # clocks that NTP synchronizes differ by less


def set_expiry(
    headers: dict[str, Any], ahead_seconds: Callable[[], float] = lambda: get_plant_clock().compute_ahead_seconds()
) -> None:
    """Correct the `expires` of a task that is sent, which uses this host's clock."""
    if not isinstance(expires := headers.get("expires"), str):
        return
    ahead = ahead_seconds()
    if abs(ahead) > SYNCHRONISED_SECONDS:
        headers["expires"] = (datetime.fromisoformat(expires) - timedelta(seconds=ahead)).isoformat()


class TimedRequest(Request):
    """A task as a worker receives it."""

    def maybe_expire(self) -> Literal[True] | None:
        """Return whether the task has expired. It is then revoked: its sender sends another."""
        if not self.expires or datetime.fromtimestamp(get_plant_clock().get_unix_time(), UTC) <= self.expires:
            return None
        revoked.add(self.id)
        return True


STOP_CHECKS = 12  # a process that does not stop within this time after a signal is killed


@dataclass(frozen=True)
class PoolFigures:
    """Figures of a pool.

    runs: the worker is not being stopped. taken: tasks that were taken from the broker and have not ended;
    at_work: those of them that have started; begun: tasks since the start.
    """

    runs: bool
    slots: int
    taken: int
    at_work: int
    begun: int


class PoolWatchdog:
    """Watchdog of a pool of threads."""

    def __init__(self, figures: Callable[[], PoolFigures]) -> None:
        self._figures = figures
        self._before = figures()
        self._checks = 0  # since when the figures are unchanged without progress

    def detect_fault(self) -> str | None:
        before, self._before = self._before, self._figures()
        faults = self._before
        waits = faults.taken > faults.at_work and faults.at_work < faults.slots
        goes_on = faults.runs and (not waits or faults.begun != before.begun)
        self._checks = 0 if goes_on or faults.runs != before.runs else self._checks + 1
        if not faults.runs:
            return "does not stop" if self._checks >= STOP_CHECKS else None
        if self._checks < STUCK_CHECKS:
            return None
        free = faults.slots - faults.at_work
        return f"starts no tasks ({free} of {faults.slots} threads free, {faults.taken} unfinished tasks)"


def build_figures_reader(worker: Any) -> Callable[[], PoolFigures]:
    """Return Celery's figures of this process."""
    running = vars(bootsteps)["RUN"]  # its type stubs omit it
    return lambda: PoolFigures(
        runs=worker.blueprint.state == running,
        slots=worker.pool.limit,
        taken=len(state.reserved_requests),
        at_work=len(state.active_requests),
        begun=state.all_total_count[0],
    )


def watch_pool(sender: Any, **_: object) -> None:
    """Handle the signal `worker_ready`. A pool of processes replaces processes that end."""
    if isinstance(sender.pool, TaskPool):
        watch(PoolWatchdog(build_figures_reader(sender.controller)).detect_fault)


def watch_child(**_: object) -> None:
    """Handle the signal `worker_process_init` in each process of a pool."""
    watch()
