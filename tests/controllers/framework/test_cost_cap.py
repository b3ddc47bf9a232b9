"""The cost cap of the guard: in no hour more than the cap, and the decision says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.framework import guard
from controllers.framework.guard import COST_CAP, SLOT_SECONDS, ObservationQuality
from tests.controllers.framework.test_guard import Echo, pass_through

PRICED, UNIT_PRICE = ObservationQuality(0.4, unit_cost=0.5), ObservationQuality(0.4, unit_cost=1.0)


def test_what_would_exceed_the_cap_is_limited_and_its_reason_says_so():
    first, second = pass_through(8, 8, measured=PRICED, cost_cap=5.0)
    assert (first.value, first.decision.limited_by) == (8, None)  # 4 of 5
    assert (second.value, second.decision.limited_by) == (2, COST_CAP)
    why = "limited by the guard cost cap of 5 per h (4 spent, 0.5 per unit)"
    assert second.decision.reason == f"Set start to 2: {why}. Proposed by the law: 8 are wanted."


def test_a_cap_that_leaves_nothing_is_no_action_and_after_an_hour_there_is_room_again():
    results = pass_through(10, 10, measured=PRICED, cost_cap=5.0)
    assert results[1].decision.action is None and results[1].decision.limited_by == COST_CAP
    results = pass_through(10, 10, measured=PRICED, cost_cap=5.0, seconds=3600 + SLOT_SECONDS)
    assert [each.value for each in results] == [10, 10]


def test_without_a_price_or_a_cap_nothing_is_limited_or_remembered():
    for measured, settings in ((PRICED, {}), (ObservationQuality(0.4), {"cost_cap": 1.0})):
        (result,) = pass_through(50, measured=measured, **settings)
        assert result.value == 50 and result.guard_state["spent"] == []


def test_the_least_of_the_range_stands_before_the_cap():
    results = pass_through(10, 10, measured=PRICED, cost_cap=5.0, minimum=1.0)
    assert [each.value for each in results] == [10, 1]


def test_what_is_cooled_down_is_not_spent():
    results = pass_through(4, 4, 4, measured=PRICED, cost_cap=100.0, cooldown_seconds=60.0)
    assert sum(results[-1].guard_state["spent"]) == 2.0


class Stays(Echo):
    """A law whose value stays until it sets another."""

    lasting = True


def test_what_stays_may_cost_no_more_than_the_cap_as_long_as_it_stays():
    results = pass_through(40, 3, law=Stays(), measured=ObservationQuality(0.4, unit_cost=2.0), cost_cap=10.0)
    assert [each.value for each in results] == [5, 3] and results[1].decision.limited_by is None
    assert results[0].guard_state["spent"] == []


@given(
    wanted=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    seconds=st.floats(1.0, 900.0),
    cap=st.floats(0.5, 30.0),
)
def test_in_no_hour_more_than_the_cap_is_spent(wanted, seconds, cap):
    results = pass_through(*wanted, measured=PRICED, cost_cap=cap, seconds=seconds)
    spent = [(1000.0 + number * seconds, each.value * 0.5) for number, each in enumerate(results)]
    for end, _ in spent:
        assert sum(money for at, money in spent if end - 3600 < at <= end) <= cap + 1e-9


def ask(wanted, at_seconds, state, measured=UNIT_PRICE, cost_cap=10.0):
    settings = guard.read_settings(Echo(), {"cost_cap": cost_cap})
    times = {"now_seconds": at_seconds, "measured": measured}
    return guard.decide(Echo(), {}, {"asked": 0}, {"wanted": wanted}, settings=settings, guard_state=state, **times)


SPENT_4 = guard.read_state({"spent": [0.0] * 12 + [4.0], "spent_slot": 33})


@pytest.mark.parametrize(
    ("at_seconds", "left"),
    [(10_000.0, 6.0), (9_000.0, 6.0), (9_000.0 + 3_900.0, 6.0), (10_000.0 + 3_900.0, 10.0)],
    ids=["now", "set back", "set back and an hour on", "an hour on"],
)
def test_what_was_spent_counts_for_an_hour_also_where_the_clock_was_set_back(at_seconds, left):
    state = ask(0, 10_000.0, SPENT_4).guard_state
    assert ask(40, at_seconds, state).value == left


def test_a_clock_that_was_ahead_for_once_makes_no_cap_of_a_day_out_of_that_of_an_hour():
    ahead = ask(0, 10_000.0 + 86_400.0, SPENT_4).guard_state
    kept = ask(9, 10_010.0, ahead).guard_state
    assert (ask(40, 10_010.0, kept).value, ask(40, 10_010.0 + 3_900.0, kept).value) == (1.0, 10.0)


def test_a_state_of_an_older_version_begins_with_nothing_spent():
    state = guard.read_state({"value": 1.0, "acted_at_seconds": 5.0, "recent": [1.0]})
    assert (state["spent"], state["spent_slot"]) == ([], None)


def test_what_was_spent_counts_on_after_a_time_in_which_no_price_was_known():
    state, values = guard.read_state(None), []
    for at, (wanted, measured) in enumerate([(10, PRICED), (0, ObservationQuality(0.4)), (10, PRICED)]):
        result = ask(wanted, 1000.0 + 5 * at, state, measured, cost_cap=5.0)
        state = result.guard_state
        values.append(result.value)
    assert values == [10, 0, 0] and result.decision.limited_by == COST_CAP
