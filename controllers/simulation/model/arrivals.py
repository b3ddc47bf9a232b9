"""Arrival profiles of the lab: values between 0 and 1, one per step, to be multiplied by a rate."""

import numpy as np

from common.errors import BadInput
from controllers.simulation.model.scenario import Floats


def compute_day_sine(steps: int) -> Floats:
    """Return one day from its minimum, 0, over its peak, 1, and back: (1 - cos 2πt) / 2."""
    return np.asarray((1 - np.cos(2 * np.pi * np.arange(steps) / steps)) / 2)


def build_jump(steps: int, at: int, size: float) -> Floats:
    """Return 1 - size until the step `at`, and 1 from there on."""
    return np.where(np.arange(steps) < at, 1.0 - size, 1.0)


def resample(trace: Floats, steps: int) -> Floats:
    """Return a real trace, interpolated linearly to the number of steps and scaled to a maximum of 1.

    Raise `BadInput` if no value is above 0, or if any is negative or not finite.
    """
    _check(trace)
    at = np.linspace(0, trace.size - 1, steps)
    shape = np.interp(at, np.arange(trace.size), trace / trace.max())
    # All arrivals may lie between the steps.
    return np.asarray(shape / shape.max()) if shape.max() > 0 else resample_by_mean(trace, steps)


def resample_by_mean(trace: Floats, steps: int) -> Floats:
    """Return a real trace as `resampled`, but with the mean of each step if it has more values than steps.

    Raise `BadInput` as that function does.
    """
    _check(trace)
    if trace.size <= steps:
        return resample(trace, steps)
    edges = np.linspace(0, trace.size, steps + 1).astype(int)
    means = np.add.reduceat(trace / trace.max(), edges[:-1]) / np.diff(edges)
    return np.asarray(means / means.max())


def _check(trace: Floats) -> None:
    if trace.size == 0 or not np.all(np.isfinite(trace)) or trace.min() < 0 or trace.max() <= 0:
        raise BadInput("--trace", "must be numbers of at least 0, with at least one above 0")


def add_noise(rates: Floats, noise: float, chance: np.random.Generator) -> Floats:
    """Return rates times 1 + noise * N(0, 1), independently for each value, and never below 0."""
    if noise == 0:
        return rates
    return np.asarray(np.maximum(0.0, rates * (1 + noise * chance.standard_normal(rates.shape))))
