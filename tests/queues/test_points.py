"""The 1000 points: whatever is done to them, they stay 1000."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from queues import points as thousand

NODES = st.lists(st.sampled_from([f"n{n}" for n in range(12)]), min_size=1, max_size=12, unique=True)
SPLITS = st.tuples(NODES, st.randoms(use_true_random=False)).map(
    lambda pair: thousand.share(pair[0], {node: pair[1].randint(1, 99) for node in pair[0]})
)


@given(NODES)
def test_equal_shares_differ_by_one_point_at_most(nodes):
    points = thousand.share(nodes)
    assert sum(points.values()) == 1000
    assert max(points.values()) - min(points.values()) <= 1


def test_three_nodes_share_as_the_house_shows_it():
    assert thousand.share(["n1", "n2", "n3"]) == {"n1": 334, "n2": 333, "n3": 333}


@given(SPLITS, st.data())
def test_a_move_keeps_the_sum_and_an_emptied_source_is_gone(points, data):
    source = data.draw(st.sampled_from(sorted(points)))
    target = data.draw(st.sampled_from([name for name in [*points, "new"] if name != source]))
    amount = data.draw(st.integers(1, points[source]))
    after = thousand.check_points(thousand.move(points, source, target, amount))
    assert after[target] == points.get(target, 0) + amount
    assert after.get(source, 0) == points[source] - amount


@given(SPLITS, st.data())
def test_a_node_that_comes_back_gets_its_points_from_all_others(points, data):
    most = sum(value - 1 for value in points.values())
    if not most:
        return
    amount = data.draw(st.integers(1, most))
    restored = thousand.check_points(thousand.restore(points, "back", amount))
    assert restored["back"] == amount
    assert all(1 <= restored[name] <= points[name] for name in points)


def test_a_split_gives_half_to_the_new_node():
    assert thousand.split({"a": 667, "b": 333}, "a", "c") == {"a": 334, "b": 333, "c": 333}


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: thousand.check_points({"a": 999}), "points"),
        (lambda: thousand.check_points({"a": 1000, "b": 0}), "points.b"),
        (lambda: thousand.check_points({"a": 1000.0}), "points.a"),
        (lambda: thousand.check_points({}), "points"),
        (lambda: thousand.share([]), "nodes"),
        (lambda: thousand.share(["a", "a"]), "nodes"),
        (lambda: thousand.share(["a"], {"a": float("nan")}), "weights"),
        (lambda: thousand.move({"a": 1000}, "b", "a", 1), "from"),
        (lambda: thousand.move({"a": 1000}, "a", "a", 1), "to"),
        (lambda: thousand.move({"a": 1000}, "a", "b", 1001), "points"),
        (lambda: thousand.move({"a": 1000}, "a", "b", True), "points"),
        (lambda: thousand.split({"a": 999, "b": 1}, "b", "c"), "from"),
        (lambda: thousand.split({"a": 999, "b": 1}, "a", "b"), "to"),
        (lambda: thousand.restore({"a": 1000}, "b", 1000), "points"),
    ],
)
def test_what_would_break_the_thousand_is_refused_by_name(call, field):
    with pytest.raises(BadInput) as caught:
        call()
    assert caught.value.field == field
