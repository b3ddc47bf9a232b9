"""The common clock of a plant, independent of its hosts' clocks: the control server's.

Times that one host writes and another evaluates (a task's expiry, a worker's sign of life) use it. It is queried rarely
and advances in between by the host's monotonic clock.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import redis

from workers.coordination.connections import control_server

ASK_SECONDS = 10.0
STEP_SECONDS = 0.5  # a larger difference means that the host's clock was set
SLOW_SECONDS = 0.5  # a slower answer is less accurate than the known value
TIMEOUT_SECONDS = 2.0


class PlantClock:
    """The plant's clock.

    ask: returns the control server's time, s since 1970; raises `redis.RedisError` while it is away.
    """

    def __init__(
        self,
        ask: Callable[[], float],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._wall, self._monotonic = ask, wall, monotonic
        self._asked_at: float | None = None
        self._stepped = 0.0  # the host's clock minus its monotonic clock at the query
        self._behind = 0.0  # the server's clock minus the host's monotonic clock
        self._is_known = False  # whether the server has ever answered

    def get_unix_time(self) -> float:
        """Return the seconds since 1970, from the host's clock before the control server's first answer."""
        wall, monotonic = self._wall(), self._monotonic()
        if self._is_due(wall, monotonic):
            self._follow(wall, monotonic)
        return self._monotonic() + self._behind

    def compute_ahead_seconds(self) -> float:
        """Return how far the host's clock is ahead of the plant's."""
        return self._wall() - self.get_unix_time()

    def _is_due(self, wall: float, monotonic: float) -> bool:
        if self._asked_at is None or monotonic - self._asked_at >= ASK_SECONDS:
            return True
        return abs(wall - monotonic - self._stepped) > STEP_SECONDS

    def _follow(self, wall: float, monotonic: float) -> None:
        if self._asked_at is None:
            self._behind = wall - monotonic
        self._asked_at, self._stepped = monotonic, wall - monotonic
        with suppress(redis.RedisError):
            shown, answered = self._ask(), self._monotonic()
            if not self._is_known or answered - monotonic <= SLOW_SECONDS:
                self._behind, self._is_known = shown - (monotonic + answered) / 2, True


@cache
def get_plant_clock() -> PlantClock:
    """Return this process's plant clock."""
    return PlantClock(lambda: read_clock(control_server(TIMEOUT_SECONDS, acknowledged=False)))


def read_clock(control: redis.Redis) -> float:
    """Return the time of a server's clock, s since 1970."""
    seconds, microseconds = control.time()
    return float(seconds + microseconds / 1e6)
