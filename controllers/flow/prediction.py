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
from controllers.flow.balance_gains import Floats

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
    model, gains = balance.MeanModel.of(parameters), balance.design_loop(parameters)
    loop = balance.build_loop(parameters, parameters.delay)
    poles = np.linalg.eigvals(loop)
    radius = float(np.abs(poles).max())
    response = _simulate_difference(loop, gains, model.a, placement.compute_response_samples(radius))
    apart = np.flatnonzero(np.abs(response) > SETTLED_WITHIN)
    denominator = np.convolve(np.convolve([1.0, -model.a], [1.0, -1.0]), [1.0, *gains[1:-1]])
    effect = np.full(parameters.averaging, model.b / parameters.averaging)
    numerator = np.convolve(effect, [gains[0], gains[-1] - gains[0]])
    return Prediction(
        tuple(complex(pole) for pole in poles),
        radius,
        True,
        int(apart[-1]) + 1,
        max(0.0, -min(response)),
        placement.compute_loop_margin(
            denominator, np.concatenate([np.zeros(len(denominator) - len(numerator)), numerator])
        ),
        response,
        0.0,
    )


def _simulate_difference(loop: Floats, gains: Floats, a: float, samples: int) -> tuple[float, ...]:
    """Return the differences with the disturbance that causes a difference of 1 without control.

    The shares are at rest before the first change, as those of the law.
    """
    state = np.zeros(len(loop))
    state[0], state[-1] = 1.0, 1.0 - gains[0] / gains[-1]
    values = []
    for _ in range(samples):
        values.append(float(state[0]))
        state = loop @ state
        state[0] += 1.0 - a
    return tuple(values)
