"""Ends a call that takes too long, from outside of it.

SIGALRM, because the callee is not ours: it may sleep, wait for a socket, or loop. Only the main thread of a
process can be interrupted so (a Celery prefork child runs its task there); elsewhere there is no limit but
Celery's own. A callee that never returns to the interpreter can't be interrupted: then Celery's hard limit
kills the process.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REPEAT_SECONDS = 1.0
MOST_SECONDS = 1e9  # a timer takes some more; who gives a limit beyond it wants none


class TimeLimitExceeded(BaseException):
    """Not an Exception, so that a callee's `except Exception` doesn't swallow it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimitExceeded inside after `seconds`, and again each second should the block go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = False

    def end(signum: int, frame: FrameType | None) -> None:
        if not is_over:
            raise TimeLimitExceeded

    began_seconds = time.monotonic()
    previous = signal.signal(signal.SIGALRM, end)
    left_seconds, interval_seconds = signal.setitimer(
        signal.ITIMER_REAL, min(seconds, MOST_SECONDS), REPEAT_SECONDS
    )
    try:
        yield
    finally:
        # First: an alarm that comes now would leave the timer set, and end whatever this process does next.
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if left_seconds:  # somebody else's alarm was set: it goes on as if we had not been here
            left_seconds = max(0.001, left_seconds - (time.monotonic() - began_seconds))
            signal.setitimer(signal.ITIMER_REAL, left_seconds, interval_seconds)
