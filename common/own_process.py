"""A beat on the full second of the wall clock, which no jump of that clock can delay or hasten."""

import ctypes
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

from common import environment as variables

MIN_GAP_SECONDS = 0.5


def wait_seconds(wall_seconds: float, since_last_seconds: float, offset_seconds: float = 0.0) -> float:
    """Return how long to wait until the next full second + `offset_seconds`.

    Only the fraction of the wall clock is used, so no jump makes the wait longer than 1.5 s. `since_last_seconds`
    (monotonic) prevents two beats in one second if the clock is set back by a little.
    """
    wait = (offset_seconds - wall_seconds) % 1.0
    return wait if since_last_seconds + wait >= MIN_GAP_SECONDS else wait + 1.0


# Returns memory that this process has freed to the system, once a minute.
#
# glibc returns only what is at the end of its heap. After a large chart, job, or page, a process would keep its peak
# memory, and grow for hours as its peaks occur at random.

SECONDS = 60.0
# glibc's own; other C libraries have none. Looked up at the start: later there may be no memory for it.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def _give_back() -> None:
    if _TRIM is not None:
        _TRIM(0)


class FreedMemory:
    """Call `give_back` as often as you like: it acts once in SECONDS, and takes some milliseconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, trim: Callable[[], None] = _give_back) -> None:
        self._monotonic, self._trim = monotonic, trim
        self._given_at = monotonic()

    def give_back(self) -> None:
        now = self._monotonic()
        if now - self._given_at >= SECONDS:
            self._given_at = now
            self._trim()


# The file by which a container's health check sees that a process is alive.
#
# A request would cost more than most health checks. Each process documents where it touches the file.


def touch() -> None:
    """Show that this process is alive if WEIR_HEARTBEAT_FILE names a file. A full disk ends no process."""
    if path := variables.HEARTBEAT_FILE.get_text():
        with suppress(OSError):
            Path(path).touch()


# The limit of open files and connections of a process.

# Enough for every process. A hard limit may be a billion, and some programs iterate over all of it.
MAX_OPEN_FILES = 65_536


def raise_open_file_limit() -> None:
    """Raise this process's limit of open files as far as its host allows, for it and what it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# Ends a process that waits for a thread that never starts, so that its supervisor restarts it.
#
# It also lets the process return the memory that it has freed. A thread that finds no memory while it starts blocks its
# creator forever: `Thread.start` of CPython waits for a signal that never comes. The process then lives on and answers
# no request.

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
