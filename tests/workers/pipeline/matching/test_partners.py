"""Events without a partner are not searched: whatever the pattern, that changes no match and no state."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from tests.workers.pipeline.matching.test_matchers import ANY_PATTERN, CONJUNCTIONS, EVENTS
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import concatenate


class Searching(Matcher):
    def _with_partners(self, rows, masks):
        return masks


@settings(deadline=None, max_examples=150)
@given(ANY_PATTERN | CONJUNCTIONS, EVENTS, st.sets(st.integers(0, 60), max_size=6))
def test_the_same_matches_are_found_in_the_same_order_and_the_same_is_left_open(pattern, events, cuts):
    rows = rows_of(events)
    ours, other = Matcher(pattern), Searching(pattern)
    found = [], []
    places = [0, *sorted(each for each in cuts if each < rows.num_rows), rows.num_rows]
    for start, end in pairwise(places):
        part = rows.slice(start, end - start)
        for matcher, parts in zip((ours, other), found, strict=True):
            parts.append(matcher.take(part))
            if part.num_rows:
                parts.append(matcher.advance(part.column("time")[-1].as_py()))
        assert ours.save() == other.save() and ours.compute_timers() == other.compute_timers()
        ours, other = Matcher.resume(pattern, ours.save()), Searching.resume(pattern, other.save())
    found[0].append(ours.finish())
    found[1].append(other.finish())
    assert list(concatenate(found[0]).list_emitted()) == list(concatenate(found[1]).list_emitted())


@pytest.mark.parametrize("consume", ["once", "skip-past-last"])
@pytest.mark.parametrize("text", ["SEQ(A; B)", "SEQ(A; B+; C)", "SEQ(A; B; NOT C)"])
def test_what_comes_before_its_key_has_begun_is_not_searched_and_what_comes_behind_is(text, consume):
    matcher = Matcher(pattern_of(text, consume=consume))
    events = [(0, "B", 0, "x"), (1, "A", 0, "y"), (2, "B", 0, "x"), (3, "B", 0, "y"), (4, "B", 0, "z")]
    matcher.take(rows_of(events))
    assert matcher.partnerless == 3
    resumed = Matcher.resume(pattern_of(text, consume=consume), matcher.save())
    resumed.take(rows_of([(5, "A", 0, "z"), (6, "B", 0, "y"), (7, "B", 0, "z"), (8, "B", 0, "x")]))
    # What is left open of `y` is a match that may still grow, or the part of one; else it has gone.
    assert resumed.partnerless == 1 + ("C" not in text)


@pytest.mark.parametrize(
    ("text", "more"),
    [("AND(A, B)", {}), ("SEQ(A; B)", {"contiguity": "strict"}), ("SEQ(A; NOT B; C)", {}), ("SEQ(A)", {})],
)
def test_where_any_event_begins_or_counts_or_is_forbidden_all_are_searched(text, more):
    matcher = Matcher(pattern_of(text, **more))
    matcher.take(rows_of([(0, "B", 0, "x"), (1, "A", 0, "y"), (2, "B", 0, "x")]))
    assert matcher.partnerless == 0


@pytest.mark.parametrize("consume", ["once", "skip-past-last"])
def test_in_arrays_it_is_asked_only_where_little_begins_little_is_kept_and_most_keys_hold_nothing(consume):
    pattern = pattern_of("SEQ(A; B)", within_us=1_000, consume=consume)

    def partnerless(first: list[tuple], then: list[tuple]) -> int:
        matcher = Matcher(pattern)
        matcher.take(rows_of(first))
        resumed = Matcher.resume(pattern, matcher.save())
        resumed.take(rows_of(then))
        return resumed.partnerless

    ends = [(20 + place, "B", 0, chr(ord("a") + place % 8)) for place in range(40)]
    begun = [(place, "A", 0, chr(ord("a") + place)) for place in range(8)]
    assert partnerless(begun[:1], ends) == 35, "most hold nothing"
    assert partnerless(begun[:6], ends) == 0, "most keys hold something"
    assert partnerless([], sorted([*ends, *((20 + n, "A", 0, "z") for n in range(14))])) == 0, "many begin"
    assert partnerless([(0, "A", 0, "z")] * 14, ends) == 0, "much is kept"
