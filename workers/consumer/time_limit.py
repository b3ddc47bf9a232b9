"""Time limit of a call, enforced from outside of it.

SIGALRM is used because the called code is not ours: it may sleep, wait for a socket, or loop. Only the main thread of a
process can be interrupted this way (a Celery prefork child runs its task there); elsewhere only Celery's own limits
apply. Code that never returns to the interpreter cannot be interrupted: then Celery's hard limit kills the process.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REPEAT_SECONDS = 1.0
MAX_SECONDS = 1e9  # a timer accepts slightly more; a larger limit means no limit


class TimeLimitExceeded(BaseException):
    """Raised in the call.

    It is not an Exception, so that an `except Exception` of the call does not swallow it.
    """


@contextmanager
def use_time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded inside after `seconds`, and again each second while the block continues."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = False

    def end(signum: int, frame: FrameType | None) -> None:
        if not is_over:
            raise TimeLimitExceeded

    began_seconds = time.monotonic()
    previous = signal.signal(signal.SIGALRM, end)
    left_seconds, interval_seconds = signal.setitimer(signal.ITIMER_REAL, min(seconds, MAX_SECONDS), REPEAT_SECONDS)
    try:
        yield
    finally:
        # This is first: an alarm now would otherwise leave the timer set and interrupt later work of this
        # process.
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if left_seconds:  # another alarm was set: it is restored unchanged
            left_seconds = max(0.001, left_seconds - (time.monotonic() - began_seconds))
            signal.setitimer(signal.ITIMER_REAL, left_seconds, interval_seconds)
