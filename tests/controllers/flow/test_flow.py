"""The flow law: its formula in both forms, what was really admitted, refusals, and following the plant."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog, request
from controllers.design import placement
from controllers.design.identify import build_initial_estimate, follow
from controllers.design.placement import Gains, Model
from controllers.framework import guard
from controllers.framework.guard import ObservationQuality
from controllers.framework.law import decide_next, resume_state, start_state
from workers.control.kinds import flow

LAW = catalog.get_law("flow")
GAINS = {"kp": -0.006141, "ki": -0.007986}
MODEL = {"a": 0.985, "b": -134.0}
bytes_free = st.floats(0, 1e6)
events = st.floats(0, 1e5)


def decide(parameters, observations, state=None):
    document = {"parameters": parameters, "state": state, "observations": observations}
    return request.answer("flow", document)


def admitted(parameters, observations):
    return [each["action"]["admit"] for each in decide(parameters, observations)["decisions"]]


@given(
    form=st.sampled_from(["pi", "i-p"]),
    kd=st.floats(-0.5, 0.9),
    seen=st.lists(st.tuples(bytes_free, st.one_of(st.none(), events)), min_size=3, max_size=8),
    minimum=st.floats(0, 10),
)
def test_what_is_admitted_is_the_contracts_formula_on_what_was_really_admitted(form, kd, seen, minimum):
    parameters = GAINS | {"kd": kd, "form": form, "setpoint": 4e5, "minimum": minimum, "maximum": 5_000.0}
    observations = [{"measured": measured, "applied": applied} for measured, applied in seen]
    got = admitted(parameters, observations)
    kp, ki = GAINS["kp"], GAINS["ki"]
    applied = [each for _, each in seen]
    for k in range(2, len(seen)):
        u1, u2 = (got[at - 1] if applied[at] is None else applied[at] for at in (k, k - 1))
        e, before = 4e5 - seen[k][0], 4e5 - seen[k - 1][0]
        wanted = u1 + (kp + ki) * e - kp * before - kd * (u1 - u2)
        assert got[k] == pytest.approx(min(max(wanted, minimum), 5_000.0), abs=1e-6)


def test_the_forms_differ_by_the_kick_of_a_new_setpoint_alone():
    seen = [{"measured": 420.0, "applied": 100.0}, {"measured": 415.0}]
    for form, kick in (("pi", -0.5 * (400 - 420)), ("i-p", 0.0)):
        parameters = {"setpoint": 420, "kp": -0.5, "ki": -0.1, "form": form}
        first_part = decide(parameters, seen)
        after = decide(parameters | {"setpoint": 400}, [{"measured": 415.0}], first_part["state"])
        last = first_part["decisions"][-1]["action"]["admit"]
        assert after["decisions"][0]["action"]["admit"] == pytest.approx(last - 0.1 * (400 - 415) + kick)


def test_after_a_starvation_it_starts_from_what_was_admitted_not_from_what_it_asked_for():
    starved = [{"measured": 500.0, "applied": 0.0}] * 50
    flood = {"setpoint": 400, "kp": -0.5, "ki": -0.5}
    asked = admitted(flood, starved)
    assert asked[-1] == asked[1] == pytest.approx(50.0)
    believing = admitted(flood, [{"measured": 500.0}] * 50)
    assert believing[-1] > 40 * asked[-1]


def test_a_limit_is_named_and_kept():
    answer = decide({"setpoint": 400, "kp": 0, "ki": -1, "maximum": 7}, [{"measured": 500.0, "applied": 0}])
    (decision,) = answer["decisions"]
    assert decision["action"] == {"admit": 7} and decision["limited_by"] == "maximum"
    assert decision["reason"].startswith("Admit 7 events: ") and "the maximum" in decision["reason"]


def test_where_fewer_come_than_are_allowed_nothing_is_expected_of_admitting_more():
    parameters = {"setpoint": 400, "kp": 0, "ki": -1}
    _, starved = decide(parameters, [{"measured": 500.0}, {"measured": 500.0, "applied": 10.0}])["decisions"]
    assert starved["expected"] is None and "fewer arrived than were admitted" in starved["reason"]
    _, full = decide(parameters, [{"measured": 300.0}, {"measured": 300.0, "applied": 0.0}])["decisions"]
    assert full["expected"]["direction"] == "up", "a full queue empties all the same"


DEADBAND = {"setpoint": 400, "kp": 0, "ki": -1, "minimum": 100.0, "deadband": 0.2}


def test_a_limit_that_binds_nothing_stands_while_the_next_would_be_as_good():
    first, *rest = decide(DEADBAND, [{"measured": 500.0}, *[{"measured": 510.0, "applied": 80.0}] * 5])["decisions"]
    assert first["action"] == {"admit": 200.0}
    assert [each["action"] for each in rest] == [{"admit": 200.0}] * 5, "setting it twice is setting it once"
    assert {each["terms"]["admit"] for each in rest} == {200.0}
    assert rest[0]["reason"].startswith("Keep the limit of 200 events: fewer arrive. (510 bytes free")
    assert {each["expected"] is None for each in rest} == {True}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"measured": 510.0, "applied": 290.0}, "as many come as may"),
        ({"measured": 390.0, "applied": 80.0}, "the queue fills"),
        ({"measured": 510.0, "applied": 20.0}, "it would differ"),
        ({"measured": 510.0}, "how many came is not known"),
    ],
)
def test_a_limit_does_not_stand_where(seen, why):
    after = decide(DEADBAND | {"minimum": 0.0}, [{"measured": 600.0}, {"measured": 500.0}, seen])
    assert after["decisions"][-1]["reason"].startswith("Admit"), why


def test_what_stands_is_what_less_is_compared_with():
    """Not what was asked for meanwhile: it was never in force."""
    calm = [{"measured": 500.0}, *[{"measured": 510.0, "applied": 80.0}] * 5]
    state = decide(DEADBAND, calm)["state"]
    assert state["admitted"][0] == 200.0
    (busy,) = decide(DEADBAND, [{"measured": 500.0, "applied": 200.0}], state)["decisions"]
    assert busy["action"] == {"admit": 300.0}


class GuardedQueue:
    """Space that is never filled by what is admitted of 3,000 events an interval under the limit in force."""

    def __init__(self):
        self.parameters = catalog.read_parameters(LAW, dict(flow.KIND.defaults.parameters))
        self.state, self.guard_state = start_state(LAW, self.parameters), guard.read_state(None)
        self.limit, self.now, self.came = None, 0.0, 3_000.0

    def tick(self, manual=None, applies=True, **settings):
        self.now += 2.0
        applied = self.came if self.limit is None else min(self.came, self.limit)
        guarded = guard.decide(
            LAW,
            self.parameters,
            self.state,
            {"measured": 2 * self.parameters["setpoint"], "applied": applied},
            settings=guard.read_settings(LAW, settings),
            guard_state=self.guard_state,
            now_seconds=self.now,
            measured=ObservationQuality(0.5),
            manual=manual,
            applies=applies,
        )
        self.state, self.guard_state = guarded.state, guarded.guard_state
        if guarded.decision.action and applies:
            self.limit = guarded.decision.action["admit"]
        return guarded.decision


def test_a_guard_limits_a_limit_that_stands_and_when_it_ends_the_law_goes_on_from_what_is_in_force():
    queue = GuardedQueue()
    for _ in range(3):
        decision = queue.tick()
    assert decision.reason.startswith("Keep the limit of")
    limited = [queue.tick(maximum=500.0) for _ in range(4)]
    assert {each.action["admit"] for each in limited} == {500.0}
    assert {each.limited_by for each in limited} == {"guard maximum"}
    assert queue.tick().action["admit"] > 3_000.0
    assert queue.limit > 3_000.0


def test_a_step_of_the_guard_is_followed_by_the_next():
    """As it came from the standing limit, and not from none."""
    queue = GuardedQueue()
    for _ in range(3):
        queue.tick()
    queue.came = 1e6
    before = queue.limit
    admitted = [queue.tick(slew_up=5_000.0).action["admit"] for _ in range(3)]
    assert admitted == pytest.approx([before + 5_000.0 * step for step in (1, 2, 3)])


def test_a_limit_that_may_only_fall_stays_where_it_is():
    queue = GuardedQueue()
    for _ in range(3):
        queue.tick()
    queue.came, before = 1e6, queue.limit
    assert {queue.tick(direction="down only").action["admit"] for _ in range(4)} == {before}


def test_after_a_person_set_a_limit_the_law_sets_its_own():
    queue = GuardedQueue()
    for _ in range(3):
        queue.tick()
    for _ in range(3):
        queue.tick(manual={"admit": 500.0})
    queue.state = resume_state(LAW, queue.state)
    assert queue.tick().action["admit"] > 3_000.0


def test_advice_on_a_limit_that_nobody_sets_calls_nobody_starved():
    queue = GuardedQueue()
    for came in (3_000.0, 2_000.0, 1_000.0):
        queue.came = came
        assert queue.tick(applies=False).reason.startswith("Admit ")
        assert queue.state["limit"] is None


def test_what_is_expected_is_the_way_back_to_the_reference_within_the_settling_time():
    gains = placement.place(Model(0.985, -134.0), [0.3, 0.3])
    parameters = MODEL | {"kp": gains.kp, "ki": gains.ki, "setpoint": 400, "interval_seconds": 2}
    far, near = (decide(parameters, [{"measured": y}])["decisions"][0]["expected"] for y in (200.0, 399.0))
    settling = placement.report(Model(0.985, -134.0), gains).settling_samples
    assert far == {"metric": "free_bytes", "direction": "up", "amount": 200.0, "within_seconds": 2.0 * settling}
    assert near is None


@pytest.mark.parametrize(
    ("field", "parameters"),
    [
        ("kp", MODEL | {"kp": -0.00614, "ki": 0.02168}),
        ("kp", MODEL | GAINS | {"delay": 1}),
        ("ki", MODEL | {"kp": -0.001, "ki": 0}),
        ("a", {"b": -134.0}),
        ("b", {"a": 0.9}),
        ("a", {"tuning": "adaptive"}),
        ("minimum", {"minimum": 5, "maximum": 4}),
    ],
)
def test_unstable_gains_half_models_and_bad_values_are_refused_by_name(field, parameters):
    with pytest.raises(BadInput) as refused:
        decide(parameters, [{"measured": 1.0}])
    assert refused.value.field == f"parameters.{field}"


def test_a_refusal_of_gains_says_the_spectral_radius_and_how_to_get_others():
    with pytest.raises(BadInput) as refused:
        catalog.read_parameters(LAW, MODEL | GAINS | {"delay": 1})
    assert "1.515" in refused.value.message and "design place" in refused.value.message


@pytest.mark.parametrize(
    ("field", "state"),
    [
        (
            "state.estimate.covariance",
            {
                "measured": [],
                "admitted": [],
                "setpoint": 1,
                "estimate": {"a": 1, "ratio": 1, "offset": 0, "covariance": [1]},
            },
        )
    ],
)
def test_a_broken_state_is_refused_by_key(field, state):
    with pytest.raises(BadInput) as refused:
        decide({}, [{"measured": 1.0}], state)
    assert refused.value.field == field


def run(model, parameters, samples, at_change, disturbed):
    """(free space, radius of the loop on the plant as it is) from 400 kB and 300 events at rest."""
    state, y, u, chance = start_state(LAW, parameters), 4e5, [300.0, 300.0], np.random.default_rng(5)
    series, radii = [], []
    for k in range(samples):
        if k == at_change[0]:
            model = at_change[1]
        state, decision = decide_next(LAW, parameters, json.loads(json.dumps(state)), {"measured": y, "applied": u[-1]})
        u.append(decision.action["admit"])
        y = 4e5 + model.a * (y - 4e5) + model.b * (u[-1 - model.delay] - 300.0) + disturbed(k, chance)
        gains = Gains(*(decision.terms[name] for name in ("kp", "ki", "kd")))
        radii.append(placement.compute_spectral_radius(model, gains))
        series.append(y)
    return np.array(series), np.array(radii)


def kicked(k, chance):
    return -30_000.0 if k % 40 == 20 else 0.0


def noisy(k, chance):
    return 4_000.0 * chance.standard_normal()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("disturbed", [kicked, noisy])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("factor", [0.4, 1.0, 3.5])
def test_adaptive_gains_keep_the_loop_stable_on_whatever_the_plant_becomes(delay, factor, disturbed):
    start, after = Model(0.985, -134.0, delay), Model(0.985, -134.0 * factor, delay)
    gains = placement.place(start, [0.55, 0.45, 0.3] if delay else [0.3, 0.4])
    fixed = MODEL | {"kp": gains.kp, "ki": gains.ki, "kd": gains.kd, "setpoint": 4e5, "delay": delay}
    parameters = catalog.read_parameters(LAW, fixed | {"tuning": "adaptive"})
    series, radii = run(start, parameters, 400, (100, after), disturbed)
    assert radii[200:].max() < 0.97
    assert np.abs(series[200:] - 4e5).max() < 90_000
    if factor == 3.5:
        series, _ = run(start, catalog.read_parameters(LAW, fixed), 400, (100, after), disturbed)
        assert np.abs(series[200:] - 4e5).max() > 150_000


def test_given_gains_stay_while_they_do_well():
    start = Model(0.985, -134.0)
    gains = placement.place(start, [0.3, 0.4])
    given_gains = MODEL | {"kp": gains.kp, "ki": gains.ki, "setpoint": 4e5, "tuning": "adaptive"}
    parameters = catalog.read_parameters(LAW, given_gains)
    _, radii = run(start, parameters, 200, (100, Model(0.985, -134.0 * 1.1)), noisy)
    assert set(np.round(radii[:100], 6)) == {0.4}
    assert len(set(np.round(radii[100:], 6))) == 1


def test_the_estimate_learns_nothing_from_noise_nor_from_a_queue_that_does_not_answer():
    start, rest = Model(0.985, -134.0), {"setpoint": 4e5, "noise": 1_000.0, "forgetting": 0.97}
    before = build_initial_estimate(start)
    for y, u in (
        ((400_300.0, 400_000.0, 399_500.0), (300.0, 299.0)),
        ((500_000.0, 500_000.0, 500_000.0), (300.0, 0.0)),
    ):
        after = follow(before, start, y, u, **rest)
        assert (after.a, after.ratio) == (before.a, before.ratio)
    assert follow(before, start, (500_000.0,), (300.0, 0.0), **rest) is before


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e4)), min_size=5, max_size=40))
def test_whatever_is_measured_the_estimate_stays_in_bounds_and_its_covariance_positive(seen):
    start = Model(0.985, -134.0)
    estimate = build_initial_estimate(start)
    for k in range(3, len(seen)):
        y, u = [each[0] for each in seen[k - 3 : k][::-1]], [each[1] for each in seen[k - 3 : k][::-1]]
        estimate = follow(estimate, start, y, u, setpoint=4e5, noise=100.0, forgetting=0.9)
        assert 0.05 <= estimate.a <= 1.05 and 0.05 <= estimate.ratio <= 20
        covariance = np.array(estimate.covariance).reshape(3, 3)
        spread = np.sqrt(np.diag(covariance))
        assert np.all(np.linalg.eigvalsh(covariance / np.outer(spread, spread)) > -1e-6)
