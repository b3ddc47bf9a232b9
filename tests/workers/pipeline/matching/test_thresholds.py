"""SEQ(A; B) that compares a number of B with a number of A: the numbers of open attempts stay between batches."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from tests.workers.pipeline.matching.test_step_matchers import match_by_automaton
from workers.pipeline.matching import attempt_lists, open_attempts, threshold
from workers.pipeline.matching.cross_once import CrossOnceMatcher
from workers.pipeline.matching.matcher import Matcher, create_raw_matcher
from workers.pipeline.matching.open_attempts import AttemptTable
from workers.pipeline.matching.retained import concatenate
from workers.pipeline.matching.threshold_once import ThresholdOnceMatcher
from workers.pipeline.patterns.pattern import Pattern

INFINITY = float("inf")
CONDITIONS = [
    "value > A.value",
    "value >= A.value",
    'type == "B" and value <= 2 * A.value',
    'type == "B" and 2 * A.value - 1 < value',
]
DEFINITIONS = st.fixed_dictionaries({"A": st.sampled_from(["true", 'type == "A"']), "B": st.sampled_from(CONDITIONS)})
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from("ABC"),
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, None, INFINITY, -INFINITY]),
        st.sampled_from("wxyz"),
    ),
    max_size=80,
)
SPIKES = pattern_of("SEQ(A; B)", {"B": 'type == "B" and value > 10 * A.value'}, within_us=100)


def find_ids(pattern: Pattern, events: list[tuple[Any, ...]], cuts: list[int], resumed: set[int]) -> list[list[str]]:
    """Match batch by batch. resumed: numbers of the batches after which a matcher continues from the saved state."""
    rows, matcher, parts = rows_of(events), Matcher(pattern), []
    for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, rows.num_rows])):
        parts.append(matcher.take(rows.slice(start, end - start)))
        if end < rows.num_rows:
            matcher.advance(rows.column("time")[end].as_py())
            assert matcher.compute_timers() == find_oldest(matcher, pattern)
        if number in resumed:
            matcher = Matcher.resume(pattern, matcher.save())
    return sorted(concatenate(parts).get_event_ids())


def find_oldest(matcher: Matcher, pattern: Pattern) -> dict[int, int]:
    """Return the timers, computed from the saved state."""
    rows = Matcher.resume(pattern, matcher.save()).open_attempts
    assert rows is not None
    timers: dict[int, int] = {}
    for attempt in rows.list_open()[::-1]:
        timers[int(rows.keys.groups.values[rows.get_keys(attempt)])] = (
            int(rows.get_first(attempt)) + pattern.within_us + 1
        )
    return timers


@pytest.mark.parametrize(("min_keys", "min_gaps"), [(1, 10**6), (2, 3), (threshold.MIN_KEYS, 0)])
@settings(deadline=None, max_examples=80)
@given(
    DEFINITIONS,
    st.sampled_from([3, 8, 200]),
    EVENTS,
    st.lists(st.integers(0, 80), max_size=12),
    st.sets(st.integers(0, 9)),
)
def test_attempts_that_stay_open_are_served_as_by_the_automaton(
    min_keys, min_gaps, define, within_us, events, cuts, resumed
):
    events.sort(key=lambda event: event[0])
    pattern = pattern_of("SEQ(A; B)", define, within_us=within_us)
    assert isinstance(create_raw_matcher(pattern), ThresholdOnceMatcher)
    cuts = sorted({cut for cut in cuts if 0 < cut < len(events)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threshold, "MIN_KEYS", min_keys)
        patch.setattr(open_attempts, "MIN_GAPS", min_gaps)
        patch.setattr(attempt_lists, "MIN_PLACES", 0)
        found = find_ids(pattern, events, cuts, resumed)
    assert found == sorted(match_by_automaton(pattern, events).get_event_ids())


def test_a_batch_reads_only_the_attempts_that_its_events_take(monkeypatch):
    matcher = Matcher(SPIKES)
    matcher.take(rows_of([(at, "A", float(at % 5 + 1), "x") for at in range(50)]))
    monkeypatch.setattr(AttemptTable, "list_open", lambda self: pytest.fail("all attempts were listed"))
    monkeypatch.setattr(AttemptTable, "read", lambda self, keys: pytest.fail("all attempts of the keys were read"))
    found = matcher.take(
        rows_of([(60, "B", 25.0, "x"), (61, "A", 1.0, "x"), (62, "B", 11.0, "x"), (63, "B", 1.0, "x")])
    )
    assert found.events.column("time").to_pylist() == [0, 60, 5, 62]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.set_column(3, "value", pa.nulls(rows.num_rows)),
        lambda rows: rows.set_column(3, "value", pa.array([7] * rows.num_rows)),
    ],
    ids=["no values", "whole numbers"],
)
def test_attempts_stay_the_same_over_a_batch_that_is_compared_otherwise(change, monkeypatch):
    rows = rows_of(
        [(0, "A", 3.0, "x"), (1, "A", 1.0, "y"), (2, "A", 1.0, "x"), (3, "B", 20.0, "x"), (4, "B", 40.0, "x")]
    )
    matcher, calls = Matcher(SPIKES), []
    process = CrossOnceMatcher.take_relevant
    monkeypatch.setattr(
        CrossOnceMatcher, "take_relevant", lambda self, *batch: calls.append(1) or process(self, *batch)
    )
    parts = [matcher.take(rows.slice(0, 1)), matcher.take(change(rows.slice(1, 1)))]
    assert len(calls) == 1
    parts += [matcher.take(rows.slice(2, 1)), matcher.take(rows.slice(3, 1)), matcher.take(rows.slice(4, 1))]
    assert concatenate(parts).get_event_ids() == [["e0002", "e0003"], ["e0000", "e0004"]]


def test_an_attempt_that_expires_in_the_batch_that_opens_it_is_never_found():
    matcher = Matcher(SPIKES)
    matcher.take(rows_of([(0, "A", 1.0, "x"), (200, "A", 3.0, "x")]))
    assert not len(matcher.take(rows_of([(201, "B", 20.0, "x")])))
    assert len(matcher.take(rows_of([(202, "B", 40.0, "x")]))) == 1


def test_a_key_group_whose_oldest_attempt_is_new_has_its_own_timer():
    events = [*((at, "A", 5.0, "x") for at in range(3000)), (3000, "A", 5.0, "y")]
    pattern = pattern_of("SEQ(A; B)", {"B": 'type == "B" and value > 10 * A.value'}, within_us=10**6)
    matcher = Matcher(pattern)
    matcher.take(rows_of(events))
    assert matcher.compute_timers() == {ord("x") % 4: 10**6 + 1, ord("y") % 4: 10**6 + 3001}
    matcher.take(rows_of([(3001, "B", 60.0, "y"), (3002, "A", 5.0, "y")]))
    assert matcher.compute_timers() == {ord("x") % 4: 10**6 + 1, ord("y") % 4: 10**6 + 3003}


def test_the_memory_of_attempts_does_not_grow_while_they_end_as_fast_as_others_open():
    matcher, sizes = Matcher(SPIKES), []
    for start in range(0, 3000, 50):
        matcher.take(rows_of([(start + at, "A", 5.0, "wxyz"[at % 4]) for at in range(50)]))
        matcher.advance(start + 50)
        assert matcher.open_attempts is not None
        sizes.append(matcher.open_attempts.lists.nbytes)
    assert max(sizes[30:]) <= 2 * max(sizes[:10])
    assert np.all(np.array(sizes) > 0)
