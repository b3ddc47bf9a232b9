"""Ends a Celery worker whose threads are gone for want of memory, so that whoever runs it starts it anew.

A thread of a pool that finds no memory between two tasks is gone, and its pool counts it still. The process
lives on then, and answers its broker, and nothing is worked. What it had taken comes again, as after a kill.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from celery import bootsteps
from celery.concurrency.thread import TaskPool
from celery.worker import state

from queues.nodes.process_watchdog import STUCK_CHECKS, watch

STOP_CHECKS = 12  # after as many seconds whoever stops it by a signal kills it


@dataclass(frozen=True)
class PoolFigures:
    """runs: the worker is not being stopped. taken: tasks that were taken from the broker and have not ended;
    at_work: those of them that have begun; begun: tasks since the start.
    """

    runs: bool
    slots: int
    taken: int
    at_work: int
    begun: int


class PoolWatchdog:
    """Of a pool of threads."""

    def __init__(self, figures: Callable[[], PoolFigures]) -> None:
        self._figures = figures
        self._before = figures()
        self._checks = 0  # at which all was as it is, and nothing went on

    def detect_fault(self) -> str | None:
        before, self._before = self._before, self._figures()
        found = self._before
        waits = found.taken > found.at_work and found.at_work < found.slots
        goes_on = found.runs and (not waits or found.begun != before.begun)
        self._checks = 0 if goes_on or found.runs != before.runs else self._checks + 1
        if not found.runs:
            return "does not come to its end" if self._checks >= STOP_CHECKS else None
        if self._checks < STUCK_CHECKS:
            return None
        free = found.slots - found.at_work
        return f"begins nothing, with {free} of {found.slots} threads free and {found.taken} tasks taken"


def figures_of(worker: Any) -> Callable[[], PoolFigures]:
    """What Celery counts in this process."""
    running = cast(Any, bootsteps).RUN  # it brings no type of it
    return lambda: PoolFigures(
        runs=worker.blueprint.state == running,
        slots=worker.pool.limit,
        taken=len(state.reserved_requests),
        at_work=len(state.active_requests),
        begun=state.all_total_count[0],
    )


def watch_pool(sender: Any, **_: Any) -> None:
    """Of signal `worker_ready`. A pool of processes sees to those that end."""
    if isinstance(sender.pool, TaskPool):
        watch(PoolWatchdog(figures_of(sender.controller)).detect_fault)


def watch_child(**_: Any) -> None:
    """Of signal `worker_process_init`: in each process of a pool."""
    watch()
