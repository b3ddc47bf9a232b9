"""Ends a Celery worker whose threads are stuck for want of memory, so that whoever runs it starts it anew.

A thread that finds none between two tasks is gone, and its pool counts it still. One that finds none while it
starts keeps whoever started it for ever (`Thread.start` of CPython waits for a sign that never comes). The
process lives on then, and answers its broker, and nothing is worked. What it had taken and not begun comes
again, as after a kill.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

from celery import bootsteps
from celery.concurrency.thread import TaskPool
from celery.worker import state

CHECK_SECONDS = 1.0
# One check after the other, and not seconds: a process that stood still has missed none of them. A free
# thread begins a task within milliseconds, on a host whose cores are all taken within a second.
UNBEGUN_CHECKS = 5
STOP_CHECKS = 12  # after as many seconds whoever stops it by a signal kills it
STUCK = 70  # its exit code: an internal error of software, of sysexits.h
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolFigures:
    """runs: the worker is not being stopped. taken: tasks that were taken from the broker and have not ended;
    at_work: those of them that have begun; begun: tasks since the start; starting: the calls of
    `Thread.start` that have not returned.
    """

    runs: bool
    slots: int
    taken: int
    at_work: int
    begun: int
    starting: frozenset[int] = frozenset()


class PoolWatchdog:
    """Of one worker, check after check."""

    def __init__(self, figures: Callable[[], PoolFigures]) -> None:
        self._figures = figures
        self._before = figures()
        self._checks = 0  # at which all was as it is, and nothing went on
        self._starting: dict[int, int] = {}  # such a call: at so many checks in a row

    def finding(self) -> str | None:
        """Why the worker has to end; None: it need not."""
        before, self._before = self._before, self._figures()
        found = self._before
        waits = found.taken > found.at_work and found.at_work < found.slots
        goes_on = found.runs and (not waits or found.begun != before.begun)
        self._checks = 0 if goes_on or found.runs != before.runs else self._checks + 1
        self._starting = {call: self._starting.get(call, 0) + 1 for call in found.starting}
        if not found.runs:
            return "does not come to its end" if self._checks >= STOP_CHECKS else None
        if max(self._starting.values(), default=0) >= UNBEGUN_CHECKS:
            return "waits for a thread that never begins"
        if self._checks < UNBEGUN_CHECKS:
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
        starting=frozenset(_calls_of_start()),
    )


def _calls_of_start() -> Iterator[int]:
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code is threading.Thread.start.__code__:
                yield id(frame)
            frame = frame.f_back


def watch_pool(sender: Any, **_: Any) -> None:
    """Of signal `worker_ready`. A pool of processes sees to its own."""
    if isinstance(sender.pool, TaskPool):
        watchdog = PoolWatchdog(figures_of(sender.controller))
        threading.Thread(target=_watch, args=[watchdog], name="pool watchdog", daemon=True).start()


def _watch(watchdog: PoolWatchdog) -> None:
    found: str | None = None
    try:
        while found is None:
            time.sleep(CHECK_SECONDS)
            found = watchdog.finding()
        logger.critical("This worker %s; it ends, to be started anew.", found)
    finally:  # without memory for a sentence too
        os._exit(STUCK)
