"""Gives memory that this process has freed back to the system, once a minute.

glibc returns only what lies at the end of its heap: after a large chart, a job or a page a process would
hold on to the most that it ever needed, and grow for hours, as its peaks come by chance.
"""

import ctypes
import time
from collections.abc import Callable

SECONDS = 60.0
# glibc's own; another C library has none. Found at the start: later there may be no memory to find it with.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def _give_back() -> None:
    if _TRIM is not None:
        _TRIM(0)


class FreedMemory:
    """`give_back` as often as one likes: it does so once in SECONDS, within some milliseconds."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, trim: Callable[[], None] = _give_back
    ) -> None:
        self._monotonic, self._trim = monotonic, trim
        self._given_at = monotonic()

    def give_back(self) -> None:
        now = self._monotonic()
        if now - self._given_at >= SECONDS:
            self._given_at = now
            self._trim()
