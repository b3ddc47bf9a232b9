"""What of a promise may be missed, how fast that is used up, and what is left of it.

An objective promises that a share of at least `target` of what is counted (seconds, events) is good.

    burn rate of w    (bad / total in w) / (1 - target)     1: the budget lasts exactly as long as its window
    left              (1 - target) * total - bad            of what was counted; below 0 it is overspent
    window budget     (1 - target) * total * W / n          W: minutes of the window, n: that were counted

What is left steers: no loop spends on the credit of seconds that are yet to come. People see the budget of
the whole window, as if the rest of it were like what was counted: 20 bad seconds in an objective's first five
minutes are no month's budget.

Two windows at once (Beyer et al., The Site Reliability Workbook, 5): the long one says that it matters, the
short one that it goes on, so the lesser of both rates is judged. What was not counted (nobody watched, or
nothing was known) is in neither sum. A pair is unknown until as many minutes of its long window were counted
as its short one has: a single bad minute after a start is no burning hour.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BurnPair:
    """A long and a short window in minutes, and the burn rate of both that is worth an alert."""

    name: str
    long_minutes: int
    short_minutes: int
    rate: float


# Of a budget of 30 days: 2 % of it in 1 h, 5 % in 6 h, 10 % in 3 days.
PAIRS = (
    BurnPair("fast", 60, 5, 14.4),
    BurnPair("medium", 360, 30, 6.0),
    BurnPair("slow", 4_320, 360, 1.0),
)


@dataclass(frozen=True)
class Counted:
    """Of some time: what was bad, of how much; and in how many minutes anything was counted."""

    bad: float
    total: float
    minutes: int


class MinuteCounts:
    """What was counted in each of the newest minutes; the last of them is the running one. A minute has the
    place of its rest by the window's length."""

    def __init__(self, minutes: int, now_minute: int) -> None:
        """minutes: of the window; now_minute: since 1970."""
        self._bad: Floats = np.zeros(minutes)
        self._total: Floats = np.zeros(minutes)
        self._now_minute = now_minute
        self._ended: dict[int, Counted] = {}  # window → what was counted in it before the running minute

    def advance(self, minute: int) -> None:
        """The running minute is this one; what falls out of the window is forgotten."""
        passed = minute - self._now_minute
        if passed <= 0:
            return  # a clock that was set back: what comes is counted where it says
        places = np.arange(minute - min(passed, self._bad.size) + 1, minute + 1) % self._bad.size
        self._bad[places] = self._total[places] = 0.0
        self._now_minute = minute
        self._ended.clear()

    def add(self, minute: int, bad: float, total: float) -> None:
        """Count in a minute; one that is older than the window is not counted."""
        self.advance(minute)
        if self._has(minute):
            self._bad[minute % self._bad.size] += bad
            self._total[minute % self._bad.size] += total
            if minute != self._now_minute:
                self._ended.clear()

    def of(self, minute: int) -> tuple[float, float]:
        """(bad, total) of a minute; (0, 0) of one that is not in the window."""
        if not self._has(minute):
            return 0.0, 0.0
        place = minute % self._bad.size
        return float(self._bad[place]), float(self._total[place])

    def over(self, minutes: int) -> Counted:
        """Of the newest minutes, the running one included; no more than the window has."""
        minutes = min(minutes, self._bad.size)
        if minutes not in self._ended:
            self._ended[minutes] = self._summed(minutes)
        ended, (bad, total) = self._ended[minutes], self.of(self._now_minute)
        return Counted(ended.bad + bad, ended.total + total, ended.minutes + (total > 0))

    def _summed(self, minutes: int) -> Counted:
        """Of all but the running one: it is asked for each second, and they change once a minute."""
        places = np.arange(self._now_minute - minutes + 1, self._now_minute) % self._bad.size
        bad, total = self._bad[places], self._total[places]
        return Counted(float(bad.sum()), float(total.sum()), int(np.count_nonzero(total)))

    def whole(self) -> Counted:
        """Of the whole window."""
        return self.over(self._bad.size)

    @property
    def minutes(self) -> int:
        """Of the window."""
        return self._bad.size

    def _has(self, minute: int) -> bool:
        return 0 <= self._now_minute - minute < self._bad.size


def burn_rate(counted: Counted, target: float) -> float | None:
    """How many times as fast as it may be; None where nothing was counted."""
    return counted.bad / counted.total / (1 - target) if counted.total > 0 else None


def pair_rate(counts: MinuteCounts, pair: BurnPair, target: float) -> float | None:
    """The lesser burn rate of a pair's windows; None while one is not known."""
    long, short = counts.over(pair.long_minutes), counts.over(pair.short_minutes)
    rates = burn_rate(long, target), burn_rate(short, target)
    if long.minutes < pair.short_minutes or rates[0] is None or rates[1] is None:
        return None
    return min(rates[0], rates[1])


def allowed(counted: Counted, target: float) -> float:
    """How much of what was counted may be bad."""
    return (1 - target) * counted.total


def window_budget(counted: Counted, target: float, minutes: int) -> float | None:
    """How much may be bad in the whole window of so many minutes; None where nothing was counted."""
    return allowed(counted, target) * minutes / counted.minutes if counted.minutes else None


def left_share(counted: Counted, target: float) -> float | None:
    """The share of the budget that is left, below 0 where it is overspent; None where nothing was counted."""
    budget = allowed(counted, target)
    return 1 - counted.bad / budget if budget > 0 else None
