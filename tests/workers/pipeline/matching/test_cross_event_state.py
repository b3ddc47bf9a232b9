"""Conditions between events in a stream: any cut into batches, with saved and resumed state, changes nothing."""

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.pipeline.matching.patterns import match_all, pattern_of, rows_of
from workers.pipeline.matching.complex_event import build_complex_events
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import Matches, concatenate
from workers.pipeline.patterns.bindings import read_values, write_values
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.shedding import is_sheddable

ROWS = {"consume": "skip-past-last"}
STRICT_ROWS = {**ROWS, "contiguity": "strict"}
MEASURES = {"last": "value", "total": "sum(value)", "of": "first(type)", "at": "last(A.time) - first(A.time)"}
PATTERNS = [
    pattern_of("SEQ(A; B)", {"B": 'type == "B" and value > 2 * A.value'}, measures=MEASURES),
    pattern_of("SEQ(A; B)", {"A": "true", "B": "value > 2 * A.value"}, measures=MEASURES),
    pattern_of("SEQ(A; B; C)", {"B": 'type == "B" and value >= A.value', "C": "value < B.value - A.value"}, **ROWS),
    pattern_of("SEQ(A; NOT C; B)", {"C": 'type == "C" and value > A.value'}, measures=MEASURES),
    pattern_of("SEQ(A; B+; C)", {"B": 'type == "B" and value > avg(A.value)', "C": "sum(B.value) > 5"}, **ROWS),
    pattern_of("SEQ(A+; B)", {"A": "count(A) = 1 or value > last(A.value, 1)", "B": "true"}, **STRICT_ROWS),
    pattern_of("SEQ(OR(A, B)*; C)", {"A": "true", "B": "true", "C": "sum(A.value) = sum(B.value)"}, **STRICT_ROWS),
    pattern_of("AND(A, B)", {"B": 'type == "B" and (value > A.value or count(A) = 0)'}, measures=MEASURES),
    pattern_of("SEQ(A; B)", {"B": "value - prev(value) > A.value"}, measures={"prev": "prev(value)"}),
    pattern_of("SEQ(A{1,2}; NOT B)", {"B": "value > max(A.value)"}, measures=MEASURES),
]
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from("ABC"),
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, None, float("inf")]),
        st.sampled_from("xy"),
    ),
    max_size=16,
)


def tell(matches: Matches) -> list[tuple[Any, ...]]:
    return [*zip(matches.get_event_ids(), matches.measures or itertools.repeat(None), strict=False)]


def match_in_parts(pattern: Pattern, events: list[tuple[Any, ...]], cuts: list[int]) -> Matches:
    """Match batch by batch; between two batches the state is written and read again."""
    rows, states, found = rows_of(events), dict[int, bytes](), []
    for start, end in itertools.pairwise([0, *cuts, rows.num_rows]):
        matcher = Matcher.resume(pattern, states)
        found.append(matcher.take(rows.slice(start, end - start)))
        if end < rows.num_rows:
            found.append(matcher.advance(rows.column("time")[end].as_py()))
        states = matcher.save()
    return concatenate([*found, Matcher.resume(pattern, states).finish()])


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: f"{pattern.consume} {pattern.expression.root}"[:60])
@settings(deadline=None, max_examples=25)
@given(EVENTS, st.data())
def test_any_cut_into_batches_gives_the_matches_and_measures_of_the_whole(pattern, events, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    whole, parts = match_all(pattern, rows_of(events)), match_in_parts(pattern, events, cuts)
    assert sorted(map(repr, tell(parts))) == sorted(map(repr, tell(whole)))


@given(st.lists(st.one_of(st.none(), st.text(), st.booleans(), st.integers(), st.floats(allow_nan=False))))
def test_values_of_bound_events_are_written_and_read_exactly(values):
    written = orjson.loads(orjson.dumps(write_values([*values, tuple(values)])))
    assert read_values(written) == (*values, tuple(values))


def test_the_state_of_a_long_repetition_has_the_same_size_as_that_of_a_short_one():
    pattern = pattern_of(
        "SEQ(A; {- B* -}; C)", {"B": "value < avg(B.value) + 1", "C": "value > max(B.value)"}, within_us=10**6
    )
    sizes = []
    for length in (10, 200):
        matcher = Matcher(pattern)
        matcher.take(rows_of([(0, "A", 1.0, "x"), *((at, "B", 1.0, "x") for at in range(1, length))]))
        sizes.append(sum(map(len, matcher.save().values())))
    assert sizes[1] <= sizes[0] + 10


def test_a_complex_event_has_its_measures_and_the_values_that_made_its_conditions_true():
    pattern = pattern_of(
        "SEQ(A; B)",
        {"B": 'type == "B" and value > 10 * A.value'},
        measures={"ratio": "B.value / A.value"},
        emits="spike",
    )
    rows = rows_of([(1, "A", 93.0, "x"), (2, "B", 940.0, "x"), (3, "A", 0.0, "y"), (4, "B", 1.0, "y")])
    made = build_complex_events(pattern, match_all(pattern, rows), "p:1").to_pylist()
    first, second = (json.loads(event["attributes"]) for event in made)
    assert (first["ratio"], first["conditions"]) == (940 / 93, ["B.value 940 > 10 × A.value 93"])
    assert (second["ratio"], [event["id"] for event in second["events"]]) == (None, ["e0002", "e0003"])


@pytest.mark.parametrize(
    ("pattern", "condition", "sheddable"),
    [
        ("SEQ(A; B)", "value > A.value", True),
        ("SEQ(A; OR(B, C))", "value > 2 * avg(A.value)", True),
        ("SEQ(A; B)", "count(A) = 1", False),
        ("SEQ(A+; B)", "value > A.value", False),
        ("SEQ(A; A; B)", "value > A.value", False),
        ("SEQ(A; B)", "sum(value) > 3", False),
        ("SEQ(A; B)", "value > A.value + prev(value)", False),
    ],
)
def test_a_pattern_is_shed_only_if_fewer_events_can_make_no_condition_true(pattern, condition, sheddable):
    assert is_sheddable(pattern_of(pattern, {"B": condition})) is sheddable
