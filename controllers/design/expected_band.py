"""The band in which a rate is expected, from its own past.

    low = max(0, M - W), high = M + W, W = SPREAD · sqrt(D² + S²)

M, D: mean and deviation that a `Forecaster` gives for a time `AHEAD_SECONDS` after the newest it knows, from
means of stretches. S: how minutes spread within a stretch, and at least what counts of independent events do:
S² = max(median of squares / 0.455, M / 60 s), the median of χ² with one degree being 0.455, so that one
outburst widens nothing. Of normal minutes one in a thousand lies outside with SPREAD = 3.29.

A band is made so long before its time, since one that knew the minute before would follow whatever goes
wrong.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.design.forecast import Forecaster

Floats = npt.NDArray[np.float64]
AHEAD_SECONDS, MINUTE_SECONDS, DAY_SECONDS = 900.0, 60.0, 86_400.0
SPREAD, CHI_SQUARED_MEDIAN = 3.29, 0.455
# A short past gives finer means: from a handful nobody knows how much they vary.
STRETCHES, LEAST_STRETCHES = 32, 4


@dataclass(frozen=True)
class ForecastBand:
    """low, high: events/s. days: of the past that it rests on."""

    low: float
    high: float
    days: float

    def outside(self, rate_per_second: float) -> float:
        """How far a rate is from the middle, in halves of the band's width: more than 1 is outside."""
        half = max((self.high - self.low) / 2, 1e-9)
        return abs(rate_per_second - (self.high + self.low) / 2) / half


class BandForecaster:
    """Of one rate; remembers what its forecaster has learned."""

    def __init__(self) -> None:
        self._forecaster = Forecaster(DAY_SECONDS)

    def band(self, at_seconds: Floats, rates_per_second: Floats, now_seconds: float) -> ForecastBand | None:
        """For AHEAD_SECONDS from now, of the minutes of the past; None of too short a past. Raises BadInput
        as the forecaster does.
        """
        stretches = PastStretches.of(at_seconds, rates_per_second)
        if stretches.at_seconds.size < LEAST_STRETCHES:
            return None
        ahead = np.asarray([now_seconds + AHEAD_SECONDS])
        mean, deviation = self._forecaster.ahead(stretches.at_seconds, stretches.means, ahead)
        level = max(0.0, float(mean[0]))
        within = np.sqrt(max(stretches.spread_within**2, level / MINUTE_SECONDS))
        half = SPREAD * float(np.hypot(deviation[0], within))
        days = float(at_seconds[-1] - at_seconds[0]) / DAY_SECONDS
        return ForecastBand(max(0.0, level - half), level + half, days)


@dataclass(frozen=True)
class PastStretches:
    """Middles (s) and means of equal stretches of the past, counted from its end, and how the minutes within
    them spread (events/s).
    """

    at_seconds: Floats
    means: Floats
    spread_within: float

    @classmethod
    def of(cls, at_seconds: Floats, rates_per_second: Floats) -> "PastStretches":
        if at_seconds.size == 0:
            return cls(at_seconds, rates_per_second, 0.0)
        newest = float(at_seconds.max())
        each_seconds = stretch_seconds(newest - float(at_seconds.min()))
        number = ((newest - at_seconds) // each_seconds).astype(int)
        numbers, place = np.unique(number, return_inverse=True)
        counts = np.bincount(place)
        means = np.bincount(place, weights=rates_per_second) / counts
        # A mean of few is drawn towards each of them.
        share = np.maximum(1 - 1 / counts, 0.0)[place]
        squares = (rates_per_second - means[place]) ** 2
        several = share > 0
        median = float(np.median(squares[several] / share[several])) if several.any() else 0.0
        middles = newest - (numbers + 0.5) * each_seconds
        return cls(middles[::-1], means[::-1], float(np.sqrt(median / CHI_SQUARED_MEDIAN)))


def stretch_seconds(span_seconds: float) -> float:
    """So long is each stretch of a past of this length: from a minute to a 32nd of a day."""
    return min(max(span_seconds / STRETCHES, MINUTE_SECONDS), DAY_SECONDS / STRETCHES)
