"""The matchers of sequences with conditions between steps, against the automaton."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from tests.workers.pipeline.matching.test_cross_event_state import match_in_parts
from workers.pipeline.matching import cross_once, matcher
from workers.pipeline.matching.cross_once import CrossOnceMatcher
from workers.pipeline.matching.cross_rows import CrossRows
from workers.pipeline.matching.interpreted import AutomatonMatcher
from workers.pipeline.matching.matcher import Matcher, create_raw_matcher
from workers.pipeline.matching.retained import Matches, concatenate
from workers.pipeline.patterns.pattern import Pattern

CONDITIONS = {
    "A": ["true", 'type == "A"'],
    "B": [
        "value > A.value",
        "value > 2 * A.value - prev(value)",
        'type == "B" and value != last(A.value * 2)',
        'type == "B" and not (value <= A.value)',
        "type != A.type",
    ],
    "C": ["value = A.value + B.value", "value > first(A.value)", 'type == "C"'],
    "X": ['type == "C"'],
}
MEASURES = {"rise": "B.value - A.value", "last": "value", "first": "first(type)", "before": "prev(value)"}


@st.composite
def patterns(draw: st.DrawFn, **more: str) -> Pattern:
    text = draw(st.sampled_from(["SEQ(A; B)", "SEQ(A; B; C)", "SEQ(A; NOT X; B)", "SEQ(A; B; NOT X; C)"]))
    define = {symbol: draw(st.sampled_from(texts)) for symbol, texts in CONDITIONS.items() if symbol in text}
    names = draw(st.sets(st.sampled_from(sorted(MEASURES))))
    measures = {name: MEASURES[name] for name in sorted(names)}
    within_us = draw(st.sampled_from([3, 8, 100]))
    return pattern_of(text, define, within_us=within_us, measures=measures, emits="found", **more)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from("ABC"),
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, None]),
        st.sampled_from("xyz"),
    ),
    max_size=30,
)
CUTS = st.lists(st.integers(0, 30), max_size=3).map(sorted)


def tell(matches: Matches) -> list[tuple[Any, ...]]:
    parts = [matches.get_event_ids(), matches.measures, matches.explanations]
    return sorted(zip(*([str(item) for item in part] or [""] * len(matches) for part in parts), strict=True))


def match_by_automaton(pattern: Pattern, events: list[tuple[Any, ...]]) -> Matches:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matcher, "create_raw_matcher", AutomatonMatcher)
        interpreted = Matcher(pattern)
    return concatenate([interpreted.take(rows_of(events)), interpreted.finish()])


def check(pattern: Pattern, events: list[tuple[Any, ...]], cuts: list[int]) -> None:
    cuts = [cut for cut in cuts if cut <= len(events)]
    expected = tell(match_by_automaton(pattern, events))
    assert tell(match_in_parts(pattern, events, [])) == expected
    assert tell(match_in_parts(pattern, events, cuts)) == expected


@pytest.mark.parametrize("contiguity", ["relaxed", "strict"])
@settings(deadline=None, max_examples=60)
@given(st.data(), EVENTS, CUTS)
def test_rows_are_matched_as_by_the_automaton_in_any_batches(contiguity, data, events, cuts):
    pattern = data.draw(patterns(consume="skip-past-last", contiguity=contiguity))
    if pattern.bindings:
        assert isinstance(create_raw_matcher(pattern), CrossRows)
    check(pattern, events, cuts)


@pytest.mark.parametrize("least_keys", [1, 2, cross_once.MIN_KEYS])
@settings(deadline=None, max_examples=60)
@given(patterns(), EVENTS, CUTS)
def test_open_attempts_are_served_as_by_the_automaton_in_any_batches(least_keys, pattern, events, cuts):
    if pattern.bindings:
        assert isinstance(create_raw_matcher(pattern), CrossOnceMatcher)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_once, "MIN_KEYS", least_keys)
        check(pattern, events, cuts)


@pytest.mark.parametrize(
    ("pattern", "define"),
    [
        ("SEQ(A; B+; C)", {"C": "value > B.value"}),
        ("SEQ(A; B; A)", {"B": "value > A.value"}),
        ("SEQ(A; OR(B, C))", {"B": "value > A.value"}),
        ("SEQ(A; B)", {"B": "value > last(A.value, 1)"}),
        ("SEQ(A; B)", {"B": "value > sum(A.value)"}),
        ("SEQ(A; B)", {"A": "value > count(B)"}),
        ("SEQ(A; NOT X; B)", {"X": "value > A.value"}),
        ("AND(A, B)", {"B": "value > A.value"}),
    ],
)
def test_any_other_condition_between_events_is_left_to_the_automaton(pattern, define):
    for consume in ("once", "skip-past-last"):
        assert isinstance(create_raw_matcher(pattern_of(pattern, define, consume=consume)), AutomatonMatcher)


@pytest.mark.parametrize("consume", ["once", "skip-past-last"])
def test_values_of_open_matches_survive_a_batch_without_any(consume):
    """A batch in which no event has an attribute has a column without a type."""
    pattern = pattern_of("SEQ(A; B)", {"B": 'type == "B" and amount - prev(amount) >= 2 * A.amount'}, consume=consume)
    rows = rows_of([(1, "A", 1.0, "x"), (2, "C", 1.0, "x"), (3, "A", 1.0, "y"), (4, "B", 1.0, "x")])
    rows = rows.append_column("amount", pa.array([2.0, 1.0, None, 5.0]))
    found, matcher_ = [], Matcher(pattern)
    for place in range(rows.num_rows):
        row = rows.slice(place, 1)
        if place == 2:
            row = row.set_column(row.num_columns - 1, "amount", pa.nulls(1))
        found.append(matcher_.take(row))
        matcher_ = Matcher.resume(pattern, matcher_.save())
    assert concatenate(found).get_event_ids() == [["e0000", "e0003"]]


def test_events_of_one_key_are_matched_one_by_one_beside_many_keys():
    """A round with few keys is left to single events; both continue the same attempts."""
    keys = [chr(ord("a") + number) for number in range(26)]
    events = [(at, "A", float(at % 7), key) for at, key in itertools.product(range(3), keys)]
    events += [(at, "A", float(at % 11), "q") for at in range(3, 60)]
    pattern = pattern_of("SEQ(A; B)", {"A": "true", "B": "value > 2 * A.value"}, within_us=20)
    check(pattern, sorted(events), [30, 90])
