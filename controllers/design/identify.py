"""Identification of a first-order model: y(k+1) = a·y(k) + b·u(k-d) + c (Xu, section 3.1).

The values u are admitted, and y are measured. Least squares over the N transitions of the series. The paper's model has
no c, because it measures from the operating point. Plant data does not, so c is fitted if it explains more than chance
(Bayesian information criterion); otherwise it is 0, which keeps a and b precise.

Recursive least squares with forgetting: tracks the model of a changing plant.

Around the setpoint r and the mean admitted amount m,

    y(k+1) - r = a·(y(k) - r) + b·(u(k-d) - m) + c + noise of standard deviation s

With θ = (a, b / initial b, c) and φ = (y - r, initial b·(u - m), 1), all in the unit of y,

    K = Pφ / (s² + φ'Pφ)      θ ← θ + K·(y(k+1) - r - θ'φ)      P ← P - Kφ'P

c is the unknown part: the drain rate, or a persistent disturbance. It drifts by s per sample; a and b are forgotten by
a factor per sample. (Differences would need no c, but would color white noise and bias the estimates.)

Safeguards: only c is learned when the input moved by less than the noise (a loop at rest would forget all it knows) and
in the first sample that moves (an empty or full queue does not respond, and its limit would look like a small b); P
never exceeds the initial uncertainty; θ stays within bounds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_model
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import value
from controllers.design.placement import Model

Floats = npt.NDArray[np.float64]
MIN_TRANSITIONS = 8
CONSTANT = "is constant; vary the admitted amount so that its effect becomes visible"


@dataclass(frozen=True)
class IdentifiedModel:
    """The model, the standard deviation of its residuals (in y's unit), and the share that it explains."""

    a: float
    b: float
    c: float
    residual_std: float
    r2: float
    samples: int


def identify(u: Floats, y: Floats, delay: int = 0) -> IdentifiedModel:
    """Fit the model of two series of equal length. Raise `BadInput` naming u, y, or the rows if there is none."""
    if len(u) - 1 - delay < MIN_TRANSITIONS:
        needed = MIN_TRANSITIONS + 1 + delay
        raise BadInput("rows", f"must be at least {needed} to separate a and b from noise, not {len(u)}")
    (u, u_power), (y, y_power) = _scale_series(u), _scale_series(y)
    now, felt, after = y[delay:-1], u[: len(u) - 1 - delay], y[delay + 1 :]
    _check_varied("u", felt)
    _check_varied("y", after)
    without = _fit(np.column_stack([now, felt]), after)
    with_offset = _fit(np.column_stack([now, felt, np.ones_like(now)]), after)
    best = min((without, with_offset), key=lambda fit: _criterion(fit[1], len(fit[0]), len(after)))
    if without[1] <= (len(after) * (1e-12 * float(np.abs(after).max())) ** 2):
        best = without
    values, squares = best
    offset = float(values[2]) if len(values) == 3 else 0.0
    freedom = max(1, len(after) - len(values))
    spread = float(((after - after.mean()) ** 2).sum())
    if spread <= 0:
        raise BadInput("y", CONSTANT)
    return IdentifiedModel(
        float(values[0]),
        _unscale(float(values[1]), y_power - u_power, "b"),
        _unscale(offset, y_power, "the offset"),
        _unscale(math.sqrt(squares / freedom), y_power, "the residual"),
        1.0 - squares / spread,
        len(after),
    )


def _check_varied(name: str, series: Floats) -> None:
    """Check the values that the transitions use: no transition ends with the first y."""
    if np.ptp(series) <= 1e-12 * float(np.abs(series).max()):
        raise BadInput(name, CONSTANT)


def _scale_series(series: Floats) -> tuple[Floats, int]:
    """Return values of at most 1 and the power of 2 that divided them: exact, and no square overflows."""
    power = math.frexp(float(np.abs(series).max()))[1]
    return np.ldexp(series, -power), power


def _unscale(value: float, power: int, what: str) -> float:
    try:
        number = math.ldexp(value, power)
    except OverflowError:
        raise BadInput("y", f"is so large that {what} overflows; use a larger unit") from None
    if value and not number:
        raise BadInput("y", f"is so small that {what} underflows; use a smaller unit")
    return number


def _fit(regressors: Floats, after: Floats) -> tuple[Floats, float]:
    """Return the least-squares fit and its residual sum of squares. Columns are scaled: y may be bytes, u events."""
    scale = np.maximum(np.abs(regressors).max(axis=0), 1e-300)
    values, _, rank, _ = np.linalg.lstsq(regressors / scale, after, rcond=1e-12)
    if rank < regressors.shape[1]:
        # c is indistinguishable from the others: the fit without it may still succeed
        if regressors.shape[1] == 3:
            return np.zeros(3), math.inf
        raise BadInput("u", "follows y exactly, so the effects of u and y can't be separated; vary u independently")
    left = after - regressors @ (values / scale)
    return np.asarray(values / scale), float(left @ left)


def _criterion(squares: float, parameters: int, samples: int) -> float:
    """Return BIC: samples·ln(squares / samples) + parameters·ln(samples); smaller is better."""
    return samples * math.log(max(squares, 1e-300) / samples) + parameters * math.log(samples)


# Initial uncertainty: 0.1 for a, b itself for b, ten times the noise for c.
FIRST_VARIANCE = (0.01, 1.0)
FIRST_OFFSET_NOISES = 10.0
A_BOUNDS, RATIO_BOUNDS = (0.05, 1.05), (0.05, 20.0)
EXCITED = 2.0  # in units of the noise
AVERAGED = 0.1  # weight of the newest value in the mean admitted amount


class Estimate(msgspec.Struct, frozen=True):
    """θ; m, None before anything was admitted; and P, row by row, () before the first sample."""

    a: Annotated[float, value("1", "Estimated a.", *A_BOUNDS)]
    ratio: Annotated[
        float, value("b of the parameters", "Estimated b, relative to the parameter.", *RATIO_BOUNDS, required=True)
    ] = 1.0
    offset: Annotated[float, value("bytes", "Estimated offset.", -1e36, 1e36, required=True)] = 0.0
    mean: Annotated[float | None, value("events per interval", "Mean admitted amount.", 0.0, 1e12, or_null=True)] = None
    covariance: Annotated[
        tuple[float, ...],
        value(
            "units of a, ratio and offset",
            "P, row by row; empty before the first sample.",
            -1e36,
            1e36,
            required=True,
            most=9,
        ),
    ] = ()

    def model(self, start: Model) -> Model:
        return replace_model(start, a=self.a, b=start.b * self.ratio)


def build_initial_estimate(start: Model) -> Estimate:
    """Return the estimate before any measurement: the given model."""
    return Estimate(_clip(start.a, A_BOUNDS))


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
    """Return the estimate after y(k), y(k-1), y(k-2) and u(k-1), u(k-2), … (newest first).

    `noise` is s, in y's unit. A past that is too short teaches nothing.
    """
    at = start.delay
    if len(y) < 3 or len(u) < at + 2:
        return before
    felt = u[at]
    mean = felt if before.mean is None else before.mean + AVERAGED * (felt - before.mean)
    moved = mean - (mean if before.mean is None else before.mean)
    before = replace(before, mean=mean, offset=before.offset + start.b * before.ratio * moved)
    pushed, moved_before = start.b * (u[at] - u[at + 1]), y[1] - y[2]
    excited = abs(pushed) * before.ratio >= EXCITED * noise and abs(moved_before) >= noise
    regressor = np.array([y[1] - setpoint, start.b * (u[at] - (before.mean or 0.0)), 1.0])
    if excited:
        return _update_estimate(before, regressor, y[0] - setpoint, noise, forgetting)
    measured = y[0] - setpoint
    covariance = _predict_covariance(before, noise)
    surprise = measured - float(regressor @ [before.a, before.ratio, before.offset])
    share = covariance[2, 2] / (noise**2 + covariance[2, 2])
    covariance[2, :] *= 1 - share
    covariance[:2, 2] *= 1 - share
    return replace(
        before,
        offset=before.offset + float(share) * surprise,
        covariance=tuple(_bound_covariance(covariance, noise).ravel().tolist()),
    )


def _update_estimate(before: Estimate, regressor: Floats, measured: float, noise: float, forgetting: float) -> Estimate:
    covariance = _predict_covariance(before, noise)
    theta = np.array([before.a, before.ratio, before.offset])
    reach = covariance @ regressor
    # Rounding may leave a negative variance, or zero to divide by.
    scale = noise**2 + max(0.0, float(regressor @ reach))
    theta = theta + reach / scale * (measured - float(regressor @ theta))
    grown = np.array([forgetting**-0.5, forgetting**-0.5, 1.0])
    covariance = np.asarray((covariance - np.outer(reach, reach) / scale) * np.outer(grown, grown))
    return replace(
        before,
        a=_clip(float(theta[0]), A_BOUNDS),
        ratio=_clip(float(theta[1]), RATIO_BOUNDS),
        offset=float(theta[2]),
        covariance=tuple(_bound_covariance(covariance, noise).ravel().tolist()),
    )


def is_covariance(numbers: Sequence[float]) -> bool:
    """Return whether the numbers are a stored P: nine, row by row, symmetric, no variance below 0."""
    if len(numbers) != 9:
        return False
    matrix = np.array(numbers).reshape(3, 3)
    return bool((matrix == matrix.T).all() and (np.diag(matrix) >= 0).all())


def _predict_covariance(before: Estimate, noise: float) -> Floats:
    """Return P of this sample: c may have drifted."""
    known = before.covariance or np.diag([*FIRST_VARIANCE, (FIRST_OFFSET_NOISES * noise) ** 2]).ravel()
    covariance = np.array(known).reshape(3, 3)
    covariance[2, 2] += noise**2
    return covariance


def _bound_covariance(covariance: Floats, noise: float) -> Floats:
    """Return P with no variance above the initial one or below 0, and positive definite as before."""
    covariance[np.diag_indices(3)] = np.maximum(np.diag(covariance), 0.0)
    greatest = np.array([*FIRST_VARIANCE, (FIRST_OFFSET_NOISES * noise) ** 2])
    shrunk = np.sqrt(greatest / np.maximum(np.diag(covariance), np.maximum(greatest, 1e-300)))
    return np.asarray(covariance * np.outer(shrunk, shrunk))


def _clip(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


class Information(msgspec.Struct, frozen=True):
    """The normal equations of after = a·moved + ratio·pushed, with forgetting: sums of products."""

    moved: Annotated[float, value("s²", "moved · moved.", 0.0, 1e36)] = 0.0
    both: Annotated[float, value("s²", "moved · pushed.", -1e36, 1e36)] = 0.0
    pushed: Annotated[float, value("s²", "pushed · pushed.", 0.0, 1e36)] = 0.0
    moved_after: Annotated[float, value("s²", "moved · after.", -1e36, 1e36)] = 0.0
    pushed_after: Annotated[float, value("s²", "pushed · after.", -1e36, 1e36)] = 0.0


def learn_changes(
    before: Information, moved: Floats, pushed: Floats, after: Floats, noise: float, forgetting: float
) -> Information:
    """Return the information after a sample of changes. A model of changes needs no c.

    Of several measured values that have one model, each adds. Changes color the noise; therefore only a sample is
    learned whose input moved the values by more than the noise. The rest is forgotten all the same, so that after a
    quiet time the given model applies again.
    """
    sums = np.array(msgspec.structs.astuple(before)) * forgetting
    if float(np.linalg.norm(pushed)) >= EXCITED * noise:
        sums += [moved @ moved, moved @ pushed, pushed @ pushed, moved @ after, pushed @ after]
    return Information(*sums.tolist())


def solve_model(known: Information, a: float, noise: float) -> tuple[float, float]:
    """Return a and the ratio within bounds: least squares, with the given a and a ratio of 1 as first values."""
    first = np.array([a, 1.0])
    squares = np.array([[known.moved, known.both], [known.both, known.pushed]])
    surprise = np.array([known.moved_after, known.pushed_after]) - squares @ first
    # Without noise, changes that are multiples of each other would have no unique solution.
    variance = max(noise**2, 1e-6 * (known.moved + known.pushed), 1e-18)
    found = first + np.linalg.solve(squares + np.diag(variance / np.array(FIRST_VARIANCE)), surprise)
    return min(max(float(found[0]), 0.0), 1.0), _clip(float(found[1]), RATIO_BOUNDS)
