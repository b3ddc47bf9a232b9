"""Rivals of a few lines: the shortest queue, Spark's rate estimator, and shedders without foresight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.baselines.flow import SparkPid, join
from controllers.baselines.shedders import SHEDDERS, MeasuredStream

LENGTHS = st.lists(st.floats(0, 1e4), min_size=1, max_size=8)


@given(LENGTHS, st.floats(0, 1e5))
def test_the_shortest_queues_are_filled_to_one_level_and_no_event_is_lost(lengths, events):
    added = join(np.array(lengths), events)
    assert added.min() >= 0 and added.sum() == pytest.approx(events, abs=1e-6 * max(1.0, events))
    filled = np.array(lengths) + added
    level = filled[added > 1e-9]
    assert level.size == 0 or np.ptp(level) <= 1e-6 * max(1.0, level.max())
    assert level.size == 0 or all(filled[added <= 1e-9] >= level.min() - 1e-6)


def test_spark_s_estimator_begins_with_the_first_batch_and_follows_its_formula():
    estimator = SparkPid(batch_seconds=2.0)
    assert estimator.update(0, 1.0, 0.0) is estimator and estimator.update(10, 0.0, 0.0) is estimator
    first = estimator.update(1_000, 0.5, 0.0)
    assert first.rate_per_second == 2_000
    second = first.update(1_000, 1.0, 3.0)  # 2,000 - 1.0 · (2,000 - 1,000) - 0.2 · 3.0 · 1,000 / 2.0
    assert second.rate_per_second == pytest.approx(700)
    assert second.update(1_000, 1.0, 1e6).rate_per_second == 100, "never below its minimum"


STREAM = MeasuredStream(
    rates={"a": 100.0, "b": 50.0},
    takes={"p": ("a", "b"), "q": ("a",)},
    seconds={"p": 0.004, "q": 0.002},
    budget=0.4,
    utility={"p": {"a": 0.1, "b": 0.5}, "q": {"a": 0.3}},
)


@pytest.mark.parametrize("name", SHEDDERS)
def test_a_shedder_answers_a_share_for_every_pattern_and_type(name):
    table = SHEDDERS[name](STREAM)
    assert {pattern: set(row) for pattern, row in table.items()} == {"p": {"a", "b"}, "q": {"a"}}
    assert all(0 <= share <= 1 for row in table.values() for share in row.values())


def left(name: str) -> float:
    table = SHEDDERS[name](STREAM)
    return sum(
        STREAM.seconds[pattern] * STREAM.rates[kind] * (1 - share)
        for pattern, row in table.items()
        for kind, share in row.items()
    )


def test_chance_and_utility_shed_to_the_budget_and_nothing_sheds_nothing():
    assert left("none") == pytest.approx(STREAM.work()) == pytest.approx(0.8)
    assert left("random") == pytest.approx(0.4) and left("utility") == pytest.approx(0.4)
    assert SHEDDERS["utility"](STREAM)["p"] == {"a": 1.0, "b": 0.0}, "the least useful type goes whole"


def test_chance_sheds_nothing_of_what_is_no_work():
    idle = MeasuredStream({"a": 0.0}, {"p": ("a",)}, {"p": 0.1}, 0.5, {"p": {"a": 0.0}})
    assert SHEDDERS["random"](idle) == {"p": {"a": 0.0}} == SHEDDERS["utility"](idle)
