"""Throughput from the times between completions, and the number of samples that a decision needs.

μ and σ are the mean and standard deviation of the inter-departure times, without idle time and without the largest 1 %
of the samples (pauses that are not part of the service variance; Tang, 3.4.2). Whether C2 brings q more throughput than
C1 is decided by Y = X̄1 - X̄2 against μ' = q/(1+q) μ1, with an indifference zone [L, H] = (1 ∓ β/2) μ' and confidence 1
- α, Z its quantile (3.4.1):

    n1 = 8 Z² (1/β)² (1 + 1/q)² (σ1/μ1)²                 (24) with the factor of ERRATA E11
    n2 = (σ2 Z)² / (max(H - y, y - L)² - (H - L)²/8)      (25)
    more threads iff  P(Y ≥ L) ≥ P(Y ≤ H), which is  y ≥ μ'
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.decision import Json

DISCARDED_SHARE = 0.01
MAX_DISCARDED = 500
MAX_SAMPLES, MAX_SECONDS = 1e15, 1e9  # minimum mean time of one sample
# A shorter mean time between completions counts as no time at all: nothing real is that fast.
MIN_SECONDS = 1e-12
MAX_THREADS = 100_000
MEASUREMENT = (
    Parameter("threads", "threads", "Threads at the measurement.", None, 1, MAX_THREADS, "integer", required=True),
    Parameter("mean_seconds", "s", "Mean time between completions.", None, MIN_SECONDS, MAX_SECONDS, required=True),
    Parameter("variance", "s²", "Variance of the time.", None, 0, 1e36, required=True),
    Parameter("samples", "samples", "Number of samples.", None, 1, MAX_SAMPLES, "integer", required=True),
)
SAMPLE = (
    Parameter("count", "samples", "Number of samples.", None, 0, MAX_SAMPLES, "integer", required=True),
    Parameter("total", "s", "Sum of the times.", None, 0, MAX_SAMPLES * MAX_SECONDS, required=True),
    Parameter("squares", "s²", "Sum of the squared times.", None, 0, 1e36, required=True),
    Parameter(
        "largest",
        "s",
        "Largest 1 % of the samples, plus one.",
        None,
        0,
        MAX_SECONDS,
        "numbers",
        required=True,
        most=MAX_DISCARDED,
    ),
)


@dataclass(frozen=True)
class ThroughputMoments:
    """The threads of a configuration and the moments of its measurement (s, s²)."""

    threads: int
    mean_seconds: float
    variance: float
    samples: int

    @property
    def throughput_per_second(self) -> float:
        """Return the completions per second."""
        return 1 / self.mean_seconds

    @property
    def relative_deviation(self) -> float:
        """Return σ/μ."""
        return math.sqrt(self.variance) / self.mean_seconds

    def to_json(self) -> dict[str, Json]:
        """Return the measurement as JSON for the law's state."""
        return dict(vars(self))


@dataclass(frozen=True)
class ThroughputSample:
    """Sums over all samples so far, and the largest of them, so that those can be removed again."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    largest: tuple[float, ...] = ()

    def add_samples(self, seconds: Sequence[float]) -> "ThroughputSample":
        """Return the sample with further inter-departure times."""
        count = self.count + len(seconds)
        keep = _count_kept(count)
        return ThroughputSample(
            count,
            self.total + math.fsum(seconds),
            self.squares + math.fsum(second * second for second in seconds),
            tuple(sorted((*self.largest, *seconds), reverse=True)[:keep]),
        )

    def measure(self, threads: int) -> ThroughputMoments | None:
        """Return the moments without the largest 1 %, or None while nothing, or no time at all, was measured."""
        dropped = self.largest[: min(MAX_DISCARDED, math.floor(self.count * DISCARDED_SHARE))]
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

    def to_json(self) -> dict[str, Json]:
        """Return the sample as JSON for the law's state."""
        return {"count": self.count, "total": self.total, "squares": self.squares, "largest": list(self.largest)}


def check_sample(document: Mapping[str, Any], where: str) -> None:
    """Raise `BadInput` if the number or the sum of the largest samples is inconsistent."""
    largest, count = document["largest"], document["count"]
    expected = min(count, _count_kept(count))
    if len(largest) != expected:
        raise BadInput(f"{where}.largest", f"must have {expected} of {count} samples, not {len(largest)}")
    for name, most in (("total", math.fsum(largest)), ("squares", math.fsum(sample**2 for sample in largest))):
        if document[name] < most * (1 - 1e-9):
            raise BadInput(f"{where}.{name}", f"must be at least {most:g}, the sum computed from largest")


def _count_kept(count: int) -> int:
    return min(MAX_DISCARDED, math.floor(count * DISCARDED_SHARE) + 1)


def sample_from(document: Mapping[str, Any]) -> ThroughputSample:
    """Build the sample from a document that `to_json` wrote."""
    return ThroughputSample(**{**document, "largest": tuple(document["largest"])})


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
