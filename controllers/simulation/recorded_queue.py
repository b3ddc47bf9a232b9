"""The free space and the waiting events of a recorded result queue with other gains of its law.

A record has, sample by sample, the free bytes y and the events u admitted since the previous sample. Its model is the
law's, fitted to each stretch (`controllers.design.identify`; if that fails, the model in force):

    d(k) = y(k+1) - a·y(k) - b·u(k+1-delay)          not explained by the model: batches, hogs, bursts
    y'(k+1) = a·y'(k) + b·u'(k+1-delay) + d(k)       the same disturbances, with other admissions

within 0 and the maximum free space. No more is admitted than had arrived in the record by then, because arrivals that
were not requested are not recorded. This applies to both results that are compared. With r the setpoint and e = r - y'
(0 above r if nothing waits, because too little arrives to reach it),

    cost = rms(e) / r + 10·(samples with nothing free) / n + 0.01·(events waiting) / (events a sample)

A wait of a hundred more samples thus costs as much as free space that is always wrong by all of it. Gains that are
unstable on the law's own model cost `REFUSED`. Shape: a row per sample, [free bytes, events admitted].
"""

import math
from collections.abc import Sequence

import numpy as np

from common.errors import BadInput
from controllers.design.identify import identify
from controllers.flow.admission import Flow, FlowObservation, FlowParameters, limit_of, model_of
from controllers.simulation.scenario import Floats

FULL_PRICE, WAITING_PRICE, REFUSED = 10.0, 0.01, 1e6
TUNED = ("kp", "ki")
MIN_SAMPLES = 20
LAW = Flow()


def resample_observations(
    at_seconds: Sequence[float], free_bytes: Sequence[float], admitted: Sequence[float]
) -> Floats:
    """Return observations as rows at equal distances, the median one; empty for too few."""
    if len(at_seconds) < MIN_SAMPLES:
        return np.zeros((0, 2))
    at = np.asarray(at_seconds, dtype=float)
    grid = np.arange(at[0], at[-1] + 1e-9, float(np.median(np.diff(at))))
    came = np.diff(np.interp(grid, at, np.cumsum(admitted)), prepend=0.0)
    came[0] = admitted[0]
    return np.column_stack([np.interp(grid, at, np.asarray(free_bytes, dtype=float)), came])


def compute_mean_cost(values: FlowParameters, stretches: Sequence[Floats]) -> float:
    """Return the mean cost of some stretches with all of the law's parameters."""
    try:
        LAW.check(values)
    except BadInput:
        return REFUSED
    return float(np.mean([_compute_cost(values, stretch) for stretch in stretches]))


def _compute_cost(values: FlowParameters, recorded: Floats) -> float:
    model = _model(values, recorded)
    if model is None:
        return 0.0
    setpoint = max(1.0, values.setpoint)
    free, waiting = replay(values, recorded, *model)
    wrong = np.where((free < setpoint) | (waiting > 0.5), setpoint - free, 0.0) / setpoint
    rate = max(1.0, float(recorded[:, 1].mean()))
    return (
        math.sqrt(float((wrong**2).mean()))
        + FULL_PRICE * float((free <= 0).mean())
        + WAITING_PRICE * float(waiting.mean()) / rate
    )


def _model(values: FlowParameters, recorded: Floats) -> tuple[float, float, int] | None:
    """Return a, b, and the delay of the stretch, else of the law; None if neither is known."""
    given = model_of(values)
    delay = given.delay if given else 0
    try:
        # u(k) of a record was admitted before y(k): it is the model's u(k-1).
        model = identify(recorded[1:, 1], recorded[:-1, 0], delay)
    except BadInput:
        model = None
    if model is not None and model.b < 0 and 0 < model.a <= 1:
        return model.a, model.b, delay
    return (given.a, given.b, delay) if given else None


def replay(values: FlowParameters, recorded: Floats, a: float, b: float, delay: int) -> tuple[Floats, Floats]:
    """Return, sample by sample, the free bytes and the events that wait to be admitted."""
    y, came, most = recorded[:, 0], recorded[:, 1], float(recorded[:, 0].max())
    left = np.zeros(len(y))
    left[delay:-1] = y[delay + 1 :] - a * y[delay:-1] - b * came[1 : len(y) - delay]
    free, waiting, admitted = y.copy(), np.zeros(len(y)), came.copy()
    state, queue = LAW.start(values), 0.0
    for k in range(delay, len(y) - 1):
        seen = FlowObservation(measured=float(free[k]), applied=float(admitted[k]))
        state, decision = LAW.decide(values, state, seen)
        queue += came[k + 1]
        admitted[k + 1] = min(queue, limit_of(decision))
        queue -= admitted[k + 1]
        free[k + 1] = min(max(0.0, a * free[k] + b * admitted[k + 1 - delay] + left[k]), most)
        waiting[k + 1] = queue
    return free, waiting
