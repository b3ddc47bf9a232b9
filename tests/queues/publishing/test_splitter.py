"""Smooth weighted round robin: exact, and fair through failures and changes of points."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from queues.publishing.splitter import Splitter, split_request
from tests.shared_data import DATA

POINTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 60), min_size=1, max_size=6).filter(
    lambda points: any(points.values())
)


def naive(points: dict[str, int], count: int) -> list[str]:
    """The rule, word by word: add the points, pick the greatest (first on ties), take the sum from it."""
    credit, chosen = dict.fromkeys(points, 0), []
    for _ in range(count):
        for name, value in points.items():
            credit[name] += value
        best = max((name for name in points if points[name]), key=lambda name: credit[name])
        credit[best] -= sum(points.values())
        chosen.append(best)
    return chosen


@given(POINTS, st.integers(0, 300))
def test_the_sequence_is_the_rules_own(points, count):
    assert split_request({"points": points, "count": count}) == {"sequence": naive(points, count)}


def test_the_reference_sequences_come_out():
    path = DATA / "reference" / "wrr.json"
    if not path.exists():
        pytest.skip("the reference data lies beside the project and is not here")
    smooth = [case for case in json.loads(path.read_text())["cases"] if case["algorithm"] == "smooth WRR"]
    assert smooth
    for case in smooth:
        points = dict(zip(case["servers"], case["weights"], strict=True))
        assert Splitter(points).sequence(len(case["expected"])) == case["expected"]


def test_credits_are_those_of_the_reference_after_each_pick():
    splitter, seen = Splitter({"a": 5, "b": 1, "c": 1}), []
    for _ in range(7):
        splitter.pick_container()
        seen.append(list(splitter.get_credits().values()))
    assert seen == [[-2, 1, 1], [-4, 2, 2], [1, -4, 3], [-1, -3, 4], [4, -2, -2], [2, -1, -1], [0, 0, 0]]


@given(POINTS, st.integers(1, 500))
def test_no_container_is_ever_a_whole_round_off_its_share(points, count):
    sequence, total = Splitter(points).sequence(count), sum(points.values())
    for name, value in points.items():
        assert abs(sequence.count(name) - count * value / total) < len(points)


@given(POINTS, st.lists(st.tuples(st.sampled_from(["exclude", "admit", "points", "take"]), POINTS), max_size=12))
def test_shares_stay_fair_and_credits_sum_to_zero_whatever_happens(points, happenings):
    splitter = Splitter(points)
    for what, others in happenings:
        name = next(iter(others))
        if what == "exclude":
            splitter.exclude(name)
        elif what == "admit":
            splitter.admit(name)
        elif what == "points":
            splitter.set_points(others)
        elif splitter.available:
            splitter.sequence(sum(others.values()))
        assert sum(splitter.get_credits().values()) == 0
    if not splitter.available:
        with pytest.raises(LookupError):
            splitter.pick_container()
        return
    shares = {name: splitter.points[name] for name in splitter.available}
    sequence = splitter.sequence(200)
    for name, value in shares.items():
        expected = 200 * value / sum(shares.values())
        assert abs(sequence.count(name) - expected) <= 2 * len(shares) + 1


def test_a_container_that_is_admitted_again_is_not_flooded():
    splitter = Splitter({"a": 1, "b": 1})
    splitter.exclude("b")
    assert set(splitter.sequence(1000)) == {"a"}
    splitter.admit("b")
    assert splitter.sequence(100).count("b") == 50


def test_a_container_with_no_points_gets_nothing_even_when_it_is_alone():
    splitter = Splitter({"a": 1, "b": 0})
    splitter.exclude("a")
    assert splitter.available == []
    with pytest.raises(LookupError):
        splitter.pick_container()


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "document"),
        ({"points": {"a": 1}}, "count"),
        ({"count": 1}, "points"),
        ({"points": {"a": 1}, "count": 1, "seed": 2}, "seed"),
        ({"points": {}, "count": 1}, "points"),
        ({"points": {"a": 0, "b": 0}, "count": 1}, "points"),
        ({"points": {"a": -1}, "count": 1}, "points.a"),
        ({"points": {"a": 1.5}, "count": 1}, "points.a"),
        ({"points": {"a": float("inf")}, "count": 1}, "points.a"),
        ({"points": {"a": True}, "count": 1}, "points.a"),
        ({"points": {"": 1}, "count": 1}, "points"),
        ({"points": {"a": 1}, "count": -1}, "count"),
        ({"points": {"a": 1}, "count": 2.0}, "count"),
        ({"points": {"a": 1}, "count": float("nan")}, "count"),
        ({"points": {"a": 1}, "count": 10**9}, "count"),
    ],
)
def test_a_bad_request_is_refused_by_the_name_of_its_field(document, field):
    with pytest.raises(BadInput) as caught:
        split_request(document)
    assert caught.value.field == field
