"""The balance law: its gains against the Riccati equation, its shares, its refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog, request
from controllers.design.lqr import design_regulator
from controllers.flow import balance, balance_gains
from controllers.framework.law import decide_next, resume_state, start_state

LAW = catalog.get_law("balance")
WEIGHTS = {"q": 1.0, "integral": 0.25, "r": 4.0}
PROMPT = {"a": 0.5, "b": 1.0, "r": 4.0, "delay": 0, "averaging": 1, "tuning": "fixed"}  # a share takes effect at once
models = st.tuples(st.floats(0, 1.1), st.floats(0.05, 20))


def decide(times, shares, parameters=None, state=None):
    observation = {"response_times_seconds": times, "shares": shares}
    document = {"parameters": parameters or {}, "state": state, "observations": [observation]}
    return request.answer("balance", document)


def shares_after(times, shares, **parameters):
    return decide(times, shares, parameters)["decisions"][0]["action"]["shares"]


@settings(max_examples=30)
@given(model=models, replicas=st.integers(2, 6), delay=st.integers(0, 2), averaging=st.integers(1, 3))
def test_replicas_that_are_alike_decouple(model, replicas, delay, averaging):
    a, b = (np.full(replicas, each) for each in model)
    late = {**WEIGHTS, "delay": delay, "averaging": averaging}
    one = balance_gains.design_balance_gains(a, b, **late)
    gain = design_regulator(*balance_gains.build_difference_system(a, b, **late)).gain
    basis, states = balance_gains.build_difference_basis(replicas), replicas - 1
    parts = np.split(gain, delay + averaging + 1, axis=1)
    for scalar, part in zip((one.difference, *one.past, one.lasting), parts, strict=True):
        assert np.allclose(part, float(scalar) * np.eye(states), rtol=1e-5, atol=1e-7)
        spread = np.arange(replicas) - np.arange(replicas).mean()
        assert np.allclose(basis.T @ part @ basis @ spread, float(scalar) * spread, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("replicas", [2, 8, 64])
def test_unlike_replicas_come_to_one_response_time(replicas):
    chance = np.random.default_rng(replicas)
    names = [f"r{index:02d}" for index in range(replicas)]
    a, b = chance.uniform(0.3, 0.9, replicas), chance.uniform(0.5, 2.0, replicas) * replicas
    base = chance.uniform(0.1, 0.2, replicas)
    maps = {"a_of": dict(zip(names, a.tolist(), strict=True)), "b_of": dict(zip(names, b.tolist(), strict=True))}
    own = PROMPT | maps | {"minimum_share": 0.1 / replicas, "r": 4.0 * replicas**2}
    parameters = catalog.read_parameters(LAW, own)
    shares, response, state = (np.full(replicas, 1 / replicas), np.ones(replicas), start_state(LAW, parameters))
    for _ in range(90):
        seen = {
            "response_times_seconds": dict(zip(names, response.tolist(), strict=True)),
            "shares": dict(zip(names, shares.tolist(), strict=True)),
        }
        state, decision = decide_next(LAW, parameters, state, seen)
        shares = np.array([decision.action["shares"][name] for name in names])
        response = a * response + b * shares + base
    assert np.ptp(response) < 0.001 * response.mean()


@given(data=st.data(), replicas=st.integers(2, 12), minimum=st.floats(0, 0.08), total=st.sampled_from([1.0, 1000.0]))
def test_shares_keep_their_sum_and_their_minimum_whatever_the_response_times(data, replicas, minimum, total):
    names = [f"r{index}" for index in range(replicas)]
    times = data.draw(st.fixed_dictionaries(dict.fromkeys(names, st.floats(0, 1e4))))
    raw = data.draw(st.fixed_dictionaries(dict.fromkeys(names, st.floats(0.01, 1))))
    shares = {name: total * each / sum(raw.values()) for name, each in raw.items()}
    found = shares_after(times, shares, minimum_share=minimum)
    assert sum(found.values()) == pytest.approx(sum(shares.values()), rel=1e-12)
    assert min(found.values()) >= minimum * total - 1e-9 * total


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=8), st.floats(0, 0.1))
def test_the_shares_within_limits_are_the_nearest_ones(wanted, minimum):
    wanted = np.array(wanted)
    found = balance.project_shares(wanted, minimum, 1.0)
    assert found.sum() == pytest.approx(1.0) and found.min() >= minimum - 1e-12
    # Nearest: those above the minimum are all shifted alike, the others would have been shifted below it.
    shift = (wanted - found)[found > minimum + 1e-9]
    assert np.ptp(shift) < 1e-9
    assert np.all((wanted - shift.max())[found <= minimum + 1e-9] <= minimum + 1e-9)


def test_the_slow_replica_of_two_gives_what_the_other_gets():
    found = shares_after({"a": 3.0, "b": 1.0}, {"a": 0.5, "b": 0.5})
    assert found["a"] < 0.5 < found["b"] and found["a"] + found["b"] == pytest.approx(1.0)


def test_a_replica_at_its_minimum_is_named_as_the_limit_and_winds_nothing_up():
    state, shares = None, {"a": 0.5, "b": 0.5}
    for _ in range(50):
        answer = decide({"a": 100.0, "b": 1.0}, shares, PROMPT, state=state)
        state, shares = answer["state"], answer["decisions"][0]["action"]["shares"]
    assert answer["decisions"][0]["limited_by"] == "minimum_share"
    assert shares["a"] == pytest.approx(0.02)
    for _ in range(4):
        answer = decide({"a": 1.0, "b": 3.0}, shares, PROMPT, state=state)
        state, shares = answer["state"], answer["decisions"][0]["action"]["shares"]
    assert shares["a"] > 0.3


def test_shares_in_points_move_as_parts_of_one_do():
    times = {"a": 3.0, "b": 1.0, "c": 1.5}
    parts, points = {"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 500, "b": 300, "c": 200}
    found = shares_after(times, points)
    assert found == pytest.approx({name: 1000 * each for name, each in shares_after(times, parts).items()})


def seen_at(events_per_second, times, shares, **parameters):
    observation = {"response_times_seconds": times, "shares": shares, "events_per_second": events_per_second}
    document = {"parameters": parameters, "state": None, "observations": [observation]}
    return request.answer("balance", document)["decisions"][0]


def test_below_the_least_load_the_shares_return_to_equal_whatever_the_response_times():
    found = seen_at(25, {"a": 0.2, "b": 9.0, "c": 0.3}, {"a": 0.9, "b": 0.05, "c": 0.05})
    assert found["action"]["shares"]["a"] == pytest.approx(1 / 3 + (0.9 - 1 / 3) / 2)
    assert sum(found["action"]["shares"].values()) == pytest.approx(1.0)
    assert found["reason"].startswith("Set share of a from 90.0 % to 61.7 %")
    even = seen_at(25, {"a": 0.2, "b": 9.0}, {"a": 0.5, "b": 0.5})
    assert even["action"] is None
    assert even["reason"] == (
        "No action: shares are equal; the load of 25 events/s is too low to compare response times (minimum: 500)."
    )


def test_with_load_enough_or_not_known_the_law_is_what_it_was():
    times, shares = {"a": 3.0, "b": 1.0}, {"a": 0.6, "b": 0.4}
    known, unknown = (seen_at(rate, times, shares) for rate in (5_000, None))
    assert known == unknown == decide(times, shares)["decisions"][0]
    assert seen_at(25, times, shares, least_events_per_second=0) == known


class LatePlant:
    """Two replicas whose difference follows the shares after a delay, and is measured as the mean of two intervals."""

    def __init__(self, a, b, delay, **parameters) -> None:
        self.a, self.b, self.delay = a, b, delay
        self.parameters = catalog.read_parameters(LAW, {"interval_seconds": 5.0} | parameters)
        self.state, self.share, self.moved = start_state(LAW, self.parameters), 0.5, [0.0] * 3
        self.measured, self.difference = 0.0, 0.0

    def run(self, decisions, disturbance):
        """The differences while something outside makes one replica slower."""
        differences = []
        for _ in range(decisions):
            late = (self.measured + self.difference) / 2
            seen = {
                "response_times_seconds": {"a": 1.0 + max(0.0, late), "b": 1.0 + max(0.0, -late)},
                "shares": {"a": self.share, "b": 1 - self.share},
                "error_seconds": 0.05,
            }
            self.state, self.decision = decide_next(LAW, self.parameters, self.state, seen)
            if self.decision.action:
                self.share = self.decision.action["shares"]["a"]
            self.moved = [2 * (self.share - 0.5), *self.moved]
            self.measured = self.difference
            self.difference = self.a * self.difference + self.b * self.moved[self.delay] + (1 - self.a) * disturbance
            differences.append(self.difference)
        return np.array(differences)


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("b", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("a", [0.0, 0.5, 0.8])
def test_a_difference_ends_without_oscillation_for_any_delay_and_effect_of_shares(a, b, delay):
    """The law starts with its own model. Where the shares can't end the difference, they stay at their limit."""
    plant = LatePlant(a, b, delay)
    course = plant.run(150, disturbance=2.0)
    least = 2.0 - 0.96 * b / (1 - a)  # what remains with the minimum share
    turns = np.count_nonzero(np.diff(np.sign(course[np.abs(course) > 0.3])))
    assert turns <= 2
    assert np.abs(course[-40:]).max() <= max(0.7, least + 0.05)
    assert np.abs(course).max() <= 2.05


