"""Recursive least squares with forgetting: the plant's model followed while it changes.

Around the setpoint r and what is admitted on average, m,

    y(k+1) - r = a·(y(k) - r) + b·(u(k-d) - m) + c + noise of standard deviation s

With θ = (a, b / b of the start, c) and φ = (y - r, b of the start·(u - m), 1), all of the unit of y,

    K = Pφ / (s² + φ'Pφ)      θ ← θ + K·(y(k+1) - r - θ'φ)      P ← P - Kφ'P

c is what nobody knows: how much is drained, a disturbance that came to stay. It is taken to wander by s a
sample; a and b are forgotten by a factor a sample. (Differences would do without c, but make white noise
coloured, and the estimates biased.)

Safeguards: only c is learned where less than the noise was pushed (a loop at rest would forget all it knows)
and in the first sample that moves (an empty or full queue does not answer, and its limit would be taken for a
small b); P never exceeds what was not known at the start; θ stays in bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from controllers.design.placement import Model

Floats = npt.NDArray[np.float64]
# What is not known at the start: a to 0.1, b to itself; c, to ten times the noise.
FIRST_VARIANCE = (0.01, 1.0)
FIRST_OFFSET_NOISES = 10.0
A_BOUNDS, RATIO_BOUNDS = (0.05, 1.05), (0.05, 20.0)
EXCITED = 2.0  # in noises
AVERAGED = 0.1  # the weight of the newest in what is admitted on average


@dataclass(frozen=True)
class Estimate:
    """θ; m, None before anything was admitted; and P, row by row, () before the first sample."""

    a: float
    ratio: float = 1.0
    offset: float = 0.0
    mean: float | None = None
    covariance: tuple[float, ...] = ()

    def model(self, start: Model) -> Model:
        """The plant as it is estimated now."""
        return replace(start, a=self.a, b=start.b * self.ratio)


def first(start: Model) -> Estimate:
    """What is believed before anything was seen: the model that was given."""
    return Estimate(_within(start.a, A_BOUNDS))


def follow(
    before: Estimate,
    start: Model,
    y: Sequence[float],
    u: Sequence[float],
    *,
    setpoint: float,
    noise: float,
    forgetting: float,
) -> Estimate:
    """The estimate after y(k), y(k-1), y(k-2) and u(k-1), u(k-2), … (newest first); `noise` is s, y's unit.

    Too short a past teaches nothing.
    """
    at = start.delay
    if len(y) < 3 or len(u) < at + 2:
        return before
    before = _centred(before, start, u[at])
    pushed, moved_before = start.b * (u[at] - u[at + 1]), y[1] - y[2]
    excited = abs(pushed) * before.ratio >= EXCITED * noise and abs(moved_before) >= noise
    regressor = np.array([y[1] - setpoint, start.b * (u[at] - (before.mean or 0.0)), 1.0])
    if excited:
        return _learned(before, regressor, y[0] - setpoint, noise, forgetting)
    return _offset_learned(before, regressor, y[0] - setpoint, noise)


def _centred(before: Estimate, start: Model, felt: float) -> Estimate:
    """With what is admitted on average brought up to date; c takes what its change would explain."""
    mean = felt if before.mean is None else before.mean + AVERAGED * (felt - before.mean)
    moved = mean - (mean if before.mean is None else before.mean)
    return replace(before, mean=mean, offset=before.offset + start.b * before.ratio * moved)


def _learned(
    before: Estimate, regressor: Floats, measured: float, noise: float, forgetting: float
) -> Estimate:
    """One step of the filter on all of θ."""
    covariance = _covariance(before, noise)
    theta = np.array([before.a, before.ratio, before.offset])
    reach = covariance @ regressor
    # Rounding may leave less variance than none, and nothing to divide by.
    scale = noise**2 + max(0.0, float(regressor @ reach))
    theta = theta + reach / scale * (measured - float(regressor @ theta))
    covariance = _forgotten(covariance - np.outer(reach, reach) / scale, forgetting)
    return replace(
        before,
        a=_within(float(theta[0]), A_BOUNDS),
        ratio=_within(float(theta[1]), RATIO_BOUNDS),
        offset=float(theta[2]),
        covariance=tuple(_bounded(covariance, noise).ravel().tolist()),
    )


def _offset_learned(before: Estimate, regressor: Floats, measured: float, noise: float) -> Estimate:
    """One step of the filter on c, a and b as they are."""
    covariance = _covariance(before, noise)
    surprise = measured - float(regressor @ [before.a, before.ratio, before.offset])
    share = covariance[2, 2] / (noise**2 + covariance[2, 2])
    covariance[2, :] *= 1 - share
    covariance[:2, 2] *= 1 - share
    return replace(
        before,
        offset=before.offset + float(share) * surprise,
        covariance=tuple(_bounded(covariance, noise).ravel().tolist()),
    )


def is_covariance(numbers: Sequence[float]) -> bool:
    """Whether they are a P as it is kept: nine, row by row, symmetric, without a variance below 0."""
    if len(numbers) != 9:
        return False
    matrix = np.array(numbers).reshape(3, 3)
    return bool((matrix == matrix.T).all() and (np.diag(matrix) >= 0).all())


def _covariance(before: Estimate, noise: float) -> Floats:
    """P of this sample: c may have wandered."""
    known = before.covariance or np.diag([*FIRST_VARIANCE, (FIRST_OFFSET_NOISES * noise) ** 2]).ravel()
    covariance = np.array(known).reshape(3, 3)
    covariance[2, 2] += noise**2
    return covariance


def _forgotten(covariance: Floats, forgetting: float) -> Floats:
    """P with less weight on the past of a and b."""
    grown = np.array([forgetting**-0.5, forgetting**-0.5, 1.0])
    return np.asarray(covariance * np.outer(grown, grown))


def _bounded(covariance: Floats, noise: float) -> Floats:
    """P with no variance above that of the start or below 0, and as positive as before."""
    covariance[np.diag_indices(3)] = np.maximum(np.diag(covariance), 0.0)
    greatest = np.array([*FIRST_VARIANCE, (FIRST_OFFSET_NOISES * noise) ** 2])
    shrunk = np.sqrt(greatest / np.maximum(np.diag(covariance), np.maximum(greatest, 1e-300)))
    return np.asarray(covariance * np.outer(shrunk, shrunk))


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
