"""How often groups rebalance, and for how long."""

from hypothesis import given
from hypothesis import strategies as st

from workers.plants.foreign.kafka.group_lag import EMPTY, STABLE, Group, GroupReader
from workers.plants.foreign.kafka.rebalances import MAX_REBALANCES, REBALANCING, WINDOW_SECONDS, Rebalances

PREPARING, COMPLETING = "preparing rebalancing", "completing rebalancing"
ALONE = (GroupReader("a", "h1", frozenset({("orders", 0), ("orders", 1)})),)
SHARED = (GroupReader("a", "h1", frozenset({("orders", 0)})), GroupReader("b", "h2", frozenset({("orders", 1)})))


def follow(*states, every_seconds=2.0):
    """The rebalances of a group with these states, one per reading; a tuple is a state and the members."""
    rebalances = Rebalances()
    for place, state in enumerate(states):
        name, members = state if isinstance(state, tuple) else (state, ())
        rebalances.follow({"billing": Group(name, members)}, place * every_seconds)
    return rebalances


def test_a_group_that_stays_stable_has_no_rebalance():
    rebalances = follow(STABLE, STABLE)
    assert (rebalances.count("billing"), rebalances.compute_seconds("billing")) == (0, None)


def test_a_rebalance_lasts_from_halfway_before_its_first_reading_to_halfway_after_its_last():
    rebalances = follow(STABLE, PREPARING, COMPLETING, STABLE)
    assert (rebalances.count("billing"), rebalances.compute_seconds("billing")) == (1, 4.0)


def test_a_rebalance_that_is_not_over_does_not_count_yet():
    assert follow(STABLE, PREPARING, PREPARING).count("billing") == 0


def test_of_several_rebalances_the_median_counts():
    rebalances = follow(STABLE, PREPARING, STABLE, PREPARING, STABLE, PREPARING, PREPARING, PREPARING, STABLE)
    assert (rebalances.count("billing"), rebalances.compute_seconds("billing")) == (3, 2.0)


def test_a_rebalance_between_two_readings_is_seen_by_its_assignments_and_has_no_duration():
    rebalances = follow((STABLE, ALONE), (STABLE, SHARED))
    assert (rebalances.count("billing"), rebalances.compute_seconds("billing")) == (1, None)


def test_a_broker_that_lists_no_members_shows_no_rebalance_between_readings():
    assert follow(STABLE, STABLE).count("billing") == 0


def test_a_group_whose_members_all_left_has_not_rebalanced():
    rebalances = follow((STABLE, ALONE), PREPARING, EMPTY, (STABLE, SHARED))
    assert rebalances.count("billing") == 0


def test_rebalances_of_more_than_an_hour_ago_do_not_count():
    rebalances = follow(STABLE, PREPARING, STABLE)
    rebalances.follow({"billing": Group(STABLE)}, WINDOW_SECONDS + 10.0)
    assert rebalances.count("billing") == 0


def test_a_group_that_is_gone_is_forgotten():
    rebalances = follow(STABLE, PREPARING, STABLE)
    rebalances.follow({}, 10.0)
    assert (rebalances.count("billing"), rebalances.compute_seconds("billing")) == (0, None)


def test_a_clock_that_is_set_back_starts_the_count_again():
    rebalances = follow(STABLE, PREPARING)
    rebalances.follow({"billing": Group(STABLE)}, -100.0)
    assert rebalances.count("billing") == 0


@given(st.lists(st.sampled_from([STABLE, EMPTY, *REBALANCING]), max_size=60))
def test_no_rebalance_lasts_longer_than_the_group_was_followed(states):
    rebalances = follow(*states)
    assert rebalances.count("billing") <= min(MAX_REBALANCES, len(states))
    assert (rebalances.compute_seconds("billing") or 0.0) <= 2.0 * len(states)
