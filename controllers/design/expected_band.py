"""The expected band of a rate, computed from its own past.

    low = max(0, M - W), high = M + W, W = SPREAD · sqrt(D² + S²)

M and D are the mean and deviation that a `Forecaster` gives for `AHEAD_SECONDS` after its newest value, from means over
equal periods. S is the spread of minutes within a period, at least that of counts of independent events: S² =
max(median of squares / 0.455, M / 60 s). 0.455 is the median of χ² with one degree of freedom, so a single burst widens
nothing. With SPREAD = 3.29, one in a thousand normal minutes lies outside.

A band is computed that far ahead because a band that knew the previous minute would follow every fault.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.design.forecast import Forecaster

Floats = npt.NDArray[np.float64]
AHEAD_SECONDS, MINUTE_SECONDS, DAY_SECONDS = 900.0, 60.0, 86_400.0
SPREAD, CHI_SQUARED_MEDIAN = 3.29, 0.455
# A short past uses shorter periods, because the spread of a handful of means is unknown.
STRETCHES, MIN_STRETCHES = 32, 4


@dataclass(frozen=True)
class ForecastBand:
    """A band: `low` and `high` in events/s, and the `days` of the past behind it."""

    low: float
    high: float
    days: float

    def compute_relative_distance(self, rate_per_second: float) -> float:
        """Return the distance from the middle in half-widths of the band; more than 1 is outside."""
        half = max((self.high - self.low) / 2, 1e-9)
        return abs(rate_per_second - (self.high + self.low) / 2) / half


class BandForecaster:
    """Forecasts the band of one rate; keeps what its forecaster learned."""

    def __init__(self) -> None:
        self._forecaster = Forecaster(DAY_SECONDS)

    def predict_limits(self, at_seconds: Floats, rates_per_second: Floats, now_seconds: float) -> ForecastBand | None:
        """Return the band at `AHEAD_SECONDS` from now, or None if the past is too short.

        Raise `BadInput` as the forecaster does.
        """
        stretches = PastRanges.build(at_seconds, rates_per_second)
        if stretches.at_seconds.size < MIN_STRETCHES:
            return None
        ahead = np.asarray([now_seconds + AHEAD_SECONDS])
        mean, deviation = self._forecaster.predict_ahead(stretches.at_seconds, stretches.means, ahead)
        level = max(0.0, float(mean[0]))
        within = np.sqrt(max(stretches.spread_within**2, level / MINUTE_SECONDS))
        half = SPREAD * float(np.hypot(deviation[0], within))
        days = float(at_seconds[-1] - at_seconds[0]) / DAY_SECONDS
        return ForecastBand(max(0.0, level - half), level + half, days)


@dataclass(frozen=True)
class PastRanges:
    """Equal periods of the past, counted from its end, with their middles (s) and means.

    The spread is that of the minutes within the periods (events/s).
    """

    at_seconds: Floats
    means: Floats
    spread_within: float

    @classmethod
    def build(cls, at_seconds: Floats, rates_per_second: Floats) -> "PastRanges":
        if at_seconds.size == 0:
            return cls(at_seconds, rates_per_second, 0.0)
        newest = float(at_seconds.max())
        each_seconds = compute_period_seconds(newest - float(at_seconds.min()))
        number = ((newest - at_seconds) // each_seconds).astype(int)
        numbers, place = np.unique(number, return_inverse=True)
        counts = np.bincount(place)
        means = np.bincount(place, weights=rates_per_second) / counts
        # The mean of few values follows each of them.
        share = np.maximum(1 - 1 / counts, 0.0)[place]
        squares = (rates_per_second - means[place]) ** 2
        several = share > 0
        median = float(np.median(squares[several] / share[several])) if several.any() else 0.0
        middles = newest - (numbers + 0.5) * each_seconds
        return cls(middles[::-1], means[::-1], float(np.sqrt(median / CHI_SQUARED_MEDIAN)))


def compute_period_seconds(span_seconds: float) -> float:
    """Return the length of a period for a past of this length: from a minute to a 32nd of a day."""
    return min(max(span_seconds / STRETCHES, MINUTE_SECONDS), DAY_SECONDS / STRETCHES)
