"""Changes before a fault are ranked: near before far, lately before long ago, telling before usual."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.diagnosis.changes import (
    SLACK_SECONDS,
    KindRecord,
    PlantChange,
    compute_change_probability,
    compute_distances,
    rank_changes,
)

ONSET = 10_000.0
CHAIN = {"queue/b": ["queue/a"], "queue/a": ["producer/p"]}
STEPS = compute_distances(CHAIN, ["queue/b"])
parts = st.sampled_from(["queue/b", "queue/a", "producer/p", "node/elsewhere"])
changes = st.builds(
    PlantChange,
    st.sampled_from(["deploy", "override", "loop"]),
    st.floats(0, ONSET + 100),
    st.frozensets(parts, max_size=2),
)


def change(kind: str = "deploy", ago: float = 60.0, *of: str) -> PlantChange:
    return PlantChange(kind, ONSET - ago, frozenset(of or ("queue/b",)))


def order(*of: PlantChange, **records: KindRecord) -> list[int]:
    return [each.place for each in rank_changes(of, ONSET, STEPS, records)]


def test_the_nearer_of_two_comes_first():
    assert order(change("deploy", 60, "producer/p"), change("deploy", 60, "queue/a")) == [1, 0]


def test_what_had_ended_before_the_onset_comes_behind_what_lasts():
    over = PlantChange("override", ONSET - 60, frozenset({"queue/alert"}), is_over=True)
    lasts = PlantChange("override", ONSET - 200, frozenset({"queue/alert"}))
    assert [each.place for each in rank_changes([over, lasts], ONSET, {"queue/alert": 0}, {})] == [1, 0]


def test_what_happens_all_the_time_is_no_news():
    usual, rare = KindRecord(chance=1.0), KindRecord(chance=0.05)
    assert order(change("loop", 10), change("deploy", 600), loop=usual, deploy=rare) == [1, 0]


def test_what_came_before_most_incidents_of_this_kind_comes_first():
    told, innocent = KindRecord(9, 10, 0.2), KindRecord(0, 10, 0.2)
    assert order(change("override", 60), change("deploy", 300), override=innocent, deploy=told) == [1, 0]


def test_what_came_after_the_onset_is_no_cause_but_for_the_slack_of_clocks():
    assert order(change(ago=-SLACK_SECONDS - 1), change(ago=-SLACK_SECONDS + 1)) == [1]


@given(st.lists(changes, max_size=12))
def test_each_that_came_before_is_ranked_once_by_falling_weight(of):
    rows = rank_changes(of, ONSET, STEPS, {})
    before = {at for at, each in enumerate(of) if each.at <= ONSET + SLACK_SECONDS}
    assert {row.place for row in rows} == before and len(rows) == len(before)
    weights = [row.weight for row in rows]
    assert weights == sorted(weights, reverse=True) and all(0 < each < math.inf for each in weights)


@given(st.lists(changes, min_size=2, max_size=8), st.permutations(range(8)))
def test_the_order_does_not_depend_on_the_order_of_what_is_given(of, places):
    shuffled = [of[place] for place in places if place < len(of)]
    weights = [row.weight for row in rank_changes(of, ONSET, STEPS, {})]
    assert weights == [row.weight for row in rank_changes(shuffled, ONSET, STEPS, {})]


def test_a_rate_that_rose_a_hundredfold_comes_before_a_deploy_of_minutes_ago_and_one_that_doubled_does_not():
    records = {"producer rose": KindRecord(1, 4, 0.15), "deploy": KindRecord(2, 4, 0.06)}
    steps = {"queue/q": 0, "producer/p": 1}
    deploy = PlantChange("deploy", 800.0, frozenset({"queue/q"}))
    for times, first in ((1.0, 0), (50.0, 1)):
        rose = PlantChange("producer rose", 990.0, frozenset({"producer/p"}), times)
        assert rank_changes([deploy, rose], 1_000.0, steps, records)[0].place == first


def test_the_first_hour_of_a_plant_makes_no_kind_of_change_usual():
    hour, week, window = 3_600.0, 7 * 86_400.0, 10_800.0
    young = [compute_change_probability(count, window, hour, week) for count in (0, 1, 5, 40)]
    assert young == sorted(young) and young[2] < 0.1 < young[3] < 0.6
    old = compute_change_probability(40, window, 30 * 86_400.0, week)
    assert old == pytest.approx(compute_change_probability(40, window, 37 * 86_400.0, 0.0))
