"""Differences between two time ranges beyond chance, the largest first.

**Shares.** A value of a dimension (type, key, node …) has some of the events in each range; both ranges are
cut into slices. The test uses the two-by-two table (this value or another; here or there) with

    G = 2 Σ O ln(O / E),   F = G / φ ~ F(1, f)

    φ = max(1, X² / f), where X² is Pearson's statistic of the slices within each range, f its degrees of
    freedom:
        events come in bursts, so counts vary more than chance alone allows (quasi-likelihood: McCullagh,
        Nelder
        1989, 4.5). With φ = 1 this is the G-test (Sokal, Rohlf 1981)

    effect: Cohen's h = 2 asin √p - 2 asin √p' (Cohen 1988: 0.2 small, 0.5 medium, 0.8 large)

**Rates and measures** (events/s in total; seconds per event): Welch's test of the slices. The effect is the
logarithm of the ratio of the means: 0.7 is a factor of two. A mean of 0 (everything stopped, or just started) counts as
a hundredth of the other, because its ratio would be infinite.

A difference is reported if Benjamini and Hochberg (1995) keep it among all tests at a false discovery rate of RATE, and
its effect is at least MIN_EFFECT: with a million events everything differs slightly. Shares and means alternate, each
with the largest effect first, because the two effects have no common unit, and the incoming events say more about a
cause than the load of a queue that falls behind. Among shares, the largest of each dimension comes before the second of
any, because a share that falls mirrors one that rises.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import scipy
from numpy.typing import NDArray

RATE, MIN_EFFECT = 0.01, 0.1
MIN_EVENTS, MIN_SLICES = 20, 3
NOTHING = 0.01  # relative to the other mean
Floats = NDArray[np.float64]
Counts = Mapping[str, Sequence[float]]  # value → events in each slice


@dataclass(frozen=True)
class Difference:
    """A difference.

    `measure` is "share" of events (0 to 1), or the measured mean with its unit. `here` and `there` are the values in
    the time range and in its reference; an `effect` below 0 means less here.
    """

    dimension: str
    value: str
    measure: str
    here: float
    there: float
    effect: float
    probability: float

    @property
    def is_share(self) -> bool:
        return self.measure == "share"


def find_differences(
    counts: Mapping[str, tuple[Counts, Counts]],
    measures: Mapping[tuple[str, str, str], tuple[Sequence[float], Sequence[float]]],
) -> list[Difference]:
    """Return the differences beyond chance; shares and means alternate, the largest effect first.

    `counts` holds for each dimension the values here and there, with equal numbers of slices; `measures` holds for
    (dimension, value, measure) the known slices here and there.
    """
    tested = [
        share_test for dimension, (here, there) in counts.items() for share_test in share_tests(dimension, here, there)
    ]
    for (dimension, value, measure), (here, there) in measures.items():
        tested += compare_means(dimension, value, measure, here, there)
    kept = select_significant([test.probability for test in tested], RATE)
    tests = [
        difference
        for difference, keep in zip(tested, kept, strict=True)
        if keep and abs(difference.effect) >= MIN_EFFECT
    ]
    tests.sort(key=lambda difference: (-abs(difference.effect), difference.dimension, difference.value))
    shares = _interleave_dimensions([difference_ for difference_ in tests if difference_.is_share])
    turns = zip_longest(shares, (difference_ for difference_ in tests if not difference_.is_share))
    return [difference_ for pair in turns for difference_ in pair if difference_ is not None]


def _interleave_dimensions(shares: Sequence[Difference]) -> list[Difference]:
    places = Counter[str]()
    placed: list[tuple[int, Difference]] = []
    for share in shares:
        placed.append((places[share.dimension], share))
        places[share.dimension] += 1
    return [share for _, share in sorted(placed, key=lambda row: row[0])]


def share_tests(dimension: str, here: Counts, there: Counts) -> Iterator[Difference]:
    """Test each value with enough events. Return nothing if one range has no events or there is only one value."""
    values = sorted({*here, *there})
    if len(values) < 2 or not here or not there:
        return
    rows_here, rows_there = _build_count_table(values, here), _build_count_table(values, there)
    totals_here, totals_there = rows_here.sum(axis=0), rows_there.sum(axis=0)
    if totals_here.sum() < MIN_EVENTS or totals_there.sum() < MIN_EVENTS:
        return
    for at, value in enumerate(values):
        of_here, of_there = rows_here[at], rows_there[at]
        if of_here.sum() + of_there.sum() < MIN_EVENTS:
            continue
        share, share_there = of_here.sum() / totals_here.sum(), of_there.sum() / totals_there.sum()
        probability = _share_probability(of_here, totals_here, of_there, totals_there)
        effect = 2 * math.asin(math.sqrt(share)) - 2 * math.asin(math.sqrt(share_there))
        yield Difference(dimension, value, "share", float(share), float(share_there), effect, probability)


def compare_means(
    dimension: str, value: str, measure: str, here: Sequence[float], there: Sequence[float]
) -> list[Difference]:
    """Return Welch's test, or nothing if there are too few slices or neither mean is above 0."""
    if min(len(here), len(there)) < MIN_SLICES:
        return []
    mean, mean_there = float(np.mean(here)), float(np.mean(there))
    greater = max(mean, mean_there)
    if greater <= 0 or min(mean, mean_there) < 0:
        return []
    spread = float(np.var(here)) + float(np.var(there))
    if spread == 0.0:
        probability = 1.0 if mean == mean_there else 0.0
    else:
        probability = float(scipy.stats.ttest_ind(here, there, equal_var=False).pvalue)
    effect = math.log(max(mean, NOTHING * greater) / max(mean_there, NOTHING * greater))
    return [Difference(dimension, value, measure, mean, mean_there, effect, probability)]


