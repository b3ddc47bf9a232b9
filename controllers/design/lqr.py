"""The linear quadratic regulator: u = -K·x that minimizes Σ x'Qx + u'Ru for x(k+1) = A·x(k) + B·u(k).

X solves the Riccati equation X = A'XA - A'XB(R + B'XB)^-1 B'XA + Q, and K = (R + B'XB)^-1 B'XA. X is computed by
structured doubling (SDA; Chu, Fan, Lin 2005): with A0 = A, G0 = B·R^-1·B', H0 = Q and W = I + G·H,

    A ← A·W^-1·A        G ← G + A·W^-1·G·A'        H ← H + A'·H·W^-1·A

H converges to X, and A to a power of the closed loop, which is 0 for a stable loop. Each step doubles the horizon:
about seven steps of n³ work, where the generalized eigenvalues of a 2n by 2n pencil cost tens of times more. The pencil
remains for the cases without doubling: a singular R, or an unstable state that Q does not weight.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from common.errors import BadInput

Floats = npt.NDArray[np.float64]
MAX_DOUBLINGS = 60
# A step squares the rest: after a step that adds less than this, nothing is left in 16 digits.
SETTLED = 1e-9
STABLE_POWER = 1e-3
SYMMETRIC_WITHIN = 1e-9
STABLE_BELOW = 1 - 1e-10


@dataclass(frozen=True)
class Regulator:
    """K (m by n), X (n by n), and the closed loop A - B·K (n by n)."""

    gain: Floats
    cost: Floats
    loop: Floats

    @property
    def is_finite(self) -> bool:
        return all(bool(np.isfinite(matrix).all()) for matrix in (self.gain, self.cost, self.loop))

    @property
    def spectral_radius(self) -> float:
        """Return the size of the largest eigenvalue: below 1, a sampled loop is stable."""
        return float(np.abs(np.linalg.eigvals(self.loop)).max(initial=0.0))


def design_regulator(a: Floats, b: Floats, q: Floats, r: Floats) -> Regulator:
    """Return the stabilizing regulator. Raise `BadInput` naming A, B, Q, or R if there is none."""
    _check_matrices(a, b, q, r)
    with np.errstate(all="ignore"):  # overflow shows in the result
        cost = _solve_by_doubling(a, b, q, r)
        result = None if cost is None else _build_regulator(a, b, r, cost)
        if result is not None:
            return result
        try:
            with warnings.catch_warnings():
                # If the pencil could not be ordered, the check of the loop below fails.
                warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
                result = _build_regulator(a, b, r, scipy.linalg.solve_discrete_are(a, b, q, r))
        except (np.linalg.LinAlgError, ValueError) as error:
            raise _build_unsolvable_error(a, b, r) from error
        # The largest element of each matrix, or 1 for a matrix of zeros.
        sizes = {name: float(np.abs(m).max(initial=0.0)) or 1.0 for name, m in zip("ABQR", (a, b, q, r), strict=True)}
        if result is None and not all(1e-50 <= size <= 1e50 for size in sizes.values()):
            name = max(sizes, key=lambda matrix: abs(math.log10(sizes[matrix])))
            raise BadInput(name, f"has a magnitude of {sizes[name]:.2g}, at which the gains overflow; use other units")
        if result is None or not result.spectral_radius < STABLE_BELOW:
            raise _build_unsolvable_error(a, b, r)
        return result


def _check_matrices(a: Floats, b: Floats, q: Floats, r: Floats) -> None:
    """Raise `BadInput` naming the matrix that has the wrong shape or is no weight."""
    states, inputs = len(a), b.shape[1]
    for name, matrix, shape in (
        ("A", a, (states, states)),
        ("B", b, (states, inputs)),
        ("Q", q, (states, states)),
        ("R", r, (inputs, inputs)),
    ):
        if matrix.shape != shape:
            rows, columns = matrix.shape
            raise BadInput(name, f"must have {shape[0]} rows of {shape[1]}, not {rows} of {columns}")
    for name, weight in (("Q", q), ("R", r)):
        scale = max(float(np.abs(weight).max(initial=0.0)), 1e-300)
        if np.abs(weight - weight.T).max(initial=0.0) > SYMMETRIC_WITHIN * scale:
            raise BadInput(name, "must be symmetric (equal to its transpose)")
        if np.linalg.eigvalsh(weight).min(initial=0.0) < -SYMMETRIC_WITHIN * scale:
            raise BadInput(name, "has a negative eigenvalue; a weight can't reward a deviation")


def _solve_by_doubling(a: Floats, b: Floats, q: Floats, r: Floats) -> Floats | None:
    """Return X by doubling, or None if R is singular or the result is not stable."""
    try:
        g = b @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(r), b.T)
    except (np.linalg.LinAlgError, ValueError):
        return None
    h, identity = np.array(q), np.eye(len(a))
    with np.errstate(all="ignore"):
        for _ in range(MAX_DOUBLINGS):
            try:
                solved = np.linalg.solve(identity + g @ h, np.hstack([a, g @ a.T]))
            except np.linalg.LinAlgError:  # singular: the weights are so far apart that rounding loses one
                return None
            wa, wga = solved[:, : len(a)], solved[:, len(a) :]
            grown = a.T @ h @ wa
            g, h, a = g + a @ wga, h + grown, a @ wa
            g, h = (g + g.T) / 2, (h + h.T) / 2
            size = float(np.abs(grown).max())
            if not np.isfinite(size):
                return None
            if size <= SETTLED * float(np.abs(h).max()):
                return np.asarray(h) if float(np.abs(a).max()) < STABLE_POWER else None
    return None


def _build_regulator(a: Floats, b: Floats, r: Floats, cost: Floats) -> Regulator | None:
    try:
        gain = np.linalg.solve(r + b.T @ cost @ b, b.T @ cost @ a)
    except np.linalg.LinAlgError:
        return None
    result = Regulator(np.asarray(gain, dtype=float), cost, a - b @ gain)
    return result if result.is_finite else None


def _build_unsolvable_error(a: Floats, b: Floats, r: Floats) -> BadInput:
    """Return the error naming the matrix at fault: B if it misses an unstable state of A, otherwise R or Q."""
    scale = max(1.0, float(np.abs(a).max()))
    for value in np.linalg.eigvals(a):
        reached = np.hstack([a - value * np.eye(len(a)), b])
        if abs(value) >= 1 - 1e-9 and np.linalg.svd(reached, compute_uv=False)[-1] < 1e-9 * scale:
            return BadInput("B", f"does not reach the unstable mode {value:.4g} of A: nothing can stabilize it")
    if not np.linalg.cond(r) < 1e14:
        return BadInput("R", "is singular, and Q does not compensate for it; give every input a cost above 0")
    return BadInput("Q", "does not weight a mode of A that neither grows nor decays; give it a weight above 0")
