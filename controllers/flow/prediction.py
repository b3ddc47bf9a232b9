"""The predicted response of a law's parameters on its model, before they are applied: poles, margin, and settling.

| law | response | final value |
|---|---|---|
| `flow` | free space to a new setpoint, as a share of the step | 1 |
| `balance` | a lasting difference from outside, as a share of it | 0 |
"""

from dataclasses import dataclass

import numpy as np

from controllers.design import placement
from controllers.flow import admission, balance
from controllers.flow.admission import FlowParameters
from controllers.flow.balance import BalanceParameters

SETTLED_WITHIN = placement.SETTLED_WITHIN


@dataclass(frozen=True)
class Prediction:
    """A prediction; `response` has a value per interval, and None for what an unstable loop lacks."""

    poles: tuple[complex, ...]
    spectral_radius: float
    stable: bool
    settling_samples: int | None
    overshoot: float | None
    gain_margin: float | None
    response: tuple[float, ...]
    rests_at: float


def predict_flow(parameters: FlowParameters) -> Prediction | None:
    """Return the step response of the flow law on its model, or None without a model."""
    model, gains = admission.model_of(parameters), admission.build_gains(parameters)
    if model is None:
        return None
    report = placement.report(model, gains)
    samples = placement.compute_response_samples(report.spectral_radius) if report.stable else 0
    return Prediction(
        tuple(complex(pole) for pole in placement.compute_poles(model, gains)),
        report.spectral_radius,
        report.stable,
        report.settling_samples,
        report.overshoot,
        report.gain_margin,
        placement.simulate_step(model, gains, samples),
        1.0,
    )


def predict_balance(parameters: BalanceParameters) -> Prediction:
    """Return the course of a difference on replicas with the mean of the models."""
    a = float(np.mean([*parameters.a_of.values()])) if parameters.a_of else parameters.a
    b = float(np.mean([*parameters.b_of.values()])) if parameters.b_of else parameters.b
    gain, lasting = balance.compute_decoupled_gains(a, b, q=parameters.q, integral=parameters.integral, r=parameters.r)
    denominator = np.convolve([1.0, -a], [1.0, -1.0])
    numerator = b * np.array([0.0, gain, lasting - gain])
    poles = np.roots(denominator + numerator)
    radius = float(np.abs(poles).max())
    response = _simulate_difference(a, b, gain, lasting, placement.compute_response_samples(radius))
    apart = np.flatnonzero(np.abs(response) > SETTLED_WITHIN)
    return Prediction(
        tuple(complex(pole) for pole in poles),
        radius,
        True,
        int(apart[-1]) + 1,
        max(0.0, -min(response)),
        placement.compute_loop_margin(denominator, numerator),
        response,
        0.0,
    )


def _simulate_difference(a: float, b: float, gain: float, lasting: float, samples: int) -> tuple[float, ...]:
    """Return x(k+1) = a·x(k) + b·v(k) plus the disturbance that causes a difference of 1 without control."""
    values, v, before = [1.0], 0.0, 1.0
    for _ in range(samples - 1):
        x = values[-1]
        v -= gain * (x - before) + lasting * before
        before = x
        values.append(a * x + b * v + (1 - a))
    return tuple(values)