def select_significant(probabilities: Sequence[float], rate: float) -> list[bool]:
    """Return which tests Benjamini and Hochberg keep: the k smallest, with k the greatest with p(k) ≤ k·rate/m."""
    count = len(probabilities)
    order = sorted(range(count), key=lambda at: probabilities[at])
    last = 0
    for place, at in enumerate(order, 1):
        if probabilities[at] <= place * rate / count:
            last = place
    kept = set(order[:last])
    return [at in kept for at in range(count)]


def _build_count_table(values: Sequence[str], counts: Counts) -> Floats:
    slices = len(next(iter(counts.values())))
    return np.array([counts.get(value, [0.0] * slices) for value in values], dtype=float)


def _share_probability(here: Floats, of_here: Floats, there: Floats, of_there: Floats) -> float:
    hits = here.sum()
    total = of_here.sum()
    other_hits = there.sum()
    other_total = of_there.sum()
    observed = np.array([[hits, total - hits], [other_hits, other_total - other_hits]])
    expected = np.outer(observed.sum(axis=1), observed.sum(axis=0)) / observed.sum()
    seen = observed > 0
    statistic = float(2 * (observed[seen] * np.log(observed[seen] / expected[seen])).sum())
    pearson_here, free_here = _compute_heterogeneity(here, of_here)
    pearson_there, free_there = _compute_heterogeneity(there, of_there)
    free = free_here + free_there
    if free == 0:
        return float(scipy.stats.chi2.sf(statistic, 1))
    dispersion = max(1.0, (pearson_here + pearson_there) / free)
    return float(scipy.stats.f.sf(statistic / dispersion, 1, free))


def _compute_heterogeneity(hits: Floats, totals: Floats) -> tuple[float, int]:
    """Return Pearson's X² of the non-empty slices around their common share, and its degrees of freedom."""
    some = totals > 0
    share = hits.sum() / totals.sum() if totals.sum() else 0.0
    if not 0.0 < share < 1.0 or some.sum() < 2:
        return 0.0, max(0, int(some.sum()) - 1)
    wanted = totals[some] * share
    return float((((hits[some] - wanted) ** 2) / (wanted * (1 - share))).sum()), int(some.sum()) - 1
