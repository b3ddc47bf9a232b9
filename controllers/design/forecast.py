"""What will be offered, forecast by a Gaussian process, and what that leaves missed (Zacheilas; Stutz, 8).

Times are days, whatever a day lasts, so that all features have one unit (ERRATA E34): distance on the circle
of the day d, on that of the week w, and elapsed e. The kernel is symmetric,

    k = σ² (s exp(-½ (|d|/λ_d + |w|/λ_w + |e|/λ_e)) + (1 - s) exp(-½ |e|/λ_n) + n [same])

what repeats, what is so now, and noise. σ² follows from the data; s, n and the λ climb the marginal
likelihood, one after the other, by doubling and halving (`CLIMBS` rounds at most). The likeliest scale is
taken, too: rates themselves, their roots, or their logarithms. Cost: O(n³) with n at most `MOST_POINTS`, the
newest; a fit starts from the last one's λ and is made when there is a quarter more, or two days.

A process that was calm for an hour is sure of itself, and knows nothing of the hours that it has not seen. So
while less than a day is known the deviation is no less than a share of the mean, which falls to none then.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import scipy

from queues.errors import BadInput

Floats = npt.NDArray[np.float64]
MOST_POINTS, CLIMBS, GROWTH, REFIT_DAYS = 240, 3, 0.25, 2.0
WEEK_DAYS = 7.0
# Powers of scales, and the share of the mean below which a rate is not distinguished from none.
SCALES, LEAST = (1.0, 0.5, 0.0), 0.1
MOST_SPREAD = 1.0
# Of the forecast: how far a first day may leave what was seen of it, at its begin.
UNSEEN_SHARE = 0.3
# Points that stand for a normal spread (Gauss-Hermite).
POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
CHANCES = _WEIGHTS / _WEIGHTS.sum()
# λ in days and shares, below and above which nothing changes that data could show.
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
    """The λ (days), the seasonal share s and the noise n."""

    day: float = 0.25
    week: float = 8.0
    elapsed: float = 16.0
    now: float = 0.25
    seasonal: float = 0.5
    noise: float = 0.01

    def covariance(self, left_days: Floats, right_days: Floats) -> Floats:
        """k / σ² without the noise, left by right."""
        elapsed = np.abs(left_days[:, None] - right_days[None, :])
        season = _arc(elapsed, 1.0) / self.day + _arc(elapsed, WEEK_DAYS) / self.week + elapsed / self.elapsed
        repeated = self.seasonal * np.exp(-0.5 * season)
        return np.asarray(repeated + (1 - self.seasonal) * np.exp(-0.5 * elapsed / self.now))

    def others(self, name: str) -> "list[Kernel]":
        """Half and double of one value, within its limits; a share's odds, not itself."""
        low, high = LIMITS[name]
        value = getattr(self, name)
        if name == "seasonal":
            odds = value / (1 - value)
            near = [3 * odds / (1 + 3 * odds), odds / (3 + odds)]
        else:
            near = [2 * value, value / 2]
        return [replace(self, **{name: min(max(each, low), high)}) for each in near]


def _arc(elapsed: Floats, round_days: float) -> Floats:
    rest = elapsed % round_days
    return np.minimum(rest, round_days - rest)


