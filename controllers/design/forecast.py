"""Forecast of the offered load by a Gaussian process, and the load that a number of tasks misses.

Sources: Zacheilas; Stutz, 8. Times are in days, so that all features have one unit (ERRATA E34): distance on the circle
of the day d, on the circle of the week w, and elapsed time e. The kernel is symmetric,

    k = σ² (s exp(-½ (|d|/λ_d + |w|/λ_w + |e|/λ_e)) + (1 - s) exp(-½ |e|/λ_n) + n [same])

with a repeating part, a current part, and noise. σ² follows from the data; s, n, and the λ maximize the marginal
likelihood, one after the other, by doubling and halving (at most `CLIMBS` rounds). The likeliest scale is chosen too:
the rates, their roots, or their logarithms. Cost: O(n³) with n at most `MAX_POINTS`, the newest points; a fit starts
from the previous λ and is repeated when the data has grown by a quarter or by two days.

After a calm hour the process underestimates the hours that it has not seen. While less than a day is known, the
deviation is at least a share of the mean, which decreases to 0 over the first day.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import scipy

from common.errors import BadInput

Floats = npt.NDArray[np.float64]
MAX_POINTS, CLIMBS, GROWTH, REFIT_DAYS = 240, 3, 0.25, 2.0
WEEK_DAYS = 7.0
# Powers of the scales, and the share of the mean below which a rate counts as 0.
SCALES, MIN_SHARE = (1.0, 0.5, 0.0), 0.1
MAX_SPREAD = 1.0
# Deviation, as a share of the forecast, at the start of the first day.
UNSEEN_SHARE = 0.3
# Points that represent a normal distribution (Gauss-Hermite).
POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
CHANCES = _WEIGHTS / _WEIGHTS.sum()
# Bounds of λ (days) and of the shares; beyond them, no data could show a difference.
LIMITS: Mapping[str, tuple[float, float]] = {
    "day": (0.02, 2.0),
    "week": (0.2, 64.0),
    "elapsed": (2.0, 256.0),
    "now": (0.01, 8.0),
    "seasonal": (0.02, 0.98),
    "noise": (1e-4, 1.0),
}


@dataclass(frozen=True)
class Kernel:
    """The λ (days), the seasonal share s, and the noise n."""

    day: float = 0.25
    week: float = 8.0
    elapsed: float = 16.0
    now: float = 0.25
    seasonal: float = 0.5
    noise: float = 0.01

    def compute_covariance(self, left_days: Floats, right_days: Floats) -> Floats:
        """Return k / σ² without the noise, left by right."""
        elapsed = np.abs(left_days[:, None] - right_days[None, :])
        season = (
            _compute_arc(elapsed, 1.0) / self.day
            + _compute_arc(elapsed, WEEK_DAYS) / self.week
            + elapsed / self.elapsed
        )
        repeated = self.seasonal * np.exp(-0.5 * season)
        return np.asarray(repeated + (1 - self.seasonal) * np.exp(-0.5 * elapsed / self.now))

    def list_neighbors(self, name: str) -> "list[Kernel]":
        """Return half and double of one value within its limits; for a share, of its odds."""
        low, high = LIMITS[name]
        value = getattr(self, name)
        if name == "seasonal":
            odds = value / (1 - value)
            near = [3 * odds / (1 + 3 * odds), odds / (3 + odds)]
        else:
            near = [2 * value, value / 2]
        return [replace(self, **{name: min(max(kernel, low), high)}) for kernel in near]


def _compute_arc(elapsed: Floats, round_days: float) -> Floats:
    rest = elapsed % round_days
    return np.minimum(rest, round_days - rest)


@dataclass(frozen=True)
class PointProcess:
    """A process through points; `ahead` evaluates it at any time."""

    kernel: Kernel
    at_days: Floats
    level: float
    variance: float  # σ²
    log_likelihood: float
    _factor: tuple[Floats, bool] = field(repr=False)
    _weights: Floats = field(repr=False)

    @classmethod
    def fit_variance(cls, kernel: Kernel, at_days: Floats, values: Floats) -> "PointProcess":
        """Return the process with the σ² that maximizes the likelihood of the values."""
        level = float(values.mean())
        around, count = values - level, len(values)
        covariance = kernel.compute_covariance(at_days, at_days)
        covariance[np.diag_indices(count)] += kernel.noise
        factor = scipy.linalg.cho_factor(covariance, lower=True, check_finite=False)
        weights = scipy.linalg.cho_solve(factor, around, check_finite=False)
        variance = max(float(around @ weights) / count, 1e-12)
        determinant = 2 * float(np.log(np.diag(factor[0])).sum())
        likelihood = -0.5 * (count * math.log(variance) + determinant)
        return cls(kernel, at_days, level, variance, likelihood, factor, weights)

    def predict_ahead(self, at_days: Floats) -> tuple[Floats, Floats]:
        between = self.kernel.compute_covariance(at_days, self.at_days)
        known = scipy.linalg.cho_solve(self._factor, between.T, check_finite=False)
        left = 1 + self.kernel.noise - np.einsum("ij,ji->i", between, known)
        return self.level + between @ self._weights, np.sqrt(self.variance * np.maximum(left, 0.0))


def find_likeliest_process(at_days: Floats, values: Floats, start: Kernel) -> PointProcess:
    best = PointProcess.fit_variance(start, at_days, values)
    for _ in range(CLIMBS):
        before = best
        for name in LIMITS:
            near = [PointProcess.fit_variance(other, at_days, values) for other in best.kernel.list_neighbors(name)]
            best = max([best, *near], key=lambda process: process.log_likelihood)
        if best is before:
            break
    return best


@dataclass(frozen=True)
class Scale:
    """The scale of Box and Cox: y = (x^power - 1) / power, or log x for power 0.

    On this scale the forecast error does not depend on the level.
    """

    power: float

    def transform(self, rates: Floats) -> Floats:
        """Return rates above 0 on this scale."""
        return np.asarray(scipy.special.boxcox(rates, self.power))

    def log_slope(self, rates: Floats) -> float:
        """Return Σ log dy/dx, which makes likelihoods of different scales comparable."""
        return (self.power - 1) * float(np.log(rates).sum())

    def back(self, mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
        # A wider spread of logarithms means that nothing is known, not that any rate may come.
        spread = deviation if self.power else np.minimum(deviation, MAX_SPREAD)
        scaled = mean + POINTS[:, None] * spread
        if self.power:
            scaled = np.maximum(scaled, -1 / self.power)  # no rate is below 0
        values = scipy.special.inv_boxcox(scaled, self.power)
        expected = CHANCES @ values
        return expected, np.sqrt(CHANCES @ (values - expected) ** 2)


class Forecaster:
    """Forecasts a rate from its past; keeps the kernel and the scale."""

    def __init__(self, day_seconds: float) -> None:
        self._day_seconds = day_seconds
        self._kernels, self._scale = dict.fromkeys(SCALES, Kernel()), Scale(1.0)
        # Days since an arbitrary start, on a plant since 1970. Knowledge begins with the first value.
        self._first_days, self._fitted_days = math.inf, -math.inf

    def predict_ahead(
        self, at_seconds: Floats, rates_per_second: Floats, ahead_seconds: Floats
    ) -> tuple[Floats, Floats]:
        """Return the mean and deviation (events/s) at future times, given past rates.

        Raise `BadInput` for an empty past or arrays of different lengths.
        """
        if at_seconds.size == 0 or at_seconds.shape != rates_per_second.shape:
            raise BadInput("rates_per_second", "must have one rate per time, and at least one")
        at = at_seconds[-MAX_POINTS:] / self._day_seconds
        rates = rates_per_second[-MAX_POINTS:]
        level = float(rates.mean()) or 1.0
        shares = np.maximum(rates / level, MIN_SHARE)
        process = self._fit_process(at, shares)
        mean, deviation = self._scale.back(*process.predict_ahead(ahead_seconds / self._day_seconds))
        seen_days = float(at_seconds[-1] - at_seconds[0]) / self._day_seconds
        unseen = UNSEEN_SHARE * mean * max(0.0, 1.0 - seen_days)
        return mean * level, np.hypot(deviation, unseen) * level

    def _fit_process(self, at_days: Floats, shares: Floats) -> PointProcess:
        self._first_days = min(self._first_days, float(at_days[0]))
        known_days = self._fitted_days - self._first_days
        grown = at_days[-1] >= self._fitted_days + min(GROWTH * known_days, REFIT_DAYS)
        if grown and at_days.size > 3:
            return self._fit_likeliest(at_days, shares)
        return PointProcess.fit_variance(self._kernels[self._scale.power], at_days, self._scale.transform(shares))

    def _fit_likeliest(self, at_days: Floats, shares: Floats) -> PointProcess:
        fits = list[tuple[float, Scale, PointProcess]]()
        for power, kernel in self._kernels.items():
            scale = Scale(power)
            process = find_likeliest_process(at_days, scale.transform(shares), kernel)
            fits.append((process.log_likelihood + scale.log_slope(shares), scale, process))
        self._kernels = {scale.power: process.kernel for _, scale, process in fits}
        self._fitted_days = float(at_days[-1])
        _, self._scale, process = max(fits, key=lambda fit: fit[0])
        return process


def compute_bucket_averages(rates_per_second: Floats, bucket_seconds: int) -> tuple[Floats, Floats]:
    """Return the middle (s) and mean of each bucket of a rate per second; the newest bucket is complete."""
    rates = rates_per_second[rates_per_second.size % bucket_seconds :] if bucket_seconds > 1 else rates_per_second
    if rates.size == 0:
        return np.asarray([rates_per_second.size / 2]), np.asarray([float(rates_per_second.mean())])
    means = rates.reshape(-1, bucket_seconds).mean(axis=1)
    ends = rates_per_second.size - bucket_seconds * np.arange(means.size)[::-1]
    return ends - bucket_seconds / 2, means


def compute_missed_events(
    mean_per_second: Floats, deviation_per_second: Floats, counts: Floats, task_per_second: float, window_seconds: float
) -> Floats:
    """Return the expected missed events in each window with each number of tasks (windows by counts).

    For a normal rate X and a capacity c: E max(0, X - c) = D φ(z) + (M - c) Φ(z), z = (M - c) / D. The capacity of
    tasks counts executed events, not emitted ones, so that it also holds for the last operator (E35).
    """
    over = mean_per_second[:, None] - counts[None, :] * task_per_second
    deviation = np.maximum(deviation_per_second, 1e-12)[:, None]
    z = over / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    # Rounding could make it negative.
    missed = np.maximum(0.0, deviation * density + over * 0.5 * scipy.special.erfc(-z / math.sqrt(2)))
    return np.asarray(missed * window_seconds)


def is_rejected(mean_per_second: Floats, deviation_per_second: Floats, most_share: float) -> bool:
    """Return whether a path through the windows relies on guesses.

    It does if its total deviation exceeds this share of the expected load. The thesis left this path rejection out
    (8.1.4).
    """
    expected = float(mean_per_second.sum())
    return float(deviation_per_second.sum()) > most_share * max(expected, 1e-12)
