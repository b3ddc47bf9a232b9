"""The arrival rate and the waiting time of tasks, from the counts of each observation.

A Celery message has no send time. But the number of tasks that have been started, S, and the number that wait now, W,
are known. So A = S + W tasks have arrived, and A(t) of all observations gives

    arrivals/s   (A(now) - A(then)) / (now - then)
    oldest       now - t with A(t) = A(now) - W: the arrival time of the task that is started next

A rate is computed from the last ENOUGH arrivals, over at least MIN_SECONDS and at most MAX_SECONDS. If one of the
SHORT_SECONDS windows has more or fewer arrivals than that rate predicts, by more than DEVIATIONS standard deviations of
a count, the load has changed, and older observations no longer count.

A never falls, but the counts can fall: S and W are not read at the same instant, so messages in flight are in neither
for a moment. A fall is made up by later arrivals. A fall that is larger, or that is not made up within FALL_SECONDS,
means that tasks disappeared without being started, for example because a queue was purged. A then continues from its
former value, as if these tasks had been started.
"""

import math
from collections import deque

ENOUGH, MIN_SECONDS, MAX_SECONDS = 30, 10.0, 600.0
SHORT_SECONDS, DEVIATIONS = (1.0, 3.0, 10.0, 30.0), 3.5
FALL_SECONDS = 5.0
# Number of observations that are kept: no waiting time further back is known.
REMEMBERED = 4_096


class Arrivals:
    """The arrivals of one stream of tasks. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._came: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)  # (time, total arrivals)
        self._since = -math.inf  # start of the current load
        self._waiting = 0.0
        self._gone = 0.0  # tasks that disappeared without being started
        self._fell_at: float | None = None  # since when the count is below the known arrivals

    def observe(self, at: float, started: float, waiting: float, under_way: float = 0.0) -> None:
        """Record the started tasks so far and the tasks that wait now.

        under_way: number of messages that may be in neither count.
        """
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
        """Return whether the missing tasks have disappeared, rather than being in flight."""
        self._fell_at = at if self._fell_at is None else self._fell_at
        usual = (self.per_second or 0.0) * FALL_SECONDS
        noise = 1 + under_way + usual + DEVIATIONS * math.sqrt(usual)
        return fall > noise or at - self._fell_at >= FALL_SECONDS

    @property
    def per_second(self) -> float | None:
        """Return the arrival rate, or None before two observations."""
        if len(self._came) < 2:
            return None
        now, came = self._came[-1]
        for at, before in reversed(self._came):
            span, growth = now - at, came - before
            if at <= self._since or span >= MAX_SECONDS or (growth >= ENOUGH and span >= MIN_SECONDS):
                break
        return growth / span

    @property
    def oldest_seconds(self) -> float:
        """Return how long the first task has waited, as far back as is recorded; 0 if none waits."""
        if self._waiting <= 0 or not self._came:
            return 0.0
        now, came = self._came[-1]
        return now - self._find_time(came - self._waiting)

    def _notice_change(self, now: float) -> None:
        for seconds in SHORT_SECONDS:
            usual, (span, growth) = self.per_second, self._sum_last_arrivals(seconds)
            if usual is None or span < seconds or now - span < self._since:
                return
            expected = usual * span
            if abs(growth - expected) > 1 + DEVIATIONS * math.sqrt(expected):
                self._since = now - span
                return

    def _sum_last_arrivals(self, seconds: float) -> tuple[float, float]:
        """Return the length of the last observations, at least `seconds`, and their arrivals."""
        now, came = self._came[-1]
        at, before = next((arrival for arrival in reversed(self._came) if now - arrival[0] >= seconds), self._came[0])
        return now - at, came - before

    def _find_time(self, came: float) -> float:
        """Return when `came` tasks had arrived, interpolated between the two surrounding observations."""
        later = self._came[-1]
        for earlier in reversed(self._came):
            if earlier[1] <= came:
                rise = later[1] - earlier[1]
                share = (came - earlier[1]) / rise if rise > 0 else 0.0
                return earlier[0] + share * (later[0] - earlier[0])
            later = earlier
        return later[0]
