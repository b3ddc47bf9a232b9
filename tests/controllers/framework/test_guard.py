"""What the guard holds back, and that it says so."""

import json
from dataclasses import replace
from typing import Annotated

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import BadInput
from common.parameter import value
from controllers.framework import guard
from controllers.framework.decision import Decision, Expectation
from controllers.framework.guard import ObservationQuality
from controllers.framework.law import Law, NoState

FRESH = ObservationQuality(0.4)


class Wanted(msgspec.Struct, frozen=True):
    wanted: Annotated[int, value("times", "How many to start.", 0, 1e9)]


class Asked(msgspec.Struct, frozen=True):
    asked: Annotated[int, value("times", "How often it was asked.", 0, 1e12)] = 0


class Echo(Law[NoState, Wanted, Asked]):
    """A law that starts as many as it is told to: what reaches the plant is the guard's doing."""

    name = "echo"
    Parameters, Observation, State = NoState, Wanted, Asked
    actuator = "start"

    def decide(self, parameters, state, observation):
        wanted = observation.wanted
        expected = Expectation("removed_events", "up", 100.0 * wanted, 10.0) if wanted else None
        action = {"start": wanted} if wanted else None
        return Asked(state.asked + 1), Decision(action, f"{wanted} are wanted.", raw=float(wanted), expected=expected)


def pass_through(*wanted, law=None, measured=FRESH, seconds=5.0, manual=None, applies=True, **settings):
    """Each wanted value through the guard, some seconds apart."""
    law = law or Echo()
    settings = guard.read_settings(law, settings)
    state, guard_state, results = {"asked": 0}, guard.read_state(None), []
    for number, count in enumerate(wanted):
        result = guard.decide(
            law,
            {},
            state,
            {"wanted": count},
            settings=settings,
            guard_state=guard_state,
            now_seconds=1000.0 + number * seconds,
            measured=measured,
            manual=manual,
            applies=applies,
        )
        state, guard_state = result.state, result.guard_state
        results.append(result)
    return results


def applied(results):
    return [result.value for result in results]


def test_a_decision_within_all_limits_passes_as_it_is():
    (result,) = pass_through(3)
    assert result.decision == Echo().decide(NoState(), Asked(), Wanted(3))[1]
    assert result.value == 3


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (ObservationQuality(3.1), "3.1 s old, limit 3 s"),
        (ObservationQuality(None), "age of the measurement is unknown"),
        (ObservationQuality(0.1, "node n2 is OFFLINE"), "node n2 is OFFLINE"),
    ],
)
def test_on_a_measurement_that_cannot_be_trusted_the_law_is_not_asked(measured, why):
    (result,) = pass_through(3, measured=measured)
    assert (result.decision.action, result.decision.limited_by) == (None, "stale measurement")
    assert why in result.decision.reason
    assert (result.state, result.guard_state, result.asked) == ({"asked": 0}, guard.read_state(None), False)


def test_where_there_is_nothing_to_decide_the_law_is_not_asked_and_it_does_not_count_as_blind():
    (result,) = pass_through(3, measured=ObservationQuality(0.1, idle="no replica works"))
    assert (result.decision.action, result.decision.limited_by) == (None, "nothing to decide")
    assert result.decision.reason == "No action: no replica works."
    (stale,) = pass_through(3, measured=ObservationQuality(9.0, idle="no replica works"))
    assert stale.decision.limited_by == "stale measurement", "an old measurement tells not even that"


def test_a_measurement_exactly_as_old_as_allowed_is_used():
    assert applied(pass_through(3, measured=ObservationQuality(3.0))) == [3]


def test_a_value_over_the_maximum_is_clamped_and_expects_less():
    (result,) = pass_through(8, maximum=2)
    assert (result.decision.action, result.decision.limited_by) == ({"start": 2}, "guard maximum")
    assert (result.decision.raw, result.value) == (8.0, 2.0)
    assert result.decision.expected.amount == 200.0
    assert result.decision.reason.startswith("Set start to 2: limited by the guard maximum. ")


def test_a_value_rises_and_falls_by_at_most_the_slew():
    assert applied(pass_through(1, 9, 9, slew_up=3)) == [1, 4, 7]
    assert applied(pass_through(9, 1, 1, slew_down=3)) == [9, 6, 3]


def test_a_value_goes_one_way_only_when_it_is_set_to_and_the_range_still_holds():
    assert applied(pass_through(3, 5, 4, 6, direction="up only")) == [3, 5, 5, 6]
    assert applied(pass_through(5, 7, 3, 4, direction="down only")) == [5, 5, 3, 3]
    assert applied(pass_through(5, 4, direction="up only", maximum=4)) == [4, 4]
    second = pass_through(5, 4, direction="up only")[1]
    assert second.decision.limited_by == "guard direction"


def test_none_is_never_turned_into_an_action():
    results = pass_through(9, 0, slew_down=3, minimum=2)
    assert results[1].decision.action is None
    assert applied(results) == [9, 0]


