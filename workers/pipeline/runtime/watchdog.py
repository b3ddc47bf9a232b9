"""Ends the pipeline's process when it hangs, so that its supervisor restarts it.

A worker, a query, or a Java process that hangs never fails, and can't be asked to stop either: Spark would wait for it.
A new process continues from the checkpoint within seconds, exactly.
"""

import logging
import os
import time
from collections.abc import Callable

import psutil

log = logging.getLogger("weir.pipeline")


class Watchdog:
    """Fed by the main thread in each cycle, and checked every second by another thread."""

    def __init__(self, limit_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds, self._monotonic = limit_seconds, monotonic
        self._fed_at: float | None = None

    def feed(self) -> None:
        """Record that the main thread is running.

        Nothing is checked before the first call: Spark takes time to start.
        """
        self._fed_at = self._monotonic()

    def explain_required_end(self, stuck_seconds: float) -> str | None:
        """Return why this process has to end, or None.

        stuck_seconds: for how long a component that has all it needs has finished nothing.
        """
        if stuck_seconds > self._limit_seconds:
            return f"no progress for {stuck_seconds:.0f} s although all inputs are available; the process restarts"
        silent_seconds = 0.0 if self._fed_at is None else self._monotonic() - self._fed_at
        if silent_seconds > self._limit_seconds:
            return f"its main thread has not responded for {silent_seconds:.0f} s; the process restarts"
        return None


def end_process() -> None:
    """End the process at once, with all its children: what hangs is not waited for."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)
