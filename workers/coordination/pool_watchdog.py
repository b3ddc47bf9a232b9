"""Watchdog that ends a Celery worker whose pool has lost threads to a lack of memory.

The worker is then restarted by its supervisor. A pool thread that finds no memory between two tasks ends, but its pool
still counts it. The process then runs on and answers its broker, but no task is processed. The tasks that it had taken
are delivered again, as after a kill.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from celery import bootsteps
from celery.concurrency.thread import TaskPool
from celery.worker import state

from common.own_process import STUCK_CHECKS, watch

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
    running = cast(Any, bootsteps).RUN  # the package has no types
    return lambda: PoolFigures(
        runs=worker.blueprint.state == running,
        slots=worker.pool.limit,
        taken=len(state.reserved_requests),
        at_work=len(state.active_requests),
        begun=state.all_total_count[0],
    )


def watch_pool(sender: Any, **_: Any) -> None:
    """Handle the signal `worker_ready`. A pool of processes replaces processes that end."""
    if isinstance(sender.pool, TaskPool):
        watch(PoolWatchdog(build_figures_reader(sender.controller)).detect_fault)


def watch_child(**_: Any) -> None:
    """Handle the signal `worker_process_init` in each process of a pool."""
    watch()
