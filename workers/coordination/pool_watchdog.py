"""Ends a Celery process whose threads are stuck for want of memory, so that whoever runs it starts it anew.

A thread that finds none while it starts keeps whoever started it for ever: `Thread.start` of CPython waits
for a sign that never comes. One that finds none between two tasks is gone, and its pool counts it still. The
process lives on then, and answers its broker, and nothing is worked. What it had taken comes again, as after
a kill.
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
# One check after the other, and not seconds: a process that stood still has missed none of them. A thread
# starts, and a free one begins a task, within milliseconds; where all cores are taken, within a second.
STUCK_CHECKS = 5
STOP_CHECKS = 12  # after as many seconds whoever stops it by a signal kills it
STUCK = 70  # its exit code: an internal error of software, of sysexits.h
logger = logging.getLogger(__name__)

# Called once a check: why the process has to end; None: it need not.
Finding = Callable[[], str | None]


class StartWatchdog:
    """Of the threads that a process starts. calls: those of `Thread.start` that have not returned."""

    def __init__(self, calls: Callable[[], Iterator[int]]) -> None:
        self._calls = calls
        self._checks: dict[int, int] = {}  # a call: at so many checks in a row

    def finding(self) -> str | None:
        self._checks = {call: self._checks.get(call, 0) + 1 for call in set(self._calls())}
        if max(self._checks.values(), default=0) < STUCK_CHECKS:
            return None
        return "waits for a thread that never begins"


def calls_of_start() -> Iterator[int]:
    """By the frames of this process; one that is still there has its number to itself."""
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code is threading.Thread.start.__code__:
                yield id(frame)
            frame = frame.f_back


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

    def finding(self) -> str | None:
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
        watch(StartWatchdog(calls_of_start).finding, PoolWatchdog(figures_of(sender.controller)).finding)


def watch_child(**_: Any) -> None:
    """Of signal `worker_process_init`: in each process of a pool."""
    watch(StartWatchdog(calls_of_start).finding)


def watch(*findings: Finding) -> None:
    """From now on, in a thread of its own."""
    threading.Thread(target=_watch, args=[findings], name="pool watchdog", daemon=True).start()


def _watch(findings: tuple[Finding, ...]) -> None:
    found: str | None = None
    try:
        while found is None:
            time.sleep(CHECK_SECONDS)
            found = next(filter(None, [finding() for finding in findings]), None)
        logger.critical("This process %s; it ends, to be started anew.", found)
    finally:  # without memory for a sentence too
        os._exit(STUCK)
