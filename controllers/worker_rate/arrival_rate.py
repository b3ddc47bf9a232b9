"""How many events arrive per interval, and how many will: level and trend, with a gain that knows noise.

Holt's linear smoothing; x is what arrived in an interval [events]:

    e = x - (L + T)                     the error of the forecast
    B = B + (e - B)/5                   its mean: a bias that stays
    D = D + (|e| - D)/5                 its mean size: noise
    a = |B| / D, within 0.1 .. 0.9      Trigg and Leach's tracking signal: errors that cancel lower the gain,
                                        errors of one sign (a step, a slope) raise it
    L = L + T + a e,   T = T + a g e    g: trend_gain

The forecast of n intervals ahead is the sum of L + kT for k = 1..n (a part of an interval counts in part),
less c times D: who plans by it (a worker that should be full) would rather be late by an interval than empty.
It is at most n times twice the smaller of the last two x: a spike of one interval raises L at once, and says
nothing of the next; what came in two intervals does.
"""

import math
from dataclasses import dataclass

from controllers.framework.decision import Json
from controllers.framework.parameter import Parameter

GAIN = 0.2
LEAST_GAIN, GREATEST_GAIN = 0.1, 0.9
# How much more than in each of the last two intervals is believed to come in the next.
MOST_RISE = 2.0
ONE_BY_ONE = 10_000  # intervals; of more a sum is taken by its formula
LARGE = 1e16
ARRIVALS = (
    Parameter("level", "events", "Events per interval.", None, 0.0, LARGE, required=True),
    Parameter("trend", "events", "Its growth per interval.", None, -LARGE, LARGE, required=True),
    Parameter("bias", "events", "Mean error of the forecast.", None, -LARGE, LARGE, required=True),
    Parameter("deviation", "events", "Mean size of the error.", None, 0.0, LARGE, required=True),
    Parameter("recent", "events", "What arrived in the last two.", [], 0.0, LARGE, "numbers", most=2),
)


@dataclass(frozen=True)
class ArrivalRate:
    """The estimate after some observations; all in events per interval.

    `recent`: what arrived in the last two, oldest first; fewer before that.
    """

    level: float
    trend: float = 0.0
    bias: float = 0.0
    deviation: float = 0.0
    recent: tuple[float, ...] = ()

    def after(self, arrived: float, trend_gain: float) -> "ArrivalRate":
        """The estimate after one more interval in which so many events arrived."""
        error = arrived - (self.level + self.trend)
        bias = self.bias + GAIN * (error - self.bias)
        deviation = self.deviation + GAIN * (abs(error) - self.deviation)
        signal = abs(bias) / deviation if deviation else 0.0
        gain = min(max(signal, LEAST_GAIN), GREATEST_GAIN)
        level = max(0.0, self.level + self.trend + gain * error)
        recent = (*self.recent, arrived)[-2:]
        return ArrivalRate(level, self.trend + gain * trend_gain * error, bias, deviation, recent)

    def ahead(self, intervals: float, caution: float = 0.0) -> float:
        """Events that arrive within the next intervals, never fewer than none."""
        whole = math.floor(intervals)
        events = self._within(whole) + (intervals - whole) * self._at(whole + 1)
        expected = max(0.0, events - caution * self.deviation * min(1.0, intervals))
        if len(self.recent) < 2:
            return expected
        return min(expected, intervals * MOST_RISE * min(self.recent))

    def _within(self, whole: int) -> float:
        """Of the next intervals, one by one; of very many by the series: a falling trend ends at none."""
        if whole <= ONE_BY_ONE:
            return sum(self._at(k) for k in range(1, whole + 1))
        last = (
            whole if self.trend >= 0 else min(whole, math.floor(min(self.level / -self.trend, float(whole))))
        )
        return max(0.0, last * self.level + self.trend * last * (last + 1) / 2)

    def _at(self, interval: int) -> float:
        return max(0.0, self.level + interval * self.trend)

    def to_json(self) -> dict[str, Json]:
        """As the law's state holds it."""
        return {
            "level": self.level,
            "trend": self.trend,
            "bias": self.bias,
            "deviation": self.deviation,
            "recent": list(self.recent),
        }
