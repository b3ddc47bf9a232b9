"""Ends a process that waits for a thread that never begins, so that whoever runs it starts it anew; and has
it give back the memory that it has freed.

A thread that finds no memory while it starts keeps whoever started it for ever: `Thread.start` of CPython
waits for a sign that never comes. The process lives on then, and answers nobody.
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
# One check after the other, and not seconds: a process that stood still has missed none of them. A thread
# starts, and a free one begins a task, within milliseconds; where all cores are taken, within a second.
STUCK_CHECKS = 5
STUCK = 70  # its exit code: an internal error of software, of sysexits.h
logger = logging.getLogger(__name__)

# Called once a check: why the process has to end; None: it need not.
Finding = Callable[[], str | None]


class StartWatchdog:
    """Of the threads that a process starts. calls: those of `Thread.start` that have not returned, each an
    object of its own.
    """

    def __init__(self, calls: Callable[[], Iterator[object]]) -> None:
        self._calls = calls
        # A call: at so many checks in a row. It is kept, and not its number, which is soon that of another.
        self._checks: dict[object, int] = {}

    def detect_fault(self) -> str | None:
        self._checks = {call: self._checks.get(call, 0) + 1 for call in set(self._calls())}
        if max(self._checks.values(), default=0) < STUCK_CHECKS:
            return None
        return "waits for a thread that never begins"


def calls_of_start() -> Iterator[FrameType]:
    """By the frames of this process."""
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code is threading.Thread.start.__code__:
                yield frame
            frame = frame.f_back


def watch(*more: Finding) -> None:
    """From now on, in a thread of its own: the threads that are started, and what else is given."""
    findings = (StartWatchdog(calls_of_start).detect_fault, *more)
    threading.Thread(target=_watch, args=[findings], name="process watchdog", daemon=True).start()


def _watch(findings: tuple[Finding, ...]) -> None:
    fault: str | None = None
    memory = FreedMemory()
    try:
        while fault is None:
            time.sleep(CHECK_SECONDS)
            memory.give_back()
            fault = next(filter(None, [finding() for finding in findings]), None)
        logger.critical("This process %s; it ends, to be started anew.", fault)
    finally:  # without memory for a sentence too
        os._exit(STUCK)
