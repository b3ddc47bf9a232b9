"""Ends a call that takes too long, from outside of it.

SIGALRM, because the callee is not ours: it may sleep, wait for a socket, or loop. Only the main thread of a
process can be interrupted so (a Celery prefork child runs its task there); elsewhere there is no limit but
Celery's own. A callee that never returns to the interpreter can't be interrupted: then Celery's hard limit
kills the process.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REPEAT_SECONDS = 1.0


class TimeLimitExceeded(BaseException):
    """Not an Exception, so that a callee's `except Exception` doesn't swallow it."""


def _raise(signum: int, frame: FrameType | None) -> None:
    raise TimeLimitExceeded


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimitExceeded inside after `seconds`, and again each second should the block go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGALRM, _raise)
    signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
