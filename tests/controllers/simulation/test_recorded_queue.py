"""A result queue's record worked once more: the same gains give the same record, better ones cost less."""

import numpy as np
import pytest

from controllers.flow.admission import LAW, FlowObservation, FlowParameters
from controllers.simulation.recorded_queue import REFUSED, compute_mean_cost, replay, resample_observations

A, B, DELAY, CAPACITY = 1.0, -100.0, 1, 2e7
SETPOINT = CAPACITY / 2
GOOD = {"kp": -0.0022, "ki": -0.0006}
SLUGGISH = {"kp": -0.0002, "ki": -0.00001}


def values(**gains):
    model = {"a": A, "b": B, "delay": DELAY}
    return FlowParameters(setpoint=SETPOINT, minimum=512.0, maximum=1e6, **model, **gains)


def recorded(gains, seed=1, ticks=400, offered=9_000.0):
    """[free, admitted] of a plant under these gains: 4,000 events a sample are worked, by a hog 2,000."""
    chance, parameters = np.random.default_rng(seed), values(**gains)
    state, free, waiting, rows = LAW.start(parameters), CAPACITY, 0.0, []
    admitted = [0.0, 0.0]
    for tick in range(ticks):
        rows.append((free, admitted[-1]))
        state, decision = LAW.decide(parameters, state, FlowObservation(measured=free, applied=admitted[-1]))
        waiting += offered
        admitted.append(min(waiting, decision.action["admit"]))
        waiting -= admitted[-1]
        worked = (2_000 if 150 <= tick < 250 else 4_000) * chance.normal(1, 0.05)
        free = min(CAPACITY, max(0.0, A * free + B * admitted[-1 - DELAY] - B * worked))
    return np.asarray(rows)


def wrong(rows):
    return float(np.sqrt(((rows[100:, 0] - SETPOINT) ** 2).mean()) / SETPOINT)


def test_the_gains_that_made_a_record_give_it_again():
    rows = recorded(GOOD)
    free, _ = replay(values(**GOOD), rows, A, B, DELAY)
    assert np.abs(free - rows[:, 0]).max() < 0.02 * CAPACITY


def test_what_the_replay_prefers_is_better_on_the_plant_itself():
    rows = recorded(SLUGGISH)
    assert compute_mean_cost(values(**GOOD), [rows]) < 0.8 * compute_mean_cost(values(**SLUGGISH), [rows])
    assert wrong(recorded(GOOD, seed=2)) < 0.8 * wrong(recorded(SLUGGISH, seed=2))


def test_gains_that_are_unstable_on_the_model_are_never_the_cheapest():
    unstable = values(**{**GOOD, "kp": -0.2})
    assert compute_mean_cost(unstable, [recorded(GOOD)]) == REFUSED


def test_a_queue_that_is_never_short_costs_nothing_however_little_is_admitted():
    idle = np.column_stack([np.full(100, CAPACITY), np.full(100, 10.0)])
    assert compute_mean_cost(values(**GOOD), [idle]) == pytest.approx(0.0, abs=0.01)
    # Also where the limit stands, and most decisions are none.
    assert compute_mean_cost(values(**GOOD, deadband=0.2), [idle]) == pytest.approx(0.0, abs=0.01)


def test_ticks_that_are_missing_are_filled_in_and_no_event_is_lost():
    at = [0.0, 2.0, 4.0, 8.0, *range(10, 60, 2)]
    admitted = [5.0] * len(at)
    rows = resample_observations(at, [1e6] * len(at), admitted)
    assert rows[:, 1].sum() == pytest.approx(sum(admitted))
    assert len(rows) == 30
    assert len(resample_observations(at[:5], [1e6] * 5, admitted[:5])) == 0
