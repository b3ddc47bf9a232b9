"""Gains of the flow law by pole placement, and the behavior that gains promise (Xu, section 3.1).

The plant, sample by sample, with y the free space, u the admitted amount, and d the samples until u takes effect:

    y(k+1) = a·y(k) + b·u(k-d)

The law, where `pi` uses x = e = setpoint - y in the proportional term and `i-p` uses x = -y, so that a new setpoint
causes no kick (ERRATA E6: the same poles, 17 % overshoot instead of 89 %):

    u(k) = u(k-1) + ki·e(k) + kp·(x(k) - x(k-1)) - kd·(u(k-1) - u(k-2))

The poles of the loop are the zeros of D(z) + N(z), with

    D(z) = (z - a)(z - 1)(z + kd)·z^max(d-1, 0)        N(z) = b·((kp + ki)·z - kp)·z^max(1-d, 0)

which for d = 0 and kd = 0 is, apart from a factor z, the paper's z² + (b(kp+ki) - 1 - a)z + a - b·kp (E1). Without kd
and with a delay only two of the three poles can be chosen: their sum is 1 + a (E5).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.errors import BadInput

Floats = npt.NDArray[np.float64]
FORMS = ("i-p", "pi")
SETTLED_WITHIN = 0.02
MAX_RESPONSE = 5_000
ON_CIRCLE = 1e-6
NEGLIGIBLE = 1e-30  # relative to the largest coefficient
MAX_GAIN = 1e100  # products of two larger values overflow
STABLE_BELOW = 1 - 1e-9  # a pole at 1, as with ki = 0, is computed slightly below 1


@dataclass(frozen=True)
class Model:
    """Response of the plant: y(k+1) = a·y(k) + b·u(k-delay)."""

    a: float
    b: float
    delay: int = 0


@dataclass(frozen=True)
class Gains:
    kp: float
    ki: float
    kd: float = 0.0
    form: str = "i-p"


@dataclass(frozen=True)
class GainsReport:
    """The predicted response of gains on a model. None: undefined, as in an unstable loop."""

    spectral_radius: float
    stable: bool
    settling_samples: int | None
    overshoot: float | None
    gain_margin: float | None


def open_loop(model: Model, gains: Gains) -> tuple[Floats, Floats]:
    """Return D and N, highest power first, with equal length."""
    slow = [1.0, *[0.0] * max(model.delay - 1, 0)]
    factors = ([1.0, -model.a], [1.0, -1.0], [1.0, gains.kd], slow)
    denominator = np.array([1.0])
    for factor in factors:
        denominator = np.convolve(denominator, factor)
    numerator = model.b * np.array([gains.kp + gains.ki, -gains.kp, *[0.0] * max(1 - model.delay, 0)])
    return denominator, np.concatenate([np.zeros(len(denominator) - len(numerator)), numerator])


def compute_poles(model: Model, gains: Gains) -> npt.NDArray[np.complex128]:
    denominator, numerator = open_loop(model, gains)
    roots = np.roots(denominator + numerator).astype(complex)
    return np.asarray(roots[np.argsort(-np.abs(roots))])


def compute_spectral_radius(model: Model, gains: Gains) -> float:
    """Return the size of the largest pole: below 1 the loop is stable."""
    return float(np.abs(compute_poles(model, gains)).max(initial=0.0))


def place(model: Model, poles: Sequence[complex], form: str = "i-p") -> Gains:
    """Return the gains that place the poles: two give kp and ki, three also kd. Raise `BadInput` naming the input."""
    if model.b == 0:
        raise BadInput("b", "must not be 0: without an effect nothing can be controlled")
    if len(poles) not in (2, 3):
        raise BadInput("poles", f"must have two poles (kp, ki) or three (kp, ki, kd), not {len(poles)}")
    _check_conjugate(poles)
    polynomial = [float(coefficient) for coefficient in np.real(np.poly(np.asarray(poles)))]
    gains = _place_without_kd(model, polynomial, form) if len(poles) == 2 else _place_with_kd(model, polynomial, form)
    for field, divisor, values in (("a", model.a, (gains.kd,)), ("b", model.b, (gains.kp, gains.ki))):
        if not all(abs(value) <= MAX_GAIN for value in values):
            raise BadInput(field, f"is too small for these poles: {divisor:g} makes gains above {MAX_GAIN:g}")
    return gains


def _place_without_kd(model: Model, polynomial: Sequence[float], form: str) -> Gains:
    _, first, last = polynomial
    if model.delay:
        # The third pole is 1 + a - (the two): the polynomial gets its factor.
        third = 1 + model.a + first
        first, last = last - third * first, -third * last
        total = (first - model.a) / model.b
    else:
        total = (first + 1 + model.a) / model.b
        last -= model.a
    kp = -last / model.b
    return Gains(kp, total - kp, 0.0, form)


def _place_with_kd(model: Model, polynomial: Sequence[float], form: str) -> Gains:
    _, second, first, last = polynomial
    a, b = model.a, model.b
    if model.delay:
        kd = second + 1 + a
        kp = (kd * a - last) / b
        return Gains(kp, (first - a + kd * (1 + a)) / b - kp, kd, form)
    if a == 0:
        raise BadInput("a", "must not be 0 with three poles and no delay; use two poles")
    kd = last / a
    kp = (a - kd * (1 + a) - first) / b
    return Gains(kp, (second - kd + 1 + a) / b - kp, kd, form)


def _check_conjugate(poles: Sequence[complex]) -> None:
    """Raise `BadInput` unless complex poles come in conjugate pairs; otherwise the gains would not be real."""
    left = [pole for pole in poles if pole.imag]
    while left:
        pole = left.pop()
        pair = min(left, key=lambda other: abs(other - pole.conjugate()), default=None)
        if pair is None or abs(pair - pole.conjugate()) > 1e-9 * max(1.0, abs(pole)):
            raise BadInput("poles", f"has {pole:g} without its conjugate; complex poles come in pairs")
        left.remove(pair)


def simulate_step(model: Model, gains: Gains, samples: int) -> tuple[float, ...]:
    """Return y at `samples` instants, sample 0 first, when the setpoint rises from 0 to 1 at rest."""
    measured, admitted = [0.0], list[float]()
    before, earlier, past = 0.0, 0.0, 0.0
    # i-p has no setpoint in its proportional term; pi sees it jump at the first sample.
    kick = gains.kp if gains.form == "pi" else 0.0
    for at in range(samples):
        y = measured[-1]
        u = before + gains.ki * (1 - y) - gains.kp * (y - past) - gains.kd * (before - earlier) + kick
        kick, past, before, earlier = 0.0, y, u, before
        admitted.append(u)
        felt = admitted[at - model.delay] if at >= model.delay else 0.0
        measured.append(model.a * y + model.b * felt)
    return tuple(measured[:samples])


def compute_response_samples(radius: float) -> int:
    """Return how many samples show the whole response of a stable loop, within bounds."""
    if radius >= STABLE_BELOW:
        return MAX_RESPONSE
    return min(MAX_RESPONSE, 20 + math.ceil(math.log(1e-5) / math.log(max(radius, 0.1))))


def report(model: Model, gains: Gains) -> GainsReport:
    """Return what the gains promise: poles, response to a step of the setpoint, and gain margin."""
    radius = compute_spectral_radius(model, gains)
    if not radius < STABLE_BELOW:
        return GainsReport(radius, False, None, None, None)
    margin = compute_loop_margin(*open_loop(model, gains))
    measured = np.array(simulate_step(model, gains, compute_response_samples(radius)))
    if not np.isfinite(measured).all():  # rounding loses the sums of gains this large
        return GainsReport(radius, True, None, None, margin)
    settled = int(np.flatnonzero(np.abs(measured - 1) > SETTLED_WITHIN)[-1]) + 1
    within = settled if settled < len(measured) else None
    return GainsReport(radius, True, within, max(0.0, float(measured.max()) - 1), margin)


def compute_loop_margin(denominator: Floats, numerator: Floats) -> float | None:
    """Return the gain margin of a loop given as D and N, highest power first, with equal length.

    A pole z on the unit circle at the factor g has D(z) + g·N(z) = 0. As g is real, D(z)·N(1/z) = D(1/z)·N(z) there, a
    polynomial whose zeros give every candidate.
    """
    crossing = np.convolve(denominator, numerator[::-1]) - np.convolve(denominator[::-1], numerator)
    # A tiny coefficient has its zero at infinity, far from the circle.
    crossing[np.abs(crossing) < NEGLIGIBLE * np.abs(crossing).max()] = 0.0
    factors = []
    for z in np.roots(np.trim_zeros(crossing, "f")):
        if abs(abs(z) - 1) > ON_CIRCLE:
            continue
        n = np.polyval(numerator, z)
        if abs(n) < 1e-12 * np.abs(numerator).max():
            continue
        factor = -np.polyval(denominator, z) / n
        if factor.real > 1 + ON_CIRCLE:
            factors.append(float(factor.real))
    return min(factors, default=None)
