"""The forecast of a rate and its expected band, computed from its own past.

    low = max(0, M - W), high = M + W, W = SPREAD · sqrt(D² + S²)

M and D are the mean and deviation that a `Forecaster` gives for `AHEAD_SECONDS` after its newest value, from means over
periods. S is the spread of minutes within a period, at least that of counts of independent events: S² = max(median of
squares / 0.455, M / 60 s). 0.455 is the median of χ² with one degree of freedom, so a single burst widens nothing. With
SPREAD = 3.29, one in a thousand normal minutes lies outside.

A band is computed that far ahead because a band that knew the previous minute would follow every fault.

The forecast is needed for the next minutes only, and a ramp repeats at the same time of day. Periods near that time, on
each day, therefore last `NEAR_SECONDS`, and all others up to `MAX_PERIOD_SECONDS`: with equal periods of 45 minutes, a
ramp would be averaged over them.

Change points: the minutes at which a rate moved to another level and stayed there.

The minutes are smoothed by the median of 5, so that a burst has no effect. A range of n minutes is split where

    T(k) = |m₁ - m₂| · √(k·(n - k)/n) / σ

is greatest (m₁, m₂: means of the first k minutes and of the rest), and its parts are split in turn while T > √(2·ln n)
+ 2: binary segmentation (Vostrikova, 1981), with the bound that the maximum of n values requires.

    σ² = max(½·d₁·(1 + ρ)/(1 - ρ)², m/60 s) · π/2

is the variance of a mean of minutes whose neighbors have the correlation ρ = d₂/d₁ - 1. The dⱼ are upper quartiles of
squared differences of minutes j apart, divided by 1.323, the quartile of χ². A change of level affects few differences,
so it does not count. m/60 s is the variance of counts of independent events.

A split is a change if a step accounts for `ABRUPT` of m₁ - m₂ next to a slope, both fitted to the 10 minutes before and
after, and if the step and the levels differ by `MIN_SHARE` of the higher level. A slope alone is no change.
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
NEAR_SECONDS, MAX_PERIOD_SECONDS = 180.0, 7_200.0
# The times of day that count as near, relative to that of the newest value.
NEAR_BEFORE_SECONDS, NEAR_AFTER_SECONDS = 1_200.0, 1_500.0


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


@dataclass(frozen=True)
class RateForecast:
    """The forecast of a rate: mean and deviation (events/s) at the requested times, and the band."""

    mean: Floats
    deviation: Floats
    band: ForecastBand


class RateForecaster:
    """Forecasts one rate; keeps what its forecaster learned."""

    def __init__(self) -> None:
        self._forecaster = Forecaster(DAY_SECONDS)

    def predict(
        self, at_seconds: Floats, rates_per_second: Floats, now_seconds: float, ahead_seconds: Floats
    ) -> RateForecast | None:
        """Return the forecast at these times and the band at `AHEAD_SECONDS` from now; None if the past is too short.

        Raise `BadInput` as the forecaster does.
        """
        stretches = PastRanges.build(at_seconds, rates_per_second)
        if stretches.at_seconds.size < MIN_STRETCHES:
            return None
        ahead = np.append(ahead_seconds, now_seconds + AHEAD_SECONDS)
        mean, deviation = self._forecaster.predict_ahead(stretches.at_seconds, stretches.means, ahead)
        level = max(0.0, float(mean[-1]))
        within = np.sqrt(max(stretches.spread_within**2, level / MINUTE_SECONDS))
        half = SPREAD * float(np.hypot(deviation[-1], within))
        days = float(at_seconds[-1] - at_seconds[0]) / DAY_SECONDS
        band = ForecastBand(max(0.0, level - half), level + half, days)
        return RateForecast(np.maximum(mean[:-1], 0.0), deviation[:-1], band)


@dataclass(frozen=True)
class PastRanges:
    """Periods of the past, counted from its end, with their mean times (s) and mean rates.

    The spread is that of the minutes within the periods (events/s).
    """

    at_seconds: Floats
    means: Floats
    spread_within: float

    @classmethod
    def build(cls, at_seconds: Floats, rates_per_second: Floats) -> "PastRanges":
        if at_seconds.size == 0:
            return cls(at_seconds, rates_per_second, 0.0)
        back = float(at_seconds.max()) - at_seconds
        span = float(back.max())
        period = compute_period_seconds(span)
        of_day = (DAY_SECONDS / 2 - back) % DAY_SECONDS - DAY_SECONDS / 2
        near = (of_day >= -NEAR_BEFORE_SECONDS) & (of_day < NEAR_AFTER_SECONDS)
        number = np.where(near, back // min(period, NEAR_SECONDS), -1 - back // period).astype(int)
        _, place, counts = np.unique(number, return_inverse=True, return_counts=True)
        times = np.bincount(place, weights=at_seconds) / counts
        means = np.bincount(place, weights=rates_per_second) / counts
        # The mean of few values follows each of them.
        share = np.maximum(1 - 1 / counts, 0.0)[place]
        squares = (rates_per_second - means[place]) ** 2
        # Long periods contain slopes. A short past has too few near ones.
        several = (share > 0) & (near | (span < DAY_SECONDS))
        median = float(np.median(squares[several] / share[several])) if several.any() else 0.0
        order = np.argsort(times)
        return cls(times[order], means[order], float(np.sqrt(median / CHI_SQUARED_MEDIAN)))


def compute_period_seconds(span_seconds: float) -> float:
    """Return the length of a period for a past of this length: a 32nd of it, from a minute to two hours."""
    return min(max(span_seconds / STRETCHES, MINUTE_SECONDS), MAX_PERIOD_SECONDS)


SMOOTHED, MIN_MINUTES, LEVEL_MINUTES = 5, 10, 60
ABRUPT, MIN_SHARE = 0.5, 0.2
QUARTILE, CHI_SQUARED_QUARTILE = 0.75, 1.323
MAX_CORRELATION, MIN_RATE = 0.8, 1e-9
# The step's row of the pseudo-inverse of (1, time, step) over the minutes around a split.
_AROUND = np.arange(2 * MIN_MINUTES)
_STEP = np.linalg.pinv(np.column_stack([np.ones(_AROUND.size), _AROUND, _AROUND >= MIN_MINUTES]))[2]


@dataclass(frozen=True)
class ChangePoint:
    """A change of level.

    `at_seconds` is the middle of the first minute of the new level. `before` and `after` are the levels in events/s, as
    medians of up to an hour since the previous change and until the next.
    """

    at_seconds: float
    before: float
    after: float


def change_points(at_seconds: Floats, rates_per_second: Floats) -> list[ChangePoint]:
    """Find the changes in minutes sorted by time (both arrays have one length), earliest first.

    A change is found once its level has lasted `MIN_MINUTES`.
    """
    if rates_per_second.size < 2 * MIN_MINUTES:
        return []
    half = SMOOTHED // 2
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(rates_per_second, half, mode="edge"), SMOOTHED)
    smooth = np.asarray(np.median(windows, axis=1), dtype=float)
    splits = _list_splits(smooth, _estimate_deviation(rates_per_second))
    steps = [
        (place, abs(jump), -float(_STEP @ smooth[place - MIN_MINUTES : place + MIN_MINUTES]) * np.sign(jump))
        for place, jump in splits
    ]
    abrupt = [(place, step) for place, jump, step in steps if step >= ABRUPT * jump]
    levels = _compute_levels(rates_per_second, [place for place, _ in abrupt])
    return [
        ChangePoint(float(at_seconds[place]), before, after)
        for (place, step), (before, after) in zip(abrupt, levels, strict=True)
        if min(step, abs(after - before)) >= max(MIN_SHARE * max(before, after), MIN_RATE)
    ]


def _estimate_deviation(rates: Floats) -> float:
    """Return σ: the deviation of the mean of n minutes, times √n."""
    near, far = (float(np.quantile((rates[step:] - rates[:-step]) ** 2, QUARTILE)) for step in (1, 2))
    correlation = min(max(far / near - 1, 0.0), MAX_CORRELATION) if near > 0 else 0.0
    measured = near / CHI_SQUARED_QUARTILE / 2 * (1 + correlation) / (1 - correlation) ** 2
    counted = float(np.mean(rates)) / MINUTE_SECONDS
    return float(np.sqrt(max(measured, counted) * np.pi / 2))


def _list_splits(smooth: Floats, deviation: float) -> list[tuple[int, float]]:
    """Return (first minute after it, m₁ - m₂) for every split."""
    sums = np.concatenate([[0.0], np.cumsum(smooth)])
    splits, open_stretches = [], [(0, smooth.size)]
    while open_stretches:
        begin, end = open_stretches.pop()
        size = end - begin
        if size < 2 * MIN_MINUTES:
            continue
        before = np.arange(MIN_MINUTES, size - MIN_MINUTES + 1)
        jumps = (sums[begin + before] - sums[begin]) / before - (sums[end] - sums[begin + before]) / (size - before)
        weighed = np.abs(jumps) * np.sqrt(before * (size - before) / size)
        best = int(np.argmax(weighed))
        if weighed[best] <= deviation * (np.sqrt(2 * np.log(size)) + 2):
            continue
        place = begin + int(before[best])
        splits.append((place, float(jumps[best])))
        open_stretches += [(begin, place), (place, end)]
    return sorted(splits)


def _compute_levels(rates: Floats, places: list[int]) -> list[tuple[float, float]]:
    """Return the levels before and after each place: the median of up to `LEVEL_MINUTES` without another place."""
    edges = [0, *places, rates.size]
    return [
        (
            float(np.median(rates[max(earlier, place - LEVEL_MINUTES) : place])),
            float(np.median(rates[place : min(later, place + LEVEL_MINUTES)])),
        )
        for earlier, place, later in zip(edges, places, edges[2:], strict=False)
    ]