@dataclass(frozen=True)
class PointProcess:
    """A process through points; `ahead` answers for any time."""

    kernel: Kernel
    at_days: Floats
    level: float
    variance: float  # σ²
    log_likelihood: float
    _factor: tuple[Floats, bool] = field(repr=False)
    _weights: Floats = field(repr=False)

    @classmethod
    def through(cls, kernel: Kernel, at_days: Floats, values: Floats) -> "PointProcess":
        """With the σ² that makes the values likeliest."""
        level = float(values.mean())
        around, count = values - level, len(values)
        covariance = kernel.covariance(at_days, at_days)
        covariance[np.diag_indices(count)] += kernel.noise
        factor = scipy.linalg.cho_factor(covariance, lower=True, check_finite=False)
        weights = scipy.linalg.cho_solve(factor, around, check_finite=False)
        variance = max(float(around @ weights) / count, 1e-12)
        determinant = 2 * float(np.log(np.diag(factor[0])).sum())
        likelihood = -0.5 * (count * math.log(variance) + determinant)
        return cls(kernel, at_days, level, variance, likelihood, factor, weights)

    def ahead(self, at_days: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of what is measured at these times (its noise included)."""
        between = self.kernel.covariance(at_days, self.at_days)
        known = scipy.linalg.cho_solve(self._factor, between.T, check_finite=False)
        left = 1 + self.kernel.noise - np.einsum("ij,ji->i", between, known)
        return self.level + between @ self._weights, np.sqrt(self.variance * np.maximum(left, 0.0))


def likeliest(at_days: Floats, values: Floats, start: Kernel) -> PointProcess:
    """The process of the likeliest kernel that climbing finds from `start`."""
    best = PointProcess.through(start, at_days, values)
    for _ in range(CLIMBS):
        before = best
        for name in LIMITS:
            near = [PointProcess.through(each, at_days, values) for each in best.kernel.others(name)]
            best = max([best, *near], key=lambda each: each.log_likelihood)
        if best is before:
            break
    return best


@dataclass(frozen=True)
class Scale:
    """Box and Cox's y = (x^power - 1) / power, log x for 0: the scale on which the forecast errs alike,
    whether it is much or little."""

    power: float

    def of(self, rates: Floats) -> Floats:
        """Rates above 0 on this scale."""
        return np.asarray(scipy.special.boxcox(rates, self.power))

    def log_slope(self, rates: Floats) -> float:
        """Σ log dy/dx: what makes likelihoods of scales comparable."""
        return (self.power - 1) * float(np.log(rates).sum())

    def back(self, mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
        """Mean and deviation of the rate, of a normal y."""
        # A logarithm that spreads further says that nothing is known, not that any rate may come.
        spread = deviation if self.power else np.minimum(deviation, MOST_SPREAD)
        values = scipy.special.inv_boxcox(self._within(mean + POINTS[:, None] * spread), self.power)
        expected = CHANCES @ values
        return expected, np.sqrt(CHANCES @ (values - expected) ** 2)

    def _within(self, scaled: Floats) -> Floats:
        """What is a rate: nothing below 0."""
        return np.maximum(scaled, -1 / self.power) if self.power else scaled


class Forecaster:
    """Forecasts a rate whose past it gets; remembers the kernel and the scale."""

    def __init__(self, day_seconds: float) -> None:
        self._day_seconds = day_seconds
        self._kernels, self._scale = dict.fromkeys(SCALES, Kernel()), Scale(1.0)
        # Days since whenever: on a plant since 1970. What is known began with the first.
        self._first_days, self._fitted_days = math.inf, -math.inf

    def ahead(
        self, at_seconds: Floats, rates_per_second: Floats, ahead_seconds: Floats
    ) -> tuple[Floats, Floats]:
        """Mean and deviation (events/s) at times to come, given past ones. Raises `BadInput` for no past, or
        one whose times and rates are not alike in number."""
        if at_seconds.size == 0 or at_seconds.shape != rates_per_second.shape:
            raise BadInput("rates_per_second", "takes one rate for each time, at least one")
        at = at_seconds[-MOST_POINTS:] / self._day_seconds
        rates = rates_per_second[-MOST_POINTS:]
        level = float(rates.mean()) or 1.0
        shares = np.maximum(rates / level, LEAST)
        process = self._process(at, shares)
        mean, deviation = self._scale.back(*process.ahead(ahead_seconds / self._day_seconds))
        seen_days = float(at_seconds[-1] - at_seconds[0]) / self._day_seconds
        unseen = UNSEEN_SHARE * mean * max(0.0, 1.0 - seen_days)
        return mean * level, np.hypot(deviation, unseen) * level

    def _process(self, at_days: Floats, shares: Floats) -> PointProcess:
        self._first_days = min(self._first_days, float(at_days[0]))
        known_days = self._fitted_days - self._first_days
        grown = at_days[-1] >= self._fitted_days + min(GROWTH * known_days, REFIT_DAYS)
        if grown and at_days.size > 3:
            return self._fitted(at_days, shares)
        return PointProcess.through(self._kernels[self._scale.power], at_days, self._scale.of(shares))

    def _fitted(self, at_days: Floats, shares: Floats) -> PointProcess:
        """Of the likeliest kernel on the likeliest scale."""
        found = list[tuple[float, Scale, PointProcess]]()
        for power, kernel in self._kernels.items():
            scale = Scale(power)
            process = likeliest(at_days, scale.of(shares), kernel)
            found.append((process.log_likelihood + scale.log_slope(shares), scale, process))
        self._kernels = {scale.power: process.kernel for _, scale, process in found}
        self._fitted_days = float(at_days[-1])
        _, self._scale, process = max(found, key=lambda each: each[0])
        return process


def averages(rates_per_second: Floats, bucket_seconds: int) -> tuple[Floats, Floats]:
    """Middle (s) and mean of each bucket of a rate per second; the newest bucket is whole."""
    rates = (
        rates_per_second[rates_per_second.size % bucket_seconds :] if bucket_seconds > 1 else rates_per_second
    )
    if rates.size == 0:
        return np.asarray([rates_per_second.size / 2]), np.asarray([float(rates_per_second.mean())])
    means = rates.reshape(-1, bucket_seconds).mean(axis=1)
    ends = rates_per_second.size - bucket_seconds * np.arange(means.size)[::-1]
    return ends - bucket_seconds / 2, means


def missed_events(
    mean_per_second: Floats,
    deviation_per_second: Floats,
    counts: Floats,
    task_per_second: float,
    window_seconds: float,
) -> Floats:
    """What is expected to be missed in each window with each number of tasks (windows by counts).

    Of a normal rate X and a capacity c: E max(0, X - c) = D φ(z) + (M - c) Φ(z), z = (M - c) / D. What tasks
    pass is counted as executed, not as emitted, so that it holds for the last operator too (E35).
    """
    over = mean_per_second[:, None] - counts[None, :] * task_per_second
    deviation = np.maximum(deviation_per_second, 1e-12)[:, None]
    z = over / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    # Within rounding of nothing it would be below 0.
    missed = np.maximum(0.0, deviation * density + over * 0.5 * scipy.special.erfc(-z / math.sqrt(2)))
    return np.asarray(missed * window_seconds)


def is_rejected(mean_per_second: Floats, deviation_per_second: Floats, most_share: float) -> bool:
    """Whether a way through the windows rests on guesses: the deviation over all of it is more than this
    share of what is expected (the path rejection that the thesis left out, 8.1.4)."""
    expected = float(mean_per_second.sum())
    return float(deviation_per_second.sum()) > most_share * max(expected, 1e-12)
