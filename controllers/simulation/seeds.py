"""A law on several seeds: means, and the band that contains the true mean with 95 % confidence (Student's t)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from controllers.simulation.scenario import Floats, Scenario

CONFIDENCE = 0.95


@dataclass(frozen=True)
class SeedsOutcome:
    """Means over the seeds; a metric that no seed has is None, and has no band.

    With several seeds, `bands` has the low and high end of each metric, and a series has rows for mean, low, and high.
    """

    metrics: Mapping[str, float | None]
    bands: Mapping[str, tuple[float, float]]
    series: Mapping[str, Floats]
    series_seconds: float


def run_seeds(
    scenario: Scenario, law: str, settings: Mapping[str, Any], seeds: Sequence[int], trace: Floats | None
) -> SeedsOutcome:
    outcomes = [scenario.run(law, settings, seed, trace) for seed in seeds]
    first = outcomes[0]
    if len(outcomes) == 1:
        return SeedsOutcome(first.metrics, {}, first.series, first.series_seconds)
    metrics: dict[str, float | None] = {}
    bands: dict[str, tuple[float, float]] = {}
    for name in first.metrics:
        known = [value for outcome in outcomes if is_known(value := outcome.metrics[name])]
        metrics[name] = None
        if known:
            mean, low, high = (float(row) for row in compute_band(np.asarray(known, dtype=float)))
            metrics[name], bands[name] = mean, (low, high)
    series = {}
    for name in first.series:
        length = min(len(outcome.series[name]) for outcome in outcomes)
        series[name] = compute_band(np.stack([outcome.series[name][:length] for outcome in outcomes]))
    return SeedsOutcome(metrics, bands, series, first.series_seconds)


def is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def compute_band(values: Floats) -> Floats:
    """Return the mean over the first axis, and the low and high end of its band; a single value has no width."""
    mean, count = values.mean(axis=0), len(values)
    if count == 1:
        return np.stack([mean, mean, mean])
    half = stdtrit(count - 1, (1 + CONFIDENCE) / 2) * values.std(axis=0, ddof=1) / math.sqrt(count)
    return np.stack([mean, mean - half, mean + half])
