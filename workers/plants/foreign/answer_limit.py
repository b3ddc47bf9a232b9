"""Limits of one answer of somebody else's server: a maximum size, and a maximum time after its first byte.

Drivers hold an answer in memory until it is complete. They accept any size and any duration, as long as data arrives:
their timeouts apply to single reads.
"""

import time

from common import environment as variables


def answer_seconds() -> float:
    """Return the answer timeout of a server, in seconds. Raise `BadInput`, naming its variable."""
    return variables.PLANT_TIMEOUT_SECONDS.get_seconds()


def order_seconds() -> float:
    """Return the timeout of an order, in seconds. An order takes several requests; on a busy host all are late."""
    return 4 * answer_seconds()


def round_seconds() -> float:
    """Return the timeout of several requests that are sent at once, in seconds."""
    return 2 * answer_seconds()


def compute_stale_seconds() -> float:
    """Return after how many seconds without an answer the last observation of a plant is stale."""
    return 3 * answer_seconds()


class AnswerLimit:
    """The limit of one answer after another.

    `count` raises OSError rather than TimeoutError: a driver may take a TimeoutError to mean that no data has arrived
    yet, keep what it has, and continue.
    """

    def __init__(self, most_bytes: int, seconds: float) -> None:
        self._most_bytes, self._seconds = most_bytes, seconds
        self.begin()

    def begin(self) -> None:
        """Start counting another answer."""
        self._bytes, self._until = 0, float("inf")

    def count(self, size: int) -> None:
        """Count received bytes. Raise OSError if they are too many or arrive too slowly."""
        now = time.monotonic()
        if not self._bytes:
            self._until = now + self._seconds
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise OSError(f"its response has more than {self._most_bytes} bytes")
        if now > self._until:
            raise OSError(f"no complete response within {self._seconds:g} s")