def test_an_action_waits_until_the_last_one_has_cooled_down():
    results = pass_through(1, 1, 1, cooldown_seconds=8.0)
    assert [each.decision.action is not None for each in results] == [True, False, True]
    assert results[1].decision.limited_by == "guard cool-down"
    assert results[1].decision.reason.startswith("No action: cool-down ends in 3.0 s.")


def test_a_clock_set_back_does_not_cool_down_for_an_hour():
    assert applied(pass_through(1, 1, seconds=-3600.0, cooldown_seconds=8.0)) == [1, 1]


def test_an_oscillation_is_averaged_to_the_mean_of_its_window():
    results = pass_through(*[20, 2] * 6, oscillation_turns=6, oscillation_window=12)
    assert results[-1].decision.limited_by == "oscillation"
    assert applied(results)[-1] == 11
    assert not any("oscillation" in str(each.decision.limited_by) for each in results[:6])


def test_small_swings_and_one_way_growth_are_no_oscillation():
    assert guard.count_reversals([1, 2, 1, 2, 1, 2], swing=5) == 0
    assert guard.count_reversals([1, 9, 20, 40, 90], swing=5) == 0
    assert guard.count_reversals([10, 20, 10, 20], swing=5) == 2


def test_a_hand_passes_the_same_guard_and_leaves_the_law_alone():
    (result,) = pass_through(7, manual={"start": 5}, maximum=4)
    assert (result.decision.action, result.state) == ({"start": 4}, {"asked": 0})
    assert "set by a user" in result.decision.reason
    (held,) = pass_through(7, manual={"start": 5}, measured=ObservationQuality(60.0))
    assert held.decision.action is None


def test_manual_without_a_value_does_nothing_and_says_so():
    (result,) = pass_through(7, manual={})
    assert result.decision.action is None
    assert "no value is set for start" in result.decision.reason


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
    st.integers(0, 50),
    st.integers(50, 500),
    st.floats(0.5, 300.0),
    st.floats(0.0, 30.0),
)
@example([0, 2], 2, 50, 1.0, 0.0)
def test_whatever_the_law_asks_what_is_applied_is_in_range_and_slow_enough(wanted, minimum, maximum, slew_up, cooldown):
    results = pass_through(*wanted, minimum=minimum, maximum=maximum, slew_up=slew_up, cooldown_seconds=cooldown)
    acted_at, before = None, None
    for number, (asked, result) in enumerate(zip(wanted, results, strict=True)):
        assert json.loads(json.dumps(result.guard_state)) == result.guard_state
        changed = result.value != asked
        assert (result.decision.limited_by is not None) == changed
        if result.value:
            assert minimum <= result.value <= maximum
            assert asked > 0
            assert before is None or result.value <= max(before + slew_up, minimum)
            assert acted_at is None or (number - acted_at) * 5.0 >= cooldown
            acted_at = number
        before = result.value


def test_settings_that_contradict_or_are_unknown_are_refused_by_name():
    for settings, field_name in (
        ({"minimum": 5, "maximum": 4}, "guard.minimum"),
        ({"slow": 1}, "guard.slow"),
        ({"stale_seconds": float("nan")}, "guard.stale_seconds"),
    ):
        with pytest.raises(BadInput) as refused:
            guard.read_settings(Echo(), settings)
        assert refused.value.field == field_name


class StandingEcho(Echo):
    """A law that sets a value which stays."""

    lasting = True


def test_where_a_value_stays_nothing_done_is_no_turn_and_slew_counts_from_what_stands():
    assert applied(pass_through(3, 0, 0, 9, law=StandingEcho(), slew_up=1)) == [3, 3, 3, 4]
    assert applied(pass_through(3, 0, 0, 9, slew_up=1)) == [3, 0, 0, 1]
    kept = applied(pass_through(3, 0, 2, law=StandingEcho(), direction="up only"))
    assert kept == [3, 3, 3]


def test_of_a_value_that_stays_what_it_changes_is_expected_to_have_an_effect_and_no_more():
    *_, limited = pass_through(4, 8, law=StandingEcho(), maximum=5)
    assert (limited.decision.action, limited.decision.expected.amount) == ({"start": 5}, 200.0)
    *_, unchanged = pass_through(4, 8, law=StandingEcho(), direction="down only")
    assert (unchanged.decision.action, unchanged.decision.expected) == ({"start": 4}, None)
    *_, held = pass_through(4, 1, law=StandingEcho(), direction="up only")
    assert (held.decision.action, held.decision.expected) == ({"start": 4}, None)


def test_what_is_compared_with_a_value_of_the_law_s_own_is_expected_of_all_that_is_applied():
    class Explorer(StandingEcho):
        def decide(self, parameters, state, observation):
            after, decision = super().decide(parameters, state, observation)
            return after, replace(decision, expected=replace(decision.expected, before=9.0))

    *_, limited = pass_through(4, 8, law=Explorer(), maximum=5)
    assert limited.decision.expected.amount == 500.0


