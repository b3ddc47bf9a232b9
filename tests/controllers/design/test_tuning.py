"""Tuning: a search that leaves no range and never ends worse, and a proof sure only of what is so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.parameter import Parameter
from controllers.design.tuning import SearchRange, compute_improvement, search

SHARE = Parameter("share", "share", "A share.", 0.5, 0.0, 1.0)
COUNT = Parameter("count", "events", "A count.", 10, 1, 1_000, "integer")


@given(st.floats(0.01, 1.0), st.integers(1, 1_000), st.floats(0.0, 1.0), st.floats(0.0, 1_200.0))
def test_what_is_found_is_in_its_ranges_and_never_worse_than_what_is_in_force(share, count, best, most):
    begin = {"share": share, "count": count}
    ranges = [SearchRange.build_around(SHARE, share), SearchRange.build_around(COUNT, count)]

    def cost(values):
        return (values["share"] - best) ** 2 + ((values["count"] - most) / 1_000) ** 2

    found = search(cost, ranges, begin, seed=1, evaluations=20)
    for each in ranges:
        assert each.low <= found[each.name] <= each.high
    assert isinstance(found["count"], int)
    SHARE.check(found["share"], "share"), COUNT.check(found["count"], "count")
    rounded = {each.name: each.read(begin[each.name]) for each in ranges}
    assert cost(found) <= cost(rounded)


def test_a_range_is_four_times_around_what_is_in_force_and_within_what_is_declared():
    assert SearchRange.build_around(SHARE, 0.1) == SearchRange("share", 0.025, 0.4)
    assert SearchRange.build_around(SHARE, 0.5) == SearchRange("share", 0.125, 1.0)
    assert SearchRange.build_around(SHARE, 0.0) == SearchRange("share", 0.0, 1.0)
    assert SearchRange.build_around(COUNT, 2) == SearchRange("count", 1, 8, is_whole=True)


def test_the_least_of_a_bowl_is_found_and_by_the_same_seed_again():
    ranges = [SearchRange("share", 0.0, 1.0)]
    found = [search(lambda at: (at["share"] - 0.3) ** 2, ranges, {"share": 0.9}, seed) for seed in (1, 1)]
    assert found[0]["share"] == pytest.approx(0.3, abs=0.05)
    assert found[0] == found[1]


days = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20)


@given(days)
def test_days_that_cost_the_same_are_no_improvement_and_give_no_confidence(costs):
    found = compute_improvement(costs, costs, seed=1)
    assert (found.share, found.confidence) == (0.0, 0.0)


@given(days, st.floats(0.01, 0.99))
def test_days_that_all_cost_less_are_sure_and_the_share_is_what_is_gone(costs, factor):
    found = compute_improvement(costs, [cost * factor for cost in costs], seed=1)
    assert found.confidence == 1.0
    assert found.share == pytest.approx(1 - factor)
