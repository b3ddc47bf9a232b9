"""The one clock of a plant, whatever the clocks of its hosts say: the control server's.

What one host writes down and another judges by the time (a task's end, a worker's sign of life) is by it.
Asked rarely, it goes on in between by the host's monotonic clock.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import redis

from workers.coordination.connections import control_server

ASK_SECONDS = 10.0
STEP_SECONDS = 0.5  # by so much the host's clock was set, and not kept right
SLOW_SECONDS = 0.5  # an answer that takes longer says less than what is known
TIMEOUT_SECONDS = 2.0


class PlantClock:
    """ask: what the control server's clock shows, s since 1970; raises `redis.RedisError` while away."""

    def __init__(
        self,
        ask: Callable[[], float],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._wall, self._monotonic = ask, wall, monotonic
        self._asked_at: float | None = None
        self._stepped = 0.0  # the host's clock beside its monotonic one, when it was asked
        self._behind = 0.0  # the host's monotonic clock behind the server's
        self._is_known = False  # whether the server has ever answered

    def now(self) -> float:
        """Seconds since 1970. The host's own while the control server has never answered."""
        wall, monotonic = self._wall(), self._monotonic()
        if self._is_due(wall, monotonic):
            self._follow(wall, monotonic)
        return self._monotonic() + self._behind

    def ahead_seconds(self) -> float:
        """How far the host's clock is ahead of it."""
        return self._wall() - self.now()

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
def plant_clock() -> PlantClock:
    """This process's."""
    return PlantClock(lambda: read_clock(control_server(TIMEOUT_SECONDS, acknowledged=False)))


def read_clock(control: redis.Redis) -> float:
    """What the clock of a server shows, s since 1970."""
    seconds, microseconds = control.time()
    return float(seconds + microseconds / 1e6)
