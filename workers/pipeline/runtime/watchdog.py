"""Ends the pipeline's process when it hangs, so that its supervisor starts it anew.

A worker, a query or the Java machine that hangs never fails, and what hangs can't be asked to stop either:
Spark waits for it then. A new process goes on from the checkpoint, within seconds and exactly.
"""

import logging
import os
import time
from collections.abc import Callable

import psutil

log = logging.getLogger("weir.pipeline")


class Watchdog:
    """Fed by the main thread each time it comes round, and asked each second by another one."""

    def __init__(self, limit_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds, self._monotonic = limit_seconds, monotonic
        self._fed_at: float | None = None

    def feed(self) -> None:
        """The main thread is at work. Before the first time nothing is asked: Spark takes time to start."""
        self._fed_at = self._monotonic()

    def verdict(self, stuck_seconds: float) -> str | None:
        """Why this process has to end, or None. stuck_seconds: for how long somebody in it has finished
        nothing though all was there.
        """
        if stuck_seconds > self._limit_seconds:
            return f"nothing was finished for {stuck_seconds:.0f} s though all was there; it is started anew"
        silent_seconds = 0.0 if self._fed_at is None else self._monotonic() - self._fed_at
        if silent_seconds > self._limit_seconds:
            return f"its main thread has not come back for {silent_seconds:.0f} s; it is started anew"
        return None


def end_process() -> None:
    """At once, with all it has started: what hangs is not waited for."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)
