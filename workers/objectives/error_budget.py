"""Error budgets: how much of an objective may be missed, how fast the budget burns, and what is left.

An objective promises that at least a share of `target` of what is counted (seconds, events) is good.

    burn rate of w    (bad / total in w) / (1 - target)     1: the budget lasts exactly as long as its window
    left              (1 - target) * total - bad            of what was counted; below 0 it is overspent
    window budget     (1 - target) * total * W / n          W: minutes of the window, n: counted minutes

Loops act on the budget that is left, so that no loop spends the credit of future seconds. People see the budget of the
whole window, as if the rest of it resembled the counted part: 20 bad seconds in the first five minutes of an objective
do not use up the budget of a month.

Burn rates use two windows at once (Beyer et al., The Site Reliability Workbook, 5): the long one shows that the burn is
significant, the short one that it continues; the lower of both rates counts. Time that was not counted (no observer, or
unknown values) is in neither sum. A pair is unknown until as many minutes of its long window were counted as its short
window has, so a single bad minute after a start is not a burning hour.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.shedding.budgets import Budget, Level
from workers.documents.objectives import ObjectiveStatus
from workers.documents.snapshot import Snapshot

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BurnPair:
    """A long and a short window in minutes, and the burn rate in both that raises an alert."""

    name: str
    long_minutes: int
    short_minutes: int
    rate: float


# For a budget of 30 days: 2 % of it in 1 h, 5 % in 6 h, 10 % in 3 days.
PAIRS = (BurnPair("fast", 60, 5, 14.4), BurnPair("medium", 360, 30, 6.0), BurnPair("slow", 4_320, 360, 1.0))


@dataclass(frozen=True)
class PeriodCounts:
    """Counts of a period: the bad part, the total, and the number of minutes with counts."""

    bad: float
    total: float
    minutes: int


class MinuteCounts:
    """Counts of the newest minutes; the last is the current minute.

    A minute is stored at its remainder by the length of the window.
    """

    def __init__(self, minutes: int, now_minute: int) -> None:
        """Create counts for a window of `minutes`; `now_minute` is in minutes since 1970."""
        self._bad: Floats = np.zeros(minutes)
        self._total: Floats = np.zeros(minutes)
        self._now_minute = now_minute
        self._ended: dict[int, PeriodCounts] = {}  # window → its counts before the current minute

    def advance(self, minute: int) -> None:
        passed = minute - self._now_minute
        if passed <= 0:
            return  # after a clock was set back, new counts go where the clock says
        places = np.arange(minute - min(passed, self._bad.size) + 1, minute + 1) % self._bad.size
        self._bad[places] = self._total[places] = 0.0
        self._now_minute = minute
        self._ended.clear()

    def add(self, minute: int, bad: float, total: float) -> None:
        """Add to a minute; a minute older than the window is ignored."""
        self.advance(minute)
        if self._has(minute):
            self._bad[minute % self._bad.size] += bad
            self._total[minute % self._bad.size] += total
            if minute != self._now_minute:
                self._ended.clear()

    def get(self, minute: int) -> tuple[float, float]:
        """Return (bad, total) of a minute, or (0, 0) outside the window."""
        if not self._has(minute):
            return 0.0, 0.0
        place = minute % self._bad.size
        return float(self._bad[place]), float(self._total[place])

    def sum_newest(self, minutes: int) -> PeriodCounts:
        minutes = min(minutes, self._bad.size)
        if minutes not in self._ended:
            self._ended[minutes] = self._sum_closed_minutes(minutes)
        ended, (bad, total) = self._ended[minutes], self.get(self._now_minute)
        return PeriodCounts(ended.bad + bad, ended.total + total, ended.minutes + (total > 0))

    def _sum_closed_minutes(self, minutes: int) -> PeriodCounts:
        """Return the sum without the current minute. The sum is requested each second and changes once a minute."""
        places = np.arange(self._now_minute - minutes + 1, self._now_minute) % self._bad.size
        bad, total = self._bad[places], self._total[places]
        return PeriodCounts(float(bad.sum()), float(total.sum()), int(np.count_nonzero(total)))

    def sum_window(self) -> PeriodCounts:
        return self.sum_newest(self._bad.size)

    @property
    def minutes(self) -> int:
        return self._bad.size

    def _has(self, minute: int) -> bool:
        return 0 <= self._now_minute - minute < self._bad.size


def compute_burn_rate(counted: PeriodCounts, target: float) -> float | None:
    """Return the burn rate, or None if nothing was counted."""
    return counted.bad / counted.total / (1 - target) if counted.total > 0 else None


def pair_rate(counts: MinuteCounts, pair: BurnPair, target: float) -> float | None:
    """Return the lower burn rate of a pair's windows, or None while one is unknown."""
    long, short = counts.sum_newest(pair.long_minutes), counts.sum_newest(pair.short_minutes)
    rates = compute_burn_rate(long, target), compute_burn_rate(short, target)
    if long.minutes < pair.short_minutes or rates[0] is None or rates[1] is None:
        return None
    return min(rates[0], rates[1])


def compute_allowed(counted: PeriodCounts, target: float) -> float:
    return (1 - target) * counted.total


def compute_window_budget(counted: PeriodCounts, target: float, minutes: int) -> float | None:
    """Return how much may be bad in the whole window, or None if nothing was counted."""
    return compute_allowed(counted, target) * minutes / counted.minutes if counted.minutes else None


def compute_left_share(counted: PeriodCounts, target: float) -> float | None:
    """Return the share of the budget that is left, negative when overspent, or None if nothing was counted."""
    budget = compute_allowed(counted, target)
    return 1 - counted.bad / budget if budget > 0 else None


def list_budgets(
    level: Level, snapshot: Snapshot, queues: Collection[str], applications: Collection[str]
) -> list[Budget]:
    """Return the budgets of objectives that pay for a level and concern these queues or applications.

    Objectives about the whole plant are included.
    """
    subjects = {"queue": queues, "application": applications}
    return [
        Budget(level=level, name=name, left=row.left, share=row.left_share)
        for name, row in sorted(snapshot.objectives.items())
        if row.pays_for == level and _is_relevant(row, subjects.get(row.kind))
    ]


def _is_relevant(row: ObjectiveStatus, names: Collection[str] | None) -> bool:
    """Return whether an objective is relevant; one without a subject concerns all of its kind together."""
    return names is None or (row.subject in names if row.subject else bool(names))
