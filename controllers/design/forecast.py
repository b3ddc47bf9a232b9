"""What will be offered, foreseen by a Gaussian process, and what that leaves missed (Zacheilas; Stutz, 8).

Times are days, whatever a day lasts, so that all features have one unit (ERRATA E34): distance on the circle
of the day d, on that of the week w, and elapsed e. The kernel is symmetric,

    k = σ² (s exp(-½ (|d|/λ_d + |w|/λ_w + |e|/λ_e)) + (1 - s) exp(-½ |e|/λ_n) + n [same])

what repeats, what is so now, and noise. σ² follows from the data; s, n and the λ climb the marginal
likelihood, one after the other, by doubling and halving (`CLIMBS` rounds at most). Cost: O(n³) with n at most
`MOST_POINTS`, the newest; a fit starts from the last one's λ and is made when there is a quarter more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.special import erfc

from queues.errors import BadInput

Floats = npt.NDArray[np.float64]
MOST_POINTS, CLIMBS, GROWTH = 240, 3, 1.25
WEEK_DAYS = 7.0
# λ in days and shares, below and above which nothing changes that data could tell.
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
class Process:
    """A process through points; `ahead` answers for any time."""

    kernel: Kernel
    at_days: Floats
    level: float
    variance: float  # σ²
    log_likelihood: float
    _factor: tuple[Floats, bool] = field(repr=False)
    _weights: Floats = field(repr=False)

    @classmethod
    def through(cls, kernel: Kernel, at_days: Floats, values: Floats) -> "Process":
        """With the σ² that makes the values likeliest."""
        level = float(values.mean())
        around, count = values - level, len(values)
        covariance = kernel.covariance(at_days, at_days)
        covariance[np.diag_indices(count)] += kernel.noise
        factor = cho_factor(covariance, lower=True, check_finite=False)
        weights = cho_solve(factor, around, check_finite=False)
        variance = max(float(around @ weights) / count, 1e-12)
        determinant = 2 * float(np.log(np.diag(factor[0])).sum())
        likelihood = -0.5 * (count * math.log(variance) + determinant)
        return cls(kernel, at_days, level, variance, likelihood, factor, weights)

    def ahead(self, at_days: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of what is measured at these times (its noise included)."""
        between = self.kernel.covariance(at_days, self.at_days)
        known = cho_solve(self._factor, between.T, check_finite=False)
        left = 1 + self.kernel.noise - np.einsum("ij,ji->i", between, known)
        return self.level + between @ self._weights, np.sqrt(self.variance * np.maximum(left, 0.0))


def likeliest(at_days: Floats, values: Floats, start: Kernel) -> Process:
    """The process of the likeliest kernel that climbing finds from `start`."""
    best = Process.through(start, at_days, values)
    for _ in range(CLIMBS):
        before = best
        for name in LIMITS:
            near = [Process.through(each, at_days, values) for each in best.kernel.others(name)]
            best = max([best, *near], key=lambda each: each.log_likelihood)
        if best is before:
            break
    return best


class Forecaster:
    """Foresees a rate of which it is told the past; remembers the kernel."""

    def __init__(self, day_seconds: float) -> None:
        self._day_seconds = day_seconds
        self._kernel, self._fitted_points = Kernel(), 0

    def ahead(
        self, at_seconds: Floats, rates_per_second: Floats, ahead_seconds: Floats
    ) -> tuple[Floats, Floats]:
        """Mean and deviation (events/s) at times to come, given past ones. Raises `BadInput` for no past, or
        one whose times and rates are not alike in number."""
        if at_seconds.size == 0 or at_seconds.shape != rates_per_second.shape:
            raise BadInput("rates_per_second", "takes one rate for each time, at least one")
        at = at_seconds[-MOST_POINTS:] / self._day_seconds
        rates = rates_per_second[-MOST_POINTS:]
        mean, deviation = self._process(at, rates).ahead(ahead_seconds / self._day_seconds)
        return np.maximum(mean, 0.0), deviation

    def _process(self, at_days: Floats, rates: Floats) -> Process:
        grown = at_days.size >= GROWTH * self._fitted_points
        if grown and at_days.size > 3:
            process = likeliest(at_days, rates, self._kernel)
            self._kernel, self._fitted_points = process.kernel, at_days.size
            return process
        return Process.through(self._kernel, at_days, rates)


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
    missed = np.maximum(0.0, deviation * density + over * 0.5 * erfc(-z / math.sqrt(2)))
    return np.asarray(missed * window_seconds)


def is_rejected(mean_per_second: Floats, deviation_per_second: Floats, most_share: float) -> bool:
    """Whether a way through the windows rests on guesses: the deviation over all of it is more than this
    share of what is expected (the path rejection that the thesis left out, 8.1.4)."""
    expected = float(mean_per_second.sum())
    return float(deviation_per_second.sum()) > most_share * max(expected, 1e-12)
