"""Identification of a first-order model: y(k+1) = a·y(k) + b·u(k-d) + c (Xu, section 3.1).

The values u are admitted, and y are measured. Least squares over the N transitions of the series. The paper's model has
no c, because it measures from the operating point. Plant data does not, so c is fitted if it explains more than chance
(Bayesian information criterion); otherwise it is 0, which keeps a and b precise.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.errors import BadInput

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
    """Fit the model of two series of equal length.

    Raise `BadInput` naming u, y, or the rows if there is none.
    """
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
    """Return the least-squares fit and its residual sum of squares.

    Columns are scaled: y may be bytes, u events.
    """
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
