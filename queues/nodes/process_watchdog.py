"""Ends a process that waits for a thread that never starts, so that its supervisor restarts it.

It also lets the process return the memory that it has freed. A thread that finds no memory while it starts blocks its
creator forever: `Thread.start` of CPython waits for a signal that never comes. The process then lives on and answers no
request.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from queues.nodes.freed_memory import FreedMemory

CHECK_SECONDS = 1.0
# Consecutive checks, not seconds: a process that was frozen has missed none of them. A thread starts, and a
# free one starts a task, within milliseconds, or within a second if all cores are busy.
STUCK_CHECKS = 5
STUCK = 70  # its exit code: an internal software error, of sysexits.h
logger = logging.getLogger(__name__)

# Called at each check: returns why the process has to end, or None.
Finding = Callable[[], str | None]


class StartWatchdog:
    """Watches the threads that a process starts.

    calls: the calls of `Thread.start` that have not returned, each a distinct object.
    """

    def __init__(self, calls: Callable[[], Iterator[object]]) -> None:
        self._calls = calls
        # Call → number of consecutive checks. The object is kept rather than its id, which is soon reused.
        self._checks: dict[object, int] = {}

    def detect_fault(self) -> str | None:
        self._checks = {call: self._checks.get(call, 0) + 1 for call in set(self._calls())}
        if max(self._checks.values(), default=0) < STUCK_CHECKS:
            return None
        return "waits for a thread that never starts"


def iterate_thread_starts() -> Iterator[FrameType]:
    """Yield the calls in the frames of this process."""
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code is threading.Thread.start.__code__:
                yield frame
            frame = frame.f_back


def watch(*more: Finding) -> None:
    """Start watching, in a thread, the threads that are started, and further conditions."""
    findings = (StartWatchdog(iterate_thread_starts).detect_fault, *more)
    threading.Thread(target=_watch, args=[findings], name="process watchdog", daemon=True).start()


def _watch(findings: tuple[Finding, ...]) -> None:
    fault: str | None = None
    memory = FreedMemory()
    try:
        while fault is None:
            time.sleep(CHECK_SECONDS)
            memory.give_back()
            fault = next(filter(None, [finding() for finding in findings]), None)
        logger.critical("This process %s and exits so that it is restarted.", fault)
    finally:  # even without memory for a message
        os._exit(STUCK)
