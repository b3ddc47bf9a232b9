"""Gains by pole placement, models from data and regulators, against the errata and reference values.

The estimate of a, b and c, sample after sample.
"""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from common.errors import BadInput
from controllers.design import lqr, placement
from controllers.design.identify import Estimate, follow, identify
from controllers.design.placement import Gains, Model
from controllers.design.request import DESIGNS
from tests.shared_data import DATA

PAPER, LATE = Model(0.985, -134.0), Model(0.985, -134.0, 1)
PAIR = [complex(0.046, 0.4), complex(0.046, -0.4)]
REFERENCE = DATA / "reference" / "riccati_place.json"
parts = st.floats(0.05, 0.9)


def close(got, wanted, tolerance=1e-9):
    assert np.allclose(got, wanted, rtol=tolerance, atol=tolerance), got


def test_the_papers_poles_need_an_integral_gain_below_zero():
    gains = placement.place(PAPER, PAIR)
    assert gains.kp == pytest.approx(-0.006141, rel=1e-3)
    assert gains.ki == pytest.approx(-0.007986, rel=1e-3)
    assert placement.compute_spectral_radius(PAPER, gains) == pytest.approx(0.4026, rel=1e-3)
    assert placement.compute_spectral_radius(PAPER, Gains(-0.00614, 0.02168)) == pytest.approx(4.03, rel=1e-3)


def test_a_sample_of_delay_that_was_left_out_makes_the_loop_unstable():
    gains = placement.place(PAPER, PAIR)
    report = placement.report(LATE, gains)
    assert not report.stable and report.settling_samples is None
    assert report.spectral_radius == pytest.approx(1.515, rel=1e-3)


def test_with_a_delay_kd_buys_a_quick_loop_and_two_gains_only_a_slow_one():
    slow = placement.place(LATE, [1.985 / 3] * 2)
    close([slow.kp, slow.ki], [-0.002162, -0.000289], 1e-3)
    quick = placement.place(LATE, [0.55, 0.45, 0.3])
    close([quick.kp, quick.ki, quick.kd], [-0.005589, -0.001293, 0.685], 1e-3)
    report = placement.report(LATE, quick)
    assert 10 <= report.settling_samples <= 12
    assert report.gain_margin == pytest.approx(1.93, abs=0.005)
    assert placement.report(LATE, slow).settling_samples > report.settling_samples


@given(
    a=st.floats(0.3, 1.05),
    b=st.floats(0.01, 1e4).map(lambda size: -size),
    delay=st.integers(0, 1),
    wanted=st.one_of(
        st.tuples(parts, parts, parts),
        st.tuples(parts, parts.map(lambda y: y / 3), parts).map(
            lambda each: (complex(each[0] / 2, each[1]), complex(each[0] / 2, -each[1]), each[2])
        ),
    ),
)
def test_poles_are_where_they_were_placed(a, b, delay, wanted):
    model = Model(a, b, delay)
    found = placement.compute_poles(model, placement.place(model, wanted))
    # As polynomials: roots that lie close together can't be told apart as sharply.
    close(np.poly(found)[:4], np.poly(wanted), 1e-6)


@given(a=st.floats(0.5, 1.0), poles=st.tuples(parts, parts, parts), delay=st.integers(0, 1))
def test_the_loop_is_stable_below_its_gain_margin_and_not_above(a, poles, delay):
    model = Model(a, -134.0, delay)
    gains = placement.place(model, poles)
    margin = placement.report(model, gains).gain_margin
    if margin is None:
        return
    for factor, stable in ((1 + 0.98 * (margin - 1), True), (margin * 1.02, False)):
        radius = placement.compute_spectral_radius(Model(a, -134.0 * factor, delay), gains)
        assert (radius < 1) == stable


def test_the_step_response_is_that_of_the_difference_equations():
    gains, samples = placement.place(LATE, [0.55, 0.45, 0.3]), 30
    y, u = [0.0] * (samples + 2), [0.0] * (samples + 2)
    for k in range(samples):
        before, earlier = (u[k - 1] if k else 0.0), (u[k - 2] if k > 1 else 0.0)
        past = y[k - 1] if k else 0.0
        u[k] = before + gains.ki * (1 - y[k]) - gains.kp * (y[k] - past) - gains.kd * (before - earlier)
        y[k + 1] = LATE.a * y[k] + LATE.b * (u[k - 1] if k else 0.0)
    close(placement.simulate_step(LATE, gains, samples), y[:samples])


def test_regulators_are_those_of_the_reference():
    if not REFERENCE.exists():
        pytest.skip("the reference values are not on this machine")
    for case in json.loads(REFERENCE.read_text())["cases"]:
        given = case["input"]
        if "poles" in given or case["kind"] == "CARE":
            continue
        factor = np.array(given.get("C", [[0.0]]))
        weight = (factor.T @ factor).tolist() if isinstance(given["Q"], str) else given["Q"]
        found = DESIGNS["lqr"]({key: given[key] for key in "ABR"} | {"Q": weight})
        for key, wanted in case["expected"].items():
            close(found["X" if key == "X" else "K"], wanted, case["tol"])


@settings(max_examples=40)
@given(data=st.data(), states=st.integers(1, 6), inputs=st.integers(1, 3))
def test_a_regulator_stabilises_and_solves_its_equation(data, states, inputs):
    entries = st.floats(-2, 2)
    chance = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    a, b = chance.normal(size=(states, states)), chance.normal(size=(states, inputs))
    q, r = np.eye(states), np.eye(inputs) * 10 ** data.draw(entries)
    found = lqr.design_regulator(a, b, q, r)
    x, k = found.cost, found.gain
    assert found.spectral_radius < 1
    close(a.T @ x @ a - a.T @ x @ b @ k + q, x, 1e-6 * max(1.0, np.abs(x).max()))
    close(found.cost, linalg.solve_discrete_are(a, b, q, r), 1e-6 * max(1.0, np.abs(x).max()))


