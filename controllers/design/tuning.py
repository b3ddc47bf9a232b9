"""A law's parameters tuned on what was recorded, and whether they are better on what was not.

**Search.** Differential evolution (Storn, Price 1997; SciPy's) over the box of the ranges, begun at the
values in force, by a seed: the same record gives the same values. A range reaches from a quarter to four
times of what is in force, within the declared one, so that no proposal is a leap.

**Proof.** Costs of the days that were not searched on, before b and after a, day by day. The improvement is
1 - Σa/Σb; its confidence the share of bootstrap samples of the days (drawn in pairs, with replacement) in
which Σa < Σb: Efron, Tibshirani 1993. Days, and not hours, as the hours of a day are alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from controllers.framework.parameter import Parameter

REACH = 4.0
EVALUATIONS, MEMBERS = 60, 5  # of the cost; of a generation for each parameter
SAMPLES = 4_000
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class SearchRange:
    """One parameter as it is searched: from `low` to `high`, both included."""

    name: str
    low: float
    high: float
    is_whole: bool = False

    @classmethod
    def around(cls, parameter: Parameter, value: float) -> "SearchRange":
        """From a quarter to four times of a value (of 0: its declared range), within what is declared."""
        ends = (value / REACH, value * REACH) if value else (parameter.minimum, parameter.maximum)
        low, high = min(ends), max(ends)
        is_whole = parameter.kind == "integer"
        return cls(
            parameter.name, max(low, parameter.minimum), min(max(high, low), parameter.maximum), is_whole
        )

    def read(self, value: float) -> float | int:
        """A value as the parameter takes it: whole, or with four figures that count."""
        return round(value) if self.is_whole else min(max(float(f"{value:.4g}"), self.low), self.high)


def search(
    cost: Callable[[Numbers], float],
    ranges: Sequence[SearchRange],
    begin: Numbers,
    seed: int,
    evaluations: int = EVALUATIONS,
) -> dict[str, float | int]:
    """The values of the least cost among some `evaluations`; those in force where none is better.

    `cost` takes the values by name, and may raise to end the search.
    """
    best = {each.name: each.read(begin[each.name]) for each in ranges}
    least = cost(best)

    def judged(point: Sequence[float]) -> float:
        nonlocal best, least
        values = {each.name: each.read(value) for each, value in zip(ranges, point, strict=True)}
        found = cost(values)
        if found < least:
            best, least = values, found
        return found

    generations = max(1, round(evaluations / (MEMBERS * len(ranges))) - 1)
    scipy.optimize.differential_evolution(
        judged,
        [(each.low, each.high) for each in ranges],
        integrality=[each.is_whole for each in ranges],
        x0=[best[each.name] for each in ranges],
        popsize=MEMBERS,
        maxiter=generations,
        tol=0.0,
        polish=False,
        seed=seed,
    )
    return best


@dataclass(frozen=True)
class Improvement:
    """Mean cost of a day before and after, and how sure it is that after is less (share, 0 to 1)."""

    before: float
    after: float
    confidence: float

    @property
    def share(self) -> float:
        """Of the cost before that is gone; below 0: it costs more."""
        return 1.0 - self.after / self.before if self.before > 0 else 0.0


def improvement(before: Sequence[float], after: Sequence[float], seed: int) -> Improvement:
    """Of days, in the same order. Raises ValueError where there is none, or they are not as many."""
    if not before or len(before) != len(after):
        raise ValueError(f"takes as many days before as after, at least 1; got {len(before)}, {len(after)}")
    gained = np.asarray(before, dtype=float) - np.asarray(after, dtype=float)
    drawn = np.random.default_rng(seed).integers(0, gained.size, (SAMPLES, gained.size))
    confidence = float((gained[drawn].sum(axis=1) > 0).mean())
    return Improvement(float(np.mean(before)), float(np.mean(after)), confidence)