def test_the_effect_of_shares_is_identified_and_the_gains_follow_it():
    plant = LatePlant(0.5, 1.5, 1)
    plant.run(12, disturbance=3.0)
    assert plant.decision.terms["b"] == pytest.approx(1.5, rel=0.4)
    assert LatePlant(0.5, 1.5, 1, tuning="fixed").parameters["b"] is None
    fixed = LatePlant(0.5, 1.5, 1, tuning="fixed")
    fixed.run(12, disturbance=3.0)
    assert fixed.decision.terms["b"] == pytest.approx(6.0)
    assert plant.share < fixed.share  # a smaller effect takes a larger change


def test_without_changes_what_was_identified_is_forgotten():
    plant = LatePlant(0.5, 1.5, 1)
    plant.run(12, disturbance=3.0)
    plant.run(200, disturbance=0.0)
    assert plant.state["information"]["pushed"] < 0.1


@pytest.mark.parametrize("given", [{"b": 6.0, "r": 4.0, "averaging": 1}, {"b": 1.0, "r": 0.02}])
def test_gains_that_a_delay_makes_unstable_are_refused(given):
    with pytest.raises(BadInput, match="unstable") as refused:
        catalog.read_parameters(LAW, {"delay": 1, **given})
    assert refused.value.field == "parameters.r"
    catalog.read_parameters(LAW, {"delay": 1, **given, "r": 16 * given["b"] ** 2})