def made(a, b, c=0.0, noise=0.0, rows=400, delay=0, seed=1):
    chance = np.random.default_rng(seed)
    u, y = chance.uniform(0, 10, rows), np.zeros(rows)
    for k in range(rows - 1):
        felt = u[k - delay] if k >= delay else 0.0
        y[k + 1] = a * y[k] + b * felt + c + noise * chance.standard_normal()
    return u, y


@given(a=st.floats(0.2, 0.99), b=st.floats(1.0, 1e4).map(lambda size: -size), delay=st.integers(0, 1))
def test_a_model_is_found_again_in_what_it_made(a, b, delay):
    found = identify(*made(a, b, delay=delay), delay=delay)
    close([found.a, found.b / b], [a, 1.0], 1e-6)
    assert found.r2 > 1 - 1e-9 and found.samples == 399 - delay


def test_a_plant_measured_from_elsewhere_than_its_operating_point_has_an_offset():
    assert identify(*made(0.985, -134.0, noise=20.0)).c == 0.0
    found = identify(*made(0.9, -134.0, c=5_000.0, noise=20.0))
    close([found.a, found.b, found.c], [0.9, -134.0, 5_000.0], 0.02)
    assert found.residual_std == pytest.approx(20.0, rel=0.15)


@pytest.mark.parametrize(("u_unit", "y_unit"), [(1, 1e200), (1, 1e-200), (1e200, 1e200), (1e-310, 1e-308)])
def test_a_model_does_not_depend_on_the_units(u_unit, y_unit):
    u, y = made(0.9, -134.0, c=5_000.0, noise=20.0)
    plain, found = identify(u, y), identify(u * u_unit, y / 1e4 * y_unit)
    close([found.a, found.r2, found.b / (y_unit / u_unit) * 1e4], [plain.a, plain.r2, plain.b], 1e-6)
    close([found.c / y_unit * 1e4, found.residual_std / y_unit * 1e4], [plain.c, plain.residual_std], 1e-6)


@pytest.mark.parametrize(
    ("field", "u", "y"),
    [
        ("rows", range(8), range(8)),
        ("u", [3.0] * 40, range(40)),
        ("y", range(40), [5.0] * 40),
        ("y", range(40), [1.0] + [5.0] * 39),
        ("u", np.arange(40.0), 2 * np.arange(40.0)),
    ],
)
def test_series_that_show_nothing_are_refused(field, u, y):
    with pytest.raises(BadInput) as refused:
        identify(np.array(u, dtype=float), np.array(y, dtype=float))
    assert refused.value.field == field


MODEL, STATES = {"a": 0.985, "b": -134}, {"A": [[1, 0.1], [0, 1]], "B": [[0], [1]]}
WEIGHTS = {"Q": [[1, 0], [0, 1]], "R": [[1]]}


@pytest.mark.parametrize(
    ("name", "field", "document"),
    [
        ("place", "poles", MODEL),
        ("place", "poles", MODEL | {"poles": [[0.1, 0.2], [0.1, 0.2]]}),
        ("place", "poles", MODEL | {"poles": [[0.1, 0.2], 0.1, [0.1, 0.2]]}),
        ("place", "poles[1]", MODEL | {"poles": [0.5, 1.0]}),
        ("place", "poles[0]", MODEL | {"poles": [[0.5], 0.5]}),
        ("place", "b", {"a": 1, "b": 0, "poles": [0.5, 0.5]}),
        ("place", "a", {"a": 0, "b": 1, "poles": [0.5, 0.5, 0.5]}),
        ("place", "delay", MODEL | {"delay": 2, "poles": [0.5, 0.5]}),
        ("check", "ki", MODEL | {"kp": 1, "ki": math.inf}),
        ("lqr", "A", STATES | WEIGHTS | {"A": [[1, 2]]}),
        ("lqr", "A[1]", STATES | WEIGHTS | {"A": [[1, 2], [1]]}),
        ("lqr", "B", STATES | WEIGHTS | {"B": [[1]]}),
        ("lqr", "B", STATES | WEIGHTS | {"A": [[2, 0], [0, 0.5]]}),
        ("lqr", "Q", STATES | WEIGHTS | {"Q": [[1, 1], [0, 1]]}),
        ("lqr", "Q", STATES | WEIGHTS | {"Q": [[-1, 0], [0, 1]]}),
        ("lqr", "Q", STATES | WEIGHTS | {"Q": [[0, 0], [0, 0]]}),
        ("lqr", "R", STATES | WEIGHTS | {"R": [[-1]]}),
    ],
)
def test_bad_input_is_refused_by_field(name, field, document):
    with pytest.raises(BadInput) as refused:
        DESIGNS[name](document)
    assert refused.value.field == field, refused.value


FAR = 1e36


@pytest.mark.parametrize("covariance", [(FAR, -FAR, FAR, -FAR, FAR, -FAR, FAR, -FAR, FAR), (0.0,) * 9])
@pytest.mark.parametrize("admitted", [(0.0, 0.0, 0.0, 11_874.6), (5e4, 0.0, 1e5, 0.0)])
def test_an_estimate_from_the_ends_of_its_range_goes_on(covariance, admitted):
    before = Estimate(a=0.985, ratio=1.0, offset=0.0, mean=0.0, covariance=covariance)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = follow(before, LATE, [4.8e8, 1.2e8, 1.1e8], admitted, setpoint=4e8, noise=4e6, forgetting=0.99)
    assert all(map(math.isfinite, (after.a, after.ratio, after.offset, *after.covariance)))
