"""The arrays of open attempts, compared with Python lists and dictionaries."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from workers.pipeline.matching import key_table, open_attempts
from workers.pipeline.matching.attempt_lists import AttemptLists, compute_rooms
from workers.pipeline.matching.key_table import KeyTable
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.minimum_forest import FANOUT, MinimumForest, compute_tree_sizes
from workers.pipeline.matching.number_lists import NumberLists
from workers.pipeline.matching.retained import GroupParts
from workers.pipeline.matching.row_pool import GrowingArray, RowPool


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=3), unique=True, max_size=20), max_size=8))
def test_each_key_keeps_its_number(batches):
    table, expected = KeyTable(), dict[str, int]()
    for batch in batches:
        keys = pa.array(batch, pa.string())
        assert table.find(keys).tolist() == [expected.get(key, -1) for key in batch]
        numbers = table.add(keys, np.zeros(len(batch), np.int64)).tolist()
        for key in batch:
            expected.setdefault(key, len(expected))
        assert numbers == [expected[key] for key in batch]
        assert table.take_texts(np.array(numbers, np.int64)).to_pylist() == batch


def test_keys_with_equal_hashes_have_different_numbers(monkeypatch):
    hash_texts = key_table.hash_texts
    monkeypatch.setattr(
        key_table, "hash_texts", lambda texts, seeds: hash_texts(texts, seeds) % 7 if seeds.any() else seeds
    )
    table, keys = KeyTable(), pa.array(["a", "b", "c"])
    for number, key in enumerate("abc"):
        assert table.add(pa.array([key]), np.zeros(1, np.int64)).tolist() == [number]
    assert table.find(keys).tolist() == [0, 1, 2]


CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.booleans()), max_size=40)


@given(CHANGES)
def test_lists_grow_and_lose_their_first_numbers(changes):
    lists, expected, next_number = NumberLists(), defaultdict[int, list[int]](list), 0
    lists.add_keys(6)
    for key, count, drops in changes:
        if drops:
            count = min(count, len(expected[key]))
            lists.drop_first(np.full(count, key))
            del expected[key][:count]
        else:
            numbers = list(range(next_number, next_number + count))
            lists.append(np.full(count, key), np.array(numbers, np.int64))
            expected[key] += numbers
            next_number += count
        for other in range(6):
            assert lists.read(np.array([other]))[1].tolist() == expected[other]
            assert lists.read(np.array([other]), 2)[1].tolist() == expected[other][:2]


@given(st.lists(st.lists(st.integers(), max_size=5).filter(len), min_size=1, max_size=12), st.data())
def test_rows_are_taken_from_any_chunks(batches, data):
    pool, values = RowPool(), [value % 2**60 for batch in batches for value in batch]
    for batch in batches:
        pool.append(pa.RecordBatch.from_pydict({"value": pa.array([value % 2**60 for value in batch], pa.int64())}))
    places = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1))
    assert pool.take(np.array(places)).column("value").to_pylist() == [values[place] for place in places]


NUMBERS = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, -float("inf"), float("inf")]), max_size=80)


@settings(deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=4), st.lists(st.sampled_from([0.0, 1.5, 2.0, 9.0]), max_size=30))
def test_the_first_number_below_a_bound_is_found_and_removed(lists, bounds):
    rooms = compute_rooms(np.array([len(numbers) for numbers in lists]))
    starts = FANOUT + np.cumsum(compute_tree_sizes(rooms)) - compute_tree_sizes(rooms)
    for number_of_keys in (0, len(lists)):  # keys whose lists are searched alone
        minima = np.full(2 * FANOUT + int(compute_tree_sizes(rooms).sum()), np.inf)
        forest, left = MinimumForest(minima, starts, rooms), [list(numbers) for numbers in lists]
        half = [(key, place, value) for key, numbers in enumerate(lists) for place, value in enumerate(numbers)]
        for added in (half[::2], half[1::2]):
            if added:
                forest.add(*(np.array(part) for part in zip(*added, strict=True)))
        for number, bound in enumerate(bounds):
            key = number % len(lists)
            expected = next((place for place, value in enumerate(left[key]) if value < bound), -1)
            keys, tree = np.array([key]), forest.get_tree(key)
            found = tree.find(bound) if key < number_of_keys else forest.find(keys, np.array([bound]))[0]
            assert found == expected
            if expected >= 0:
                left[key][expected] = float("inf")
                if key < number_of_keys:
                    tree.set(expected, float("inf"))
                else:
                    forest.remove(keys, np.array([expected]))


LIST_CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 12), st.sampled_from(["reserve", "open", "end oldest", "end newest"]))
)


@settings(deadline=None)
@given(LIST_CHANGES, st.integers(0, 5))
def test_lists_keep_their_open_attempts_and_the_numbers_of_these(changes, bound):
    """Lists lose attempts when they are full, and are written again when they have too many gaps."""
    taken = GrowingArray(np.int8)
    lists, expected = AttemptLists(taken, has_minima=True), defaultdict[int, list[int]](list)
    lists.add_keys(4)
    numbers: dict[int, float] = {}
    for key, count, change in changes:
        keys = np.array([key])
        if change in ("reserve", "open"):
            (place,) = lists.reserve(keys, np.array([count])).tolist()
            opened = len(taken) + np.arange(count if change == "open" else 0)
            taken.append(np.ones(len(opened), np.int8))
            values = opened * 7 % 5 + 0.5
            own, places = np.full(len(opened), key), place + np.arange(len(opened))
            lists.assign(own, places, opened)
            lists.get_forest(keys).add(np.zeros(len(opened), np.int64), places, values)
            expected[key] += opened.tolist()
            numbers |= dict(zip(opened.tolist(), values.tolist(), strict=True))
        else:
            ended = expected[key][: count // 2] if change == "end oldest" else expected[key][count:]
            expected[key] = [attempt for attempt in expected[key] if attempt not in ended]
            taken.values[ended] = 0
            lists.leave(np.full(len(ended), key))
        for other in range(4):
            assert lists.read(np.array([other]))[1].tolist() == expected[other]
            assert lists.has_open(np.array([other])).tolist() == [bool(expected[other])]
            found = find_open(lists, taken, other, bound)
            assert found == next((attempt for attempt in expected[other] if numbers[attempt] < bound), -1)


def find_open(lists: AttemptLists, taken: GrowingArray, key: int, bound: float) -> int:
    """Return the oldest open attempt whose number is below a bound, or -1, and remove ended ones before it."""
    keys, forest = np.array([key]), lists.get_forest(np.array([key]))
    while (places := forest.find(np.array([0]), np.array([bound])))[0] >= 0:
        (attempt,) = lists.get_attempts(keys, places).tolist()
        if taken.values[attempt]:
            return attempt
        forest.remove(np.array([0]), places)
    return -1


def test_the_array_of_lists_stays_small_while_attempts_end_as_fast_as_others_open():
    taken = GrowingArray(np.int8)
    lists, keys = AttemptLists(taken, has_minima=True), np.arange(100)
    lists.add_keys(100)
    sizes = []
    for number in range(60):
        attempts = 100 * number + keys
        taken.append(np.ones(100, np.int8))
        lists.assign(keys, lists.reserve(keys, np.ones(100, np.int64)), attempts)
        if number >= 10:
            taken.values[attempts - 1000] = 0
            lists.leave(keys)
        sizes.append(lists.nbytes)
    assert sizes[-1] <= 2 * sizes[20]


@pytest.mark.parametrize("define", [{}, {"B": 'type == "B" and value >= A.value'}])
def test_gaps_are_closed_without_a_change_of_the_matches(define, monkeypatch):
    events = [(at, "AAB"[at % 7 % 3], float(at % 5), "xyz"[at % 3]) for at in range(400)]
    pattern = pattern_of("SEQ(A; B)", define, within_us=40)
    found = []
    for least in (0, 10**6):
        monkeypatch.setattr(open_attempts, "MIN_GAPS", least)
        matcher, ids = Matcher(pattern), []
        for start in range(0, 400, 7):
            ids += matcher.take(rows_of(events).slice(start, 7)).get_event_ids()
            matcher.advance(min(start + 7, 399))
        found.append(ids)
    assert found[0] == found[1] and found[0]


def test_a_source_that_is_not_the_key_is_kept():
    matcher = Matcher(pattern_of("SEQ(A; B)"))
    rows = rows_of([(0, "A", 0.0, "x"), (1, "A", 0.0, "x"), (2, "B", 0.0, "x"), (3, "B", 0.0, "x")])
    other = rows.set_column(rows.schema.get_field_index("source"), "source", pa.array(["x", "other", "x", "x"]))
    matcher.take(rows.slice(0, 1))
    matcher.take(other.slice(1, 1))
    matcher = Matcher.resume(matcher.pattern, matcher.save())
    assert matcher.take(other.slice(2)).events.column("source").to_pylist() == ["x", "x", "other", "x"]


def test_state_of_an_earlier_version_without_numbers_of_attempts_is_continued():
    pattern = pattern_of("SEQ(A; B; C)", within_us=100)
    events = [(0, "A", 0.0, "x"), (1, "A", 0.0, "x"), (2, "B", 0.0, "x"), (3, "A", 0.0, "y"), (4, "B", 0.0, "y")]
    matcher = Matcher(pattern)
    matcher.take(rows_of(events))
    states = {}
    for group, data in matcher.save().items():
        parts = GroupParts.unpack(data)
        rows = parts.rows["open"].drop_columns(["attempt"])
        parts.rows["open"] = rows.take(pa.array(np.argsort(rows.column("time").to_numpy(), kind="stable")))
        states[group] = parts.pack()
    rest = rows_of([(5, "C", 0.0, "x"), (6, "B", 0.0, "x"), (7, "C", 0.0, "x"), (8, "C", 0.0, "y")])
    found = [one.take(rest).get_event_ids() for one in (matcher, Matcher.resume(pattern, states))]
    assert found[0] == found[1] and len(found[0]) == 3
