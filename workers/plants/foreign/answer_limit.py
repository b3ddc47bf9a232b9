"""How much of one answer of somebody else's server is taken: so many bytes, within so long of the first.

Drivers hold an answer in memory until it is whole, take as much as comes, and for as long as something comes:
their time limits are of one read each.
"""

import time

from queues import environment as variables


def answer_seconds() -> float:
    """How long a server may take to answer, s. Raises BadInput naming the variable that says it."""
    return variables.PLANT_TIMEOUT_SECONDS.seconds()


def order_seconds() -> float:
    """How long an order may take, which is of several requests, s; on a busy host all of them are late."""
    return 4 * answer_seconds()


def round_seconds() -> float:
    """How long several questions may take that are asked at once, s."""
    return 2 * answer_seconds()


def stale_seconds() -> float:
    """How long a plant may give no answer before what was seen of it is old, s."""
    return 3 * answer_seconds()


class AnswerLimit:
    """Of one answer after the other. `count` raises OSError, and no TimeoutError: that one a driver may take
    for nothing having come yet, keep what has, and go on.
    """

    def __init__(self, most_bytes: int, seconds: float) -> None:
        self._most_bytes, self._seconds = most_bytes, seconds
        self.begin()

    def begin(self) -> None:
        """What comes from now on is of another answer."""
        self._bytes, self._until = 0, float("inf")

    def count(self, size: int) -> None:
        """So many bytes have come. Raises OSError where they are too many, or come too slowly."""
        now = time.monotonic()
        if not self._bytes:
            self._until = now + self._seconds
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise OSError(f"its answer has more than {self._most_bytes} bytes")
        if now > self._until:
            raise OSError(f"no whole answer within {self._seconds:g} s")
