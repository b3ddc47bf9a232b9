"""What parameters promise on the model, before they are applied."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.design import placement
from controllers.design.placement import Model
from controllers.flow import balance_gains
from controllers.flow.admission import FlowParameters
from controllers.flow.balance import BalanceParameters
from controllers.flow.prediction import predict_balance, predict_flow

MODEL = Model(0.985, -134.0, 1)
GAINS = placement.place(MODEL, [0.55, 0.45, 0.3])


def flow(**changed):
    given_ = {"a": MODEL.a, "b": MODEL.b, "delay": 1, "kp": GAINS.kp, "ki": GAINS.ki, "kd": GAINS.kd, **changed}
    return FlowParameters(**given_)


def balanced(**changed):
    return BalanceParameters(**changed)


def test_flow_promises_what_design_check_reports_and_draws_its_way_to_the_setpoint():
    found, report = predict_flow(flow()), placement.report(MODEL, GAINS)
    assert (found.spectral_radius, found.gain_margin) == (report.spectral_radius, report.gain_margin)
    assert found.settling_samples == report.settling_samples
    assert found.rests_at == 1.0 and found.response[0] == 0.0
    assert found.response[-1] == pytest.approx(1.0, abs=0.001)


def test_unstable_gains_have_poles_and_no_response():
    found = predict_flow(flow(kp=-0.006141, ki=-0.007986, kd=0.0))
    assert not found.stable and found.response == () and found.settling_samples is None
    assert max(map(abs, found.poles)) == pytest.approx(found.spectral_radius)


def test_without_a_model_nothing_is_promised():
    assert predict_flow(flow(a=None, b=None)) is None


@settings(max_examples=40)
@given(
    a=st.floats(0, 1), b=st.floats(0.1, 10), r=st.floats(0.1, 50), delay=st.integers(0, 2), averaging=st.integers(1, 3)
)
def test_the_law_moves_shares_until_a_difference_ends(a, b, r, delay, averaging):
    found = predict_balance(balanced(a=a, b=b, r=r, delay=delay, averaging=averaging))
    late = {"delay": delay, "averaging": averaging}
    gains = balance_gains.design_balance_gains(np.full(2, a), np.full(2, b), q=1.0, integral=0.25, r=r, **late)
    x, past, before = np.array([0.5, -0.5]), [np.zeros(2)] * 6, np.array([0.5, -0.5])
    for value in found.response[:50]:
        assert x[0] - x[1] == pytest.approx(value, abs=1e-6)
        moves = [one - other for one, other in pairwise(past)]
        past, before = [past[0] + gains.change(x, before, moves=moves), *past[:-1]], x
        felt = np.mean(past[delay : delay + averaging], axis=0)
        x = a * x + b * felt + (1 - a) * np.array([0.5, -0.5])
    assert found.stable and found.rests_at == 0.0
    assert abs(found.response[-1]) < 0.02


def test_replicas_with_models_of_their_own_are_predicted_by_their_mean():
    of = predict_balance(balanced(b_of={"r1": 1.0, "r2": 3.0}))
    assert of.response == predict_balance(balanced(b=2.0)).response
