"""Gains of the balance law: the regulator of the differences that `controllers.flow.balance` describes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from controllers.design.lqr import design_regulator

Floats = npt.NDArray[np.float64]
Problem = tuple[Floats, Floats, Floats, Floats]  # A, B, Q, R


@dataclass(frozen=True)
class BalanceGains:
    """K, L, and M of the law: numbers for identical replicas, otherwise N by N matrices."""

    difference: Floats
    lasting: Floats
    past: tuple[Floats, ...] = ()

    def change(self, now: Floats, before: Floats, ratio: float = 1.0, moves: Sequence[Floats] = ()) -> Floats:
        """Return the change of the shares; it sums to 0.

        ratio: identified b, relative to the model. moves: earlier changes of the shares, newest first.
        """
        change = -(np.dot(self.difference, now - before) + np.dot(self.lasting, before)) / ratio
        for gain, moved in zip(self.past, moves, strict=False):
            change = change - np.dot(gain, moved)
        return np.asarray(change - change.mean())


def design_balance_gains(
    a: Floats, b: Floats, *, q: float, integral: float, r: float, delay: int = 0, averaging: int = 1
) -> BalanceGains:
    """Return the gains of the regulator for replicas with these models, one element each."""
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        difference, *past, lasting = design_one_loop(float(a[0]), float(b[0]), q, integral, r, delay, averaging)
        return BalanceGains(difference, lasting, tuple(past))
    basis = build_difference_basis(len(a))
    problem = build_difference_system(a, b, q=q, integral=integral, r=r, delay=delay, averaging=averaging)
    parts = np.split(design_regulator(*problem).gain, delay + averaging + 1, axis=1)
    difference, *past, lasting = (basis.T @ part @ basis for part in parts)
    return BalanceGains(difference, lasting, tuple(past))


def build_difference_basis(replicas: int) -> Floats:
    """Return T, an orthonormal basis of vectors that sum to 0: N - 1 rows of N."""
    return np.asarray(scipy.linalg.helmert(replicas))


def build_difference_system(
    a: Floats, b: Floats, *, q: float, integral: float, r: float, delay: int = 0, averaging: int = 1
) -> Problem:
    """Return A, B, Q, R of the law: states x, earlier v, and i, inputs v."""
    basis = build_difference_basis(len(a))
    return _build_problem((basis * a) @ basis.T, (basis * b) @ basis.T, q, integral, r, delay, averaging)


@lru_cache(maxsize=64)
def design_one_loop(a: float, b: float, q: float, integral: float, r: float, delay: int, averaging: int) -> Floats:
    """Return K, the M_j, and L of one decoupled loop."""
    problem = _build_problem(np.array([[a]]), np.array([[b]]), q, integral, r, delay, averaging)
    return np.asarray(design_regulator(*problem).gain[0])


def _build_problem(a: Floats, b: Floats, q: float, integral: float, r: float, delay: int, averaging: int) -> Problem:
    one = np.eye(len(a))
    weights = scipy.linalg.block_diag(q * one, *[0 * one] * (delay + averaging - 1), integral * one)
    return *build_system(a, b, delay, averaging), weights, r * one


def build_system(a: Floats, b: Floats, delay: int, averaging: int, pending: int | None = None) -> tuple[Floats, Floats]:
    """Return A and B with room for `pending` earlier v, by default as many as have not taken full effect."""
    size, last = len(a), (delay + averaging - 1 if pending is None else pending) + 1
    system, inputs = np.zeros((last + 1, last + 1, size, size)), np.zeros((last + 1, size, size))
    system[0, 0], system[last, 0], system[last, last] = a, np.eye(size), np.eye(size)
    for earlier in range(delay, delay + averaging):
        (system[0] if earlier else inputs)[earlier] = b / averaging
    for earlier in range(1, last):
        (system[earlier] if earlier > 1 else inputs)[max(earlier - 1, 1)] = np.eye(size)
    return system.transpose(0, 2, 1, 3).reshape(inputs.shape[0] * size, -1), inputs.reshape(-1, size)
