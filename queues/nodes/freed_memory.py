"""Returns memory that this process has freed to the system, once a minute.

glibc returns only what is at the end of its heap. After a large chart, job, or page, a process would keep its peak
memory, and grow for hours as its peaks occur at random.
"""

import ctypes
import time
from collections.abc import Callable

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
