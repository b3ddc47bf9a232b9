"""Tuning: fit a law's parameters to recorded load, and check them on load that was not used.

**Search.** Differential evolution (Storn, Price 1997; SciPy) over the ranges, starting at the current values,
with a seed: the same record gives the same values. A range spans a quarter to four times the current value, within the
declared range, so that no proposal is a leap.

**Check.** Costs of the days that the search did not use, before b and after a, day by day. The improvement is
1 - Σa/Σb; its confidence is the share of bootstrap samples of the days (drawn in pairs, with replacement) in which Σa <
Σb: Efron, Tibshirani 1993. Days, not hours, because the hours of a day are similar.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from common.parameter import Parameter

REACH = 4.0
EVALUATIONS, MEMBERS = 60, 5  # relative to the cost; per generation and parameter
SAMPLES = 4_000
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class SearchRange:
    name: str
    low: float
    high: float
    is_whole: bool = False

    @classmethod
    def build_around(cls, parameter: Parameter, value: float) -> "SearchRange":
        """Return a quarter to four times a value (for 0: its declared range), within the declared range."""
        ends = (value / REACH, value * REACH) if value else (parameter.minimum, parameter.maximum)
        low, high = min(ends), max(ends)
        is_whole = parameter.kind == "integer"
        return cls(parameter.name, max(low, parameter.minimum), min(max(high, low), parameter.maximum), is_whole)

    def read(self, value: float) -> float | int:
        """Return a value as the parameter takes it: a whole number, or four significant digits."""
        return round(value) if self.is_whole else min(max(float(f"{value:.4g}"), self.low), self.high)


def search(
    cost: Callable[[Numbers], float],
    ranges: Sequence[SearchRange],
    begin: Numbers,
    seed: int,
    evaluations: int = EVALUATIONS,
) -> dict[str, float | int]:
    """Return the values with the lowest cost in about `evaluations` tries.

    Returns the current values if none is better. `cost` takes the values by name, and may raise to end the search.
    """
    best = {interval.name: interval.read(begin[interval.name]) for interval in ranges}
    least = cost(best)

    def judge(point: Sequence[float]) -> float:
        nonlocal best, least
        values = {interval.name: interval.read(value) for interval, value in zip(ranges, point, strict=True)}
        result = cost(values)
        if result < least:
            best, least = values, result
        return result

    generations = max(1, round(evaluations / (MEMBERS * len(ranges))) - 1)
    scipy.optimize.differential_evolution(
        judge,
        [(interval.low, interval.high) for interval in ranges],
        integrality=[interval.is_whole for interval in ranges],
        x0=[best[interval.name] for interval in ranges],
        popsize=MEMBERS,
        maxiter=generations,
        tol=0.0,
        polish=False,
        seed=seed,
    )
    return best


@dataclass(frozen=True)
class Improvement:
    """Mean cost of a day before and after, and the confidence that it decreased (share, 0 to 1)."""

    before: float
    after: float
    confidence: float

    @property
    def share(self) -> float:
        """Return the share of the cost that is saved; below 0 it costs more."""
        return 1.0 - self.after / self.before if self.before > 0 else 0.0


def compute_improvement(before: Sequence[float], after: Sequence[float], seed: int) -> Improvement:
    """Compare days in the same order. Raise ValueError if there is none, or the lengths differ."""
    if not before or len(before) != len(after):
        raise ValueError(f"must have as many days before as after, and at least 1, not {len(before)} and {len(after)}")
    gained = np.asarray(before, dtype=float) - np.asarray(after, dtype=float)
    drawn = np.random.default_rng(seed).integers(0, gained.size, (SAMPLES, gained.size))
    confidence = float((gained[drawn].sum(axis=1) > 0).mean())
    return Improvement(float(np.mean(before)), float(np.mean(after)), confidence)
