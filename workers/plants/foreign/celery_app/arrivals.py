"""How fast tasks come and how long they wait, from what was counted at each observation.

A message of Celery carries no time of its sending. But the tasks that were started so far, S, and those that
wait now, W, are known, so A = S + W have come, and A(t) of all observations gives

    arrivals/s   (A(now) - A(then)) / (now - then)
    oldest       now - t with A(t) = A(now) - W: when that came which is the first to be started

A rate is of the last ENOUGH arrivals, of LEAST_SECONDS at least and MOST_SECONDS at most. Where one of
SHORT_SECONDS brings more or less than that rate does, by more than DEVIATIONS standard deviations of a count,
the load has changed, and what was before no longer counts.

A never falls, but what is counted does: S and W are not of one instant, so messages on their way are in
neither, for moments. A fall is made up by what comes next. One that is more than that, or is not made up
within FALL_SECONDS, is of tasks that went without being started, such as those of a queue that was purged: A
goes on from what it was, as if they had been.
"""

import math
from collections import deque

ENOUGH, LEAST_SECONDS, MOST_SECONDS = 30, 10.0, 600.0
SHORT_SECONDS, DEVIATIONS = (1.0, 3.0, 10.0, 30.0), 3.5
FALL_SECONDS = 5.0
# So many observations are remembered: no wait is known to be longer.
REMEMBERED = 4_096


class Arrivals:
    """Of one stream of tasks. Times are of a clock that only goes forward, in seconds."""

    def __init__(self) -> None:
        self._came: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)  # when, so many so far
        self._since = -math.inf  # from when on the load is what it is
        self._waiting = 0.0
        self._gone = 0.0  # tasks that went without being started
        self._fell_at: float | None = None  # since when fewer are counted than came

    def observe(self, at: float, started: float, waiting: float, under_way: float = 0.0) -> None:
        """started: tasks so far; waiting: tasks now. under_way: so many messages may be in neither."""
        if self._came and at <= self._came[-1][0]:
            return
        came = started + waiting + self._gone
        before = self._came[-1][1] if self._came else came
        if came < before and self._is_gone(at, before - came, under_way):
            self._gone += before - came
            came, self._fell_at = before, None
        elif came >= before:
            self._fell_at = None
        self._came.append((at, max(before, came)))
        self._waiting = waiting
        self._notice_change(at)

    def _is_gone(self, at: float, fall: float, under_way: float) -> bool:
        """Or else is made up soon."""
        self._fell_at = at if self._fell_at is None else self._fell_at
        usual = (self.per_second or 0.0) * FALL_SECONDS
        noise = 1 + under_way + usual + DEVIATIONS * math.sqrt(usual)
        return fall > noise or at - self._fell_at >= FALL_SECONDS

    @property
    def per_second(self) -> float | None:
        """None before two observations."""
        if len(self._came) < 2:
            return None
        now, came = self._came[-1]
        for at, before in reversed(self._came):
            span, growth = now - at, came - before
            if at <= self._since or span >= MOST_SECONDS or (growth >= ENOUGH and span >= LEAST_SECONDS):
                break
        return growth / span

    @property
    def oldest_seconds(self) -> float:
        """How long the first has waited, as far back as is remembered; 0 where nothing waits."""
        if self._waiting <= 0 or not self._came:
            return 0.0
        now, came = self._came[-1]
        return now - self._find_time(came - self._waiting)

    def _notice_change(self, now: float) -> None:
        for seconds in SHORT_SECONDS:
            usual, (span, growth) = self.per_second, self._last(seconds)
            if usual is None or span < seconds or now - span < self._since:
                return
            expected = usual * span
            if abs(growth - expected) > 1 + DEVIATIONS * math.sqrt(expected):
                self._since = now - span
                return

    def _last(self, seconds: float) -> tuple[float, float]:
        """Of the last observations over so many seconds at least: over how many, and how many came."""
        now, came = self._came[-1]
        at, before = next(
            (arrival for arrival in reversed(self._came) if now - arrival[0] >= seconds), self._came[0]
        )
        return now - at, came - before

    def _find_time(self, came: float) -> float:
        """When so many had come, on the line between the two observations around that."""
        later = self._came[-1]
        for earlier in reversed(self._came):
            if earlier[1] <= came:
                rise = later[1] - earlier[1]
                share = (came - earlier[1]) / rise if rise > 0 else 0.0
                return earlier[0] + share * (later[0] - earlier[0])
            later = earlier
        return later[0]
