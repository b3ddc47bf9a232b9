"""The arrivals per interval and their forecast: level and trend, with a gain that accounts for noise.

Holt's linear smoothing; x is the number of events that arrived in an interval [events]:

    e = x - (L + T)                     the error of the forecast
    B = B + (e - B)/5                   its mean: a persistent bias
    D = D + (|e| - D)/5                 its mean size: noise
    a = |B| / D, within 0.1 .. 0.9      Trigg and Leach's tracking signal: errors that cancel lower the gain,
                                        errors of one sign (a step, a slope) raise it
    L = L + T + a e,   T = T + a g e    g: trend_gain

The forecast of n intervals ahead is the sum of L + kT for k = 1..n (a partial interval counts in part), less c times D:
a worker that should be full is better an interval late than empty. The forecast is at most n times twice the smaller of
the last two x: a spike of one interval raises L at once but does not predict the next interval; arrivals of two
intervals do.
"""

import math
from typing import Annotated

import msgspec

from common.parameter import value

GAIN = 0.2
MIN_GAIN, GREATEST_GAIN = 0.1, 0.9
# Maximum factor between the next interval's arrivals and the smaller of the last two intervals' arrivals.
MAX_RISE = 2.0
ONE_BY_ONE = 10_000  # intervals; the sum of more intervals is computed by its formula
LARGE = 1e16


class ArrivalRate(msgspec.Struct, frozen=True):
    """The estimate after some observations; all values in events per interval."""

    level: Annotated[float, value("events", "Arrivals per interval.", 0.0, LARGE)]
    trend: Annotated[float, value("events", "Growth of the arrivals per interval.", -LARGE, LARGE, required=True)] = 0.0
    bias: Annotated[float, value("events", "Mean error of the forecast.", -LARGE, LARGE, required=True)] = 0.0
    deviation: Annotated[float, value("events", "Mean absolute error of the forecast.", 0.0, LARGE, required=True)] = (
        0.0
    )
    # oldest first; fewer at the start
    recent: Annotated[
        tuple[float, ...], value("events", "Arrivals of the last two intervals.", 0.0, LARGE, most=2)
    ] = ()

    def update(self, arrived: float, trend_gain: float) -> "ArrivalRate":
        error = arrived - (self.level + self.trend)
        bias = self.bias + GAIN * (error - self.bias)
        deviation = self.deviation + GAIN * (abs(error) - self.deviation)
        signal = abs(bias) / deviation if deviation else 0.0
        gain = min(max(signal, MIN_GAIN), GREATEST_GAIN)
        level = max(0.0, self.level + self.trend + gain * error)
        recent = (*self.recent, arrived)[-2:]
        return ArrivalRate(level, self.trend + gain * trend_gain * error, bias, deviation, recent)

    def predict_ahead(self, intervals: float, caution: float = 0.0) -> float:
        """Return the arrivals expected within the next intervals, at least 0."""
        whole = math.floor(intervals)
        events = self._sum_future(whole) + (intervals - whole) * self._predict(whole + 1)
        expected = max(0.0, events - caution * self.deviation * min(1.0, intervals))
        if len(self.recent) < 2:
            return expected
        return min(expected, intervals * MAX_RISE * min(self.recent))

    def _sum_future(self, whole: int) -> float:
        """Return the arrivals of the next intervals.

        Few intervals are added one by one, many by the formula of the series, in which a falling trend ends at 0.
        """
        if whole <= ONE_BY_ONE:
            return sum(self._predict(k) for k in range(1, whole + 1))
        last = whole if self.trend >= 0 else min(whole, math.floor(min(self.level / -self.trend, float(whole))))
        return max(0.0, last * self.level + self.trend * last * (last + 1) / 2)

    def _predict(self, interval: int) -> float:
        return max(0.0, self.level + interval * self.trend)