def test_a_value_that_stays_can_be_limited_to_0():
    (limited,) = pass_through(3, law=StandingEcho(), minimum=-1.0, maximum=0.0)
    assert (limited.decision.action, limited.value) == ({"start": 0}, 0.0)
    assert limited.decision.expected is None
    assert pass_through(3, minimum=-1.0, maximum=0.0)[0].decision.action is None


def test_setting_once_more_what_is_in_force_neither_cools_down_nor_waits():
    results = pass_through(3, 3, 3, 4, 3, law=StandingEcho(), cooldown_seconds=12.0)
    assert [each.decision.action for each in results] == [{"start": 3}] * 3 + [{"start": 4}, None]
    assert results[-1].decision.limited_by == "guard cool-down"


class PoolEcho(Echo):
    """A law that sees how many stand: nine."""

    def read_value_in_force(self, parameters, observation):
        return 9.0


def test_of_a_value_that_is_observed_slew_and_direction_count_from_what_is_seen():
    assert applied(pass_through(0, 40, 1, law=PoolEcho(), slew_up=5, slew_down=3)) == [9, 14, 6]
    assert applied(pass_through(2, 12, law=PoolEcho(), direction="up only")) == [9, 12]
    assert applied(pass_through(2, 12, law=PoolEcho(), direction="down only")) == [2, 9]
    (limited,) = pass_through(12, law=PoolEcho(), maximum=10)
    assert limited.decision.expected.amount == pytest.approx(1_200 / 3)


def test_what_is_seen_in_force_is_not_set_once_more_and_cools_nothing_down():
    first, second = pass_through(40, 5, law=PoolEcho(), maximum=9, cooldown_seconds=60.0)
    assert (first.decision.action, first.decision.expected, first.value) == (None, None, 9.0)
    assert first.decision.reason.startswith("No action: limited by the guard maximum.")
    assert second.decision.action == {"start": 5}
    (advised,) = pass_through(5, law=PoolEcho(), applies=False)
    assert (advised.value, advised.guard_state["value"]) == (5.0, 9.0)


class Started(msgspec.Struct, frozen=True):
    started: Annotated[float, value("workers", "All of them.", 0, 1e9)] = 0.0


class Counter(Law[NoState, Wanted, Started]):
    """A law whose state supposes that as many as it asked for are started."""

    name = "counter"
    Parameters, Observation, State = NoState, Wanted, Started
    actuator = "start"

    def decide(self, parameters, state, observation):
        decision = replace(Echo().decide(parameters, Asked(), observation)[1], terms={"start": observation.wanted})
        return Started(state.started + observation.wanted), decision

    def correct(self, parameters, before, after, action):
        return Started(before.started + (action["start"] if action else 0))


@pytest.mark.parametrize(
    ("settings", "started"), [({}, 8), ({"maximum": 2}, 2), ({"maximum": 0, "minimum": 0}, 0), ({"applies": False}, 0)]
)
def test_a_law_remembers_what_is_done_and_not_what_it_proposed(settings, started):
    (result,) = pass_through(8, law=Counter(), **settings)
    assert result.state == {"started": started}
    assert result.decision.raw == 8.0


def test_what_cools_down_is_not_remembered_as_done_and_the_terms_name_what_is_in_force():
    law = Counter()
    settings = guard.read_settings(law, {"cooldown_seconds": 30.0, "maximum": 5})
    guard_state = {**guard.read_state(None), "value": 4.0, "acted_at_seconds": 990.0}
    given = {"settings": settings, "guard_state": guard_state, "now_seconds": 1_000.0, "measured": FRESH}
    cooled = guard.decide(law, {}, {"started": 7}, {"wanted": 8}, **given)
    assert (cooled.decision.action, cooled.state) == (None, {"started": 7})
    assert cooled.decision.terms == {"start": 4}
    limited = guard.decide(law, {}, {"started": 7}, {"wanted": 8}, **{**given, "now_seconds": 2_000.0})
    assert limited.decision.terms == {"start": 5}


def test_advice_spends_nothing_cools_nothing_down_and_sets_no_value():
    priced = ObservationQuality(0.4, unit_cost=1.0)
    advised = pass_through(4, 4, 4, applies=False, measured=priced, cost_cap=5.0, cooldown_seconds=60.0)
    assert [each.decision.action for each in advised] == [{"start": 4}] * 3
    assert sum(advised[-1].guard_state["spent"]) == 0.0
    assert advised[-1].guard_state["acted_at_seconds"] is None
    assert advised[-1].guard_state["value"] == 0.0, "nothing done is 0"
    stays = pass_through(4, law=StandingEcho(), applies=False)[0]
    assert (stays.value, stays.guard_state["value"]) == (4.0, None), "what it would be, and what is in force"
