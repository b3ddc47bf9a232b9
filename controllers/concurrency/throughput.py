"""Throughput from the times between completions, and the number of samples that a decision needs.

μ and σ are the mean and standard deviation of the inter-departure times, without idle time and without pauses that are
not part of the service variance. The paper leaves out the largest 1 % of the samples (Tang, 3.4.2), which are none
below 100 samples. Fewer samples are compared with their median: a pause is more than `OUTLIER_DEVIATIONS` robust
standard deviations (from the median absolute deviation) above it. If there are many such samples, they are no pauses,
and all count. Whether C2 brings q more throughput than
C1 is decided by Y = X̄1 - X̄2 against μ' = q/(1+q) μ1, with an indifference zone [L, H] = (1 ∓ β/2) μ' and confidence 1
- α, Z its quantile (3.4.1):

    n1 = 8 Z² (1/β)² (1 + 1/q)² (σ1/μ1)²                 (24) with the factor of ERRATA E11
    n2 = (σ2 Z)² / (max(H - y, y - L)² - (H - L)²/8)      (25)
    more threads iff  P(Y ≥ L) ≥ P(Y ≤ H), which is  y ≥ μ'
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Annotated

import msgspec

from common.errors import BadInput
from common.parameter import value
from controllers.concurrency.parameters import MAX_THREADS

DISCARDED_SHARE = 0.01
MAX_DISCARDED = 500
FEW_SAMPLES = round(1 / DISCARDED_SHARE)
# A normal deviation is this multiple of the median absolute deviation; equal samples still deviate by some share.
NORMAL_DEVIATIONS, MIN_DEVIATION = 1.4826, 0.05
OUTLIER_DEVIATIONS = 5.0
SAMPLES_PER_OUTLIER = 8
MIN_SAMPLES = 5  # with fewer samples, outliers can't be identified
MAX_SAMPLES, MAX_SECONDS = 1e15, 1e9  # minimum mean time of one sample
# A shorter mean time between completions counts as no time at all: nothing real is that fast.
MIN_SECONDS = 1e-12


class ThroughputMoments(msgspec.Struct, frozen=True):
    threads: Annotated[int, value("threads", "Threads at the measurement.", 1, MAX_THREADS)]
    mean_seconds: Annotated[float, value("s", "Mean time between completions.", MIN_SECONDS, MAX_SECONDS)]
    variance: Annotated[float, value("s²", "Variance of the time.", 0, 1e36)]
    samples: Annotated[int, value("samples", "Number of samples.", 1, MAX_SAMPLES)]

    @property
    def throughput_per_second(self) -> float:
        return 1 / self.mean_seconds

    @property
    def relative_deviation(self) -> float:
        return math.sqrt(self.variance) / self.mean_seconds


class ThroughputSample(msgspec.Struct, frozen=True):
    """Sums over all samples so far, and the largest of them, so that those can be removed again.

    A few samples are all kept. `elapsed_seconds` includes idle time.
    """

    count: Annotated[int, value("samples", "Number of samples.", 0, MAX_SAMPLES, required=True)] = 0
    total: Annotated[float, value("s", "Sum of the times.", 0, MAX_SAMPLES * MAX_SECONDS, required=True)] = 0.0
    squares: Annotated[float, value("s²", "Sum of the squared times.", 0, 1e36, required=True)] = 0.0
    largest: Annotated[
        tuple[float, ...],
        value(
            "s",
            "Largest 1 % of the samples, plus one; all samples while they are few.",
            0,
            MAX_SECONDS,
            required=True,
            most=MAX_DISCARDED,
        ),
    ] = ()
    elapsed_seconds: Annotated[float, value("s", "Time since the first sample was awaited.", 0, 1e15)] = 0.0

    def add_samples(self, seconds: Sequence[float], elapsed_seconds: float = 0.0) -> "ThroughputSample":
        count = self.count + len(seconds)
        keep = _count_kept(count)
        return ThroughputSample(
            count,
            self.total + math.fsum(seconds),
            self.squares + math.fsum(second * second for second in seconds),
            tuple(sorted((*self.largest, *seconds), reverse=True)[:keep]),
            self.elapsed_seconds + elapsed_seconds,
        )

    def measure(self, threads: int) -> ThroughputMoments | None:
        """Return the moments without pauses, or None while nothing, or no time at all, was measured."""
        dropped = self._find_pauses()
        count = self.count - len(dropped)
        if count == 0:
            return None
        mean = (self.total - math.fsum(dropped)) / count
        if mean < MIN_SECONDS:
            return None
        squares = self.squares - math.fsum(sample * sample for sample in dropped)
        # Rounding of equal samples must not look like variance.
        variance = max(0.0, squares / count - mean * mean)
        if variance < 1e-12 * mean * mean:
            variance = 0.0
        return ThroughputMoments(threads, mean, variance * count / max(1, count - 1), count)

    def _find_pauses(self) -> tuple[float, ...]:
        # The state of an older Weir has only the largest of a few samples.
        if self.count >= FEW_SAMPLES or len(self.largest) < self.count:
            return self.largest[: min(MAX_DISCARDED, math.floor(self.count * DISCARDED_SHARE))]
        if self.count < MIN_SAMPLES:
            return ()
        middle = median(self.largest)
        deviation = NORMAL_DEVIATIONS * median(abs(sample - middle) for sample in self.largest)
        limit = middle + OUTLIER_DEVIATIONS * max(deviation, MIN_DEVIATION * middle)
        pauses = tuple(sample for sample in self.largest if sample > limit)
        return pauses if len(pauses) <= max(1, self.count // SAMPLES_PER_OUTLIER) else ()


def check_sample(sample: ThroughputSample, where: str) -> None:
    """Raise `BadInput` if the number or the sum of the largest samples is inconsistent."""
    largest, count = sample.largest, sample.count
    expected = min(count, _count_kept(count))
    if not min(count, _count_discarded(count)) <= len(largest) <= expected:
        raise BadInput(f"{where}.largest", f"must have {expected} of {count} samples, not {len(largest)}")
    squares = math.fsum(second**2 for second in largest)
    for name, own, most in (("total", sample.total, math.fsum(largest)), ("squares", sample.squares, squares)):
        if own < most * (1 - 1e-9):
            raise BadInput(f"{where}.{name}", f"must be at least {most:g}, the sum computed from largest")


def _count_kept(count: int) -> int:
    return count if count < FEW_SAMPLES else _count_discarded(count)


def _count_discarded(count: int) -> int:
    """Return the largest 1 % and one more, because the next sample may make it one of them."""
    return min(MAX_DISCARDED, math.floor(count * DISCARDED_SHARE) + 1)


def quantile(alpha: float) -> float:
    """Return Z with P(N(0,1) ≤ Z) = 1 - α."""
    return NormalDist().inv_cdf(1 - alpha)


def compute_first_samples(relative_deviation: float, q: float, alpha: float, beta: float) -> float:
    """Return n1 of equation (24): samples of a configuration before the next one is known."""
    return 8 * (quantile(alpha) / beta * (1 + 1 / q) * relative_deviation) ** 2


def compute_second_samples(
    before: ThroughputMoments, after: ThroughputMoments, q: float, alpha: float, beta: float
) -> float:
    """Return n2 of equation (25): samples of the configuration after a step, given both so far."""
    threshold = q / (1 + q) * before.mean_seconds
    low, high = (1 - beta / 2) * threshold, (1 + beta / 2) * threshold
    gained = before.mean_seconds - after.mean_seconds
    room = max(high - gained, gained - low) ** 2 - (high - low) ** 2 / 8
    return after.variance * quantile(alpha) ** 2 / room


def brings(before: ThroughputMoments, after: ThroughputMoments, q: float) -> bool:
    """Return whether the throughput is greater by q or more, as far as the means show."""
    return after.throughput_per_second >= (1 + q) * before.throughput_per_second