def seen_with(times, parameters=None, state=None, **more):
    observation = {"response_times_seconds": times, "shares": {"a": 0.5, "b": 0.5}, **more}
    document = {"parameters": parameters or {}, "state": state, "observations": [observation]}
    return request.answer("balance", document)


def test_a_correction_begins_at_a_significant_difference_and_continues_until_little_is_left():
    first = seen_with({"a": 1.5, "b": 1.0}, error_seconds=0.1)
    assert "within random variation" in first["decisions"][0]["reason"]
    second = seen_with({"a": 2.0, "b": 1.0}, state=first["state"], error_seconds=0.1)
    assert second["decisions"][0]["action"]
    third = seen_with({"a": 1.5, "b": 1.0}, state=second["state"], error_seconds=0.1)
    assert third["decisions"][0]["action"]
    last = seen_with({"a": 1.05, "b": 1.0}, state=third["state"], error_seconds=0.1)
    assert "within random variation" in last["decisions"][0]["reason"]


def test_replicas_on_the_same_cores_keep_equal_shares_unless_one_differs():
    alike = seen_with({"a": 1.2, "b": 1.0}, error_seconds=0.1, same_cores=True)["decisions"][0]
    assert alike["action"] is None
    assert "all replicas run on the same cores" in alike["reason"] and "shares are equal" in alike["reason"]
    assert seen_with({"a": 3.0, "b": 1.0}, error_seconds=0.1, same_cores=True)["decisions"][0]["action"]


def test_shares_without_an_effect_return_to_equal():
    plant = LatePlant(0.5, 0.05, 1)
    plant.run(60, disturbance=3.0)
    plant.run(1, disturbance=3.0)
    assert abs(plant.share - 0.5) < 0.2


def test_after_a_hold_old_differences_and_shares_are_forgotten():
    plant = LatePlant(0.5, 3.0, 1)
    plant.run(12, disturbance=3.0)
    resumed = resume_state(LAW, plant.state)
    assert resumed["information"] == plant.state["information"]
    assert resumed["differences"] == resumed["past_shares"] == resumed["past_differences"] == {}


TWO, HALF = {"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize("replicas", [2, 25, 26, 50, 51, 200, 1_000])
def test_without_a_minimum_the_shares_of_any_number_of_replicas_can_move(replicas):
    names = [f"r{index}" for index in range(replicas)]
    shares = dict.fromkeys(names, 1 / replicas)
    times = {**dict.fromkeys(names, 1.0), "r0": 300.0}
    found = shares_after(times, shares, **PROMPT)
    assert found["r0"] == pytest.approx(min(0.02, 0.5 / replicas)) and sum(found.values()) == pytest.approx(1)
    assert min(found[name] for name in names[1:]) > 1 / replicas


def test_a_minimum_that_was_given_is_kept_or_refused():
    names = [f"r{index}" for index in range(50)]
    times, shares = {**dict.fromkeys(names, 1.0), "r0": 300.0}, dict.fromkeys(names, 0.02)
    assert shares_after(times, shares, minimum_share=0.02)["r0"] == pytest.approx(0.02)
    with pytest.raises(BadInput) as refused:
        decide({**times, "one more": 1.0}, {**shares, "one more": 0.02}, {"minimum_share": 0.02})
    assert refused.value.field == "parameters.minimum_share"


@pytest.mark.parametrize(
    ("field", "times", "shares", "parameters"),
    [
        ("observations[0].shares.b", TWO, {"a": 1.0}, {}),
        ("observations[0].shares.c", TWO, HALF | {"c": 0.1}, {}),
        ("observations[0].shares", TWO, {"a": 0.0, "b": 0.0}, {}),
        ("observations[0].response_times_seconds", {"a": 1.0}, {"a": 1.0}, {}),
        ("parameters.a_of.c", TWO, HALF, {"a_of": {"c": 0.5}}),
        ("parameters.minimum_share", dict.fromkeys("abc", 1.0), dict.fromkeys("abc", 1.0), {"minimum_share": 0.4}),
    ],
)
def test_replicas_that_do_not_match_and_bad_values_are_refused_by_name(field, times, shares, parameters):
    with pytest.raises(BadInput) as refused:
        decide(times, shares, parameters)
    assert refused.value.field == field
