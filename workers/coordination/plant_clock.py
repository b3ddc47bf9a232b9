"""The common clock of a plant, independent of its hosts' clocks: the control server's.

Times that one host writes and another evaluates (a task's expiry, a worker's sign of life) use it. It is queried rarely
and advances in between by the host's monotonic clock.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import cache

import redis

from workers.coordination.connections import control_server

ASK_SECONDS = 10.0
STEP_SECONDS = 0.5  # a larger difference means that the host's clock was set
SLOW_SECONDS = 0.5  # a slower answer is less accurate than the known value
CLOCK_TIMEOUT_SECONDS = 2.0


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
    return PlantClock(lambda: read_clock(control_server(CLOCK_TIMEOUT_SECONDS, acknowledged=False)))


def read_clock(control: redis.Redis) -> float:
    """Return the time of a server's clock, s since 1970."""
    seconds, microseconds = control.time()
    return float(seconds + microseconds / 1e6)


MAX_LAG_SECONDS = 1.0


class Freshness:
    """Ages of marks (a sequence number, a time stamp) that change with every sign of life."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def compute_age_seconds(self, name: str, mark: Hashable, now_seconds: float, lag_seconds: float = 0.0) -> float:
        """Return the seconds since the mark changed.

        `lag_seconds` is the age that the mark itself claims (wall clock now - its time stamp). It is used at first,
        when nothing better is known; later only up to MAX_LAG_SECONDS, so that a clock that jumps has no effect.
        """
        known = self._seen.get(name)
        if known is None or known[0] != mark:
            lag = max(0.0, lag_seconds)
            since = now_seconds - (lag if known is None else min(lag, MAX_LAG_SECONDS))
            self._seen[name] = known = (mark, since)
        return now_seconds - known[1]

    def forget_others(self, kind: str, names: Iterable[str]) -> None:
        """Forget the marks whose names start with the kind and "/", except those with these names."""
        there = {f"{kind}/{name}" for name in names}
        for name in [
            mark_name for mark_name in self._seen if mark_name.startswith(f"{kind}/") and mark_name not in there
        ]:
            del self._seen[name]
