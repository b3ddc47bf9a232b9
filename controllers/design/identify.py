"""A first-order model from what was admitted and measured: y(k+1) = a·y(k) + b·u(k-d) + c (Xu, section 3.1).

Least squares over the N transitions of the series. The paper's model has no c: it measures from the
operating point. Data from a plant does not, so c is fitted where it explains more than chance would
(Bayesian information criterion), and is 0 else, which keeps a and b sharp.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from queues.errors import BadInput

Floats = npt.NDArray[np.float64]
FEWEST_TRANSITIONS = 8
CONSTANT = "is constant; vary what is admitted so that its effect can be seen"


@dataclass(frozen=True)
class Identified:
    """The model, the standard deviation of what it leaves unexplained (y's unit), and its share explained."""

    a: float
    b: float
    c: float
    residual_std: float
    r2: float
    samples: int


def identify(u: Floats, y: Floats, delay: int = 0) -> Identified:
    """The model of two series of one length. Raises `BadInput` naming u, y or the rows when there is none."""
    _check_length(u, delay)
    (u, u_power), (y, y_power) = _scaled(u), _scaled(y)
    now, felt, after = y[delay:-1], u[: len(u) - 1 - delay], y[delay + 1 :]
    _check_varied("u", felt)
    _check_varied("y", after)
    without = _fit(np.column_stack([now, felt]), after)
    with_offset = _fit(np.column_stack([now, felt, np.ones_like(now)]), after)
    best = min((without, with_offset), key=lambda fit: _criterion(fit[1], len(fit[0]), len(after)))
    if without[1] <= _rounding(after):
        best = without
    values, squares = best
    offset = float(values[2]) if len(values) == 3 else 0.0
    freedom = max(1, len(after) - len(values))
    spread = float(((after - after.mean()) ** 2).sum())
    if spread <= 0:
        raise BadInput("y", CONSTANT)
    return Identified(
        float(values[0]),
        _unscaled(float(values[1]), y_power - u_power, "b"),
        _unscaled(offset, y_power, "its offset"),
        _unscaled(math.sqrt(squares / freedom), y_power, "what is left"),
        1.0 - squares / spread,
        len(after),
    )


def _check_length(u: Floats, delay: int) -> None:
    if len(u) - 1 - delay < FEWEST_TRANSITIONS:
        needed = FEWEST_TRANSITIONS + 1 + delay
        raise BadInput("rows", f"are {len(u)}; at least {needed} are needed to separate a and b from noise")


def _check_varied(name: str, series: Floats) -> None:
    """Of the values that the transitions hold: no transition ends with the first y."""
    if np.ptp(series) <= 1e-12 * float(np.abs(series).max()):
        raise BadInput(name, CONSTANT)


def _scaled(series: Floats) -> tuple[Floats, int]:
    """Values of at most 1, and the power of 2 they were divided by: exact, and no square leaves the range."""
    power = math.frexp(float(np.abs(series).max()))[1]
    return np.ldexp(series, -power), power


def _unscaled(value: float, power: int, what: str) -> float:
    try:
        found = math.ldexp(value, power)
    except OverflowError:
        raise BadInput("y", f"is so large that {what} can't be written; take a larger unit") from None
    if value and not found:
        raise BadInput("y", f"is so small that {what} can't be written; take a smaller unit")
    return found


def _fit(regressors: Floats, after: Floats) -> tuple[Floats, float]:
    """Least squares, and the sum of squares that is left. Columns are scaled: y may be bytes, u events."""
    scale = np.maximum(np.abs(regressors).max(axis=0), 1e-300)
    values, _, rank, _ = np.linalg.lstsq(regressors / scale, after, rcond=1e-12)
    if rank < regressors.shape[1]:
        # nothing distinguishes c from the others: without it the rest may still do
        if regressors.shape[1] == 3:
            return np.zeros(3), math.inf
        raise BadInput("u", "follows y exactly, so their effects can't be separated; vary it by itself")
    left = after - regressors @ (values / scale)
    return np.asarray(values / scale), float(left @ left)


def _criterion(squares: float, parameters: int, samples: int) -> float:
    """BIC: samples·ln(squares / samples) + parameters·ln(samples); the smaller, the better."""
    return samples * math.log(max(squares, 1e-300) / samples) + parameters * math.log(samples)


def _rounding(after: Floats) -> float:
    """Squares below this are those of numbers written with twelve digits: nothing is left to explain."""
    return len(after) * (1e-12 * float(np.abs(after).max())) ** 2
