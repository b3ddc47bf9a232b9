"""The quick matchers against the reference, and against the one that goes event by event; however the events are cut
into batches, and the state is put away in between.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.stored_document import decode_document
from tests.workers.pipeline.matching.patterns import GROUPS, match_all, pattern_of, rows_of
from tests.workers.pipeline.matching.reference import Event, Reference
from workers.documents.pipeline import MatchAttributes
from workers.pipeline.matching.complex_event import build_complex_events
from workers.pipeline.matching.interpreted import AutomatonMatcher
from workers.pipeline.matching.matcher import RETAINED_US, Matcher, compute_masks, create_raw_matcher
from workers.pipeline.matching.retained import concatenate
from workers.pipeline.patterns.pattern import Pattern

EVENT = st.tuples(st.integers(0, 40), st.sampled_from("ABC"), st.integers(0, 3), st.sampled_from("xyz"))
EVENTS = st.lists(EVENT, max_size=60)
SEQUENCES = [
    ("SEQ(A; B)", {}, 10),
    ("SEQ(A; B; C)", {}, 15),
    ("SEQ(A; B; C)", {}, 0),
    ("SEQ(A; B; A)", {}, 12),
    ("SEQ(A; A; A)", {}, 25),
    ("SEQ(C)", {}, 10),
    ("SEQ(C; A; B; C)", {}, 30),
    ("SEQ(low; high; B)", {"low": "value < 2", "high": "value >= 1 and type != 'C'"}, 10),
    ("SEQ(any; B)", {"any": "true"}, 10**9),
]
PATTERNS = st.builds(
    lambda chosen, more: pattern_of(chosen[0], chosen[1], chosen[2], **more),
    st.sampled_from(SEQUENCES),
    st.sampled_from(
        [{"consume": "once"}, {"consume": "skip-past-last"}, {"consume": "skip-past-last", "contiguity": "strict"}]
    ),
)
DEFINE = {"low": "value < 2", "high": "value > 2"}
GUARDED = st.builds(
    lambda text, define, consume: pattern_of(text, define, 15, consume=consume),
    st.sampled_from(["SEQ(low; NOT high; B)", "SEQ(B; NOT low; high; C)", "SEQ(low; NOT B; high; NOT A; C)"]),
    st.just(DEFINE),
    st.sampled_from(["once", "skip-past-last"]),
) | st.builds(
    lambda text, consume: pattern_of(text, {}, 15, consume=consume),
    st.sampled_from(
        [
            "SEQ(A; NOT C; B)",
            "SEQ(A; NOT C; B; C)",
            "SEQ(A; NOT B; A; NOT A; C)",
            "OR(A, C)",
            "SEQ(A{2}; SEQ(OR(B, C); NOT B); A)",
            "SEQ(A; NOT C; B){2}",
        ]
    ),
    st.sampled_from(["once", "skip-past-last"]),
)
OTHERS = [
    ("SEQ(A; B+; C)", {}),
    ("SEQ(A; NOT C; B)", {}),
    ("SEQ(A; B; NOT C)", {}),
    ("SEQ(A; B*)", {}),
    ("AND(A, B)", {}),
    ("AND(A, A, low)", {"low": "value < 2"}),
    ("AND(A, SEQ(A; B))", {}),
    ("OR(SEQ(A; B), C)", {}),
    ("SEQ(A{2,3}?; AND(B, C))", {}),
    ("SEQ(A; rise; C)", {"rise": "value > prev(value)"}),
]
ANY_PATTERN = (
    PATTERNS
    | GUARDED
    | st.builds(
        lambda chosen, consume, contiguity, suppression_us: pattern_of(
            *chosen, 12, consume=consume, contiguity=contiguity, suppression_us=suppression_us
        ),
        st.sampled_from(OTHERS),
        st.sampled_from(["once", "skip-past-last"]),
        st.sampled_from(["relaxed", "strict"]),
        st.sampled_from([0, 5]),
    )
)


CONJUNCTIONS = st.sampled_from(
    [
        pattern_of("AND(A, B)"),
        pattern_of("AND(A, B, C)", within_us=20),
        pattern_of("AND(A{2}, B)", within_us=15),
        pattern_of("AND(low, A, B)", {"low": "value < 2"}),
        pattern_of("AND(low, A, low, high)", {"low": "value < 2", "high": "value > 0"}, within_us=30),
    ]
)


def by_reference(pattern: Pattern, rows) -> list[list[str]]:
    """What the reference finds, key after key."""
    found = []
    ids, sources, times = (rows.column(name).to_pylist() for name in ("id", "source", "time"))
    asked = zip(sources, times, compute_masks(pattern, rows), strict=True)
    held = [
        (source, time_us, frozenset(name for name, bit in pattern.bits.items() if mask & bit))
        for source, time_us, mask in asked
    ]
    for source in sorted(set(sources)):
        events = [Event(place, *of) for place, (key, *of) in enumerate(held) if key == source]
        reference = Reference(pattern.expression.root, pattern.is_relaxed, pattern.within_us)
        found += reference.once(events) if pattern.consume == "once" else reference.skipping_past_last(events)
    return [[ids[place] for place in match] for match in found]


@settings(deadline=None, max_examples=200)
@given(
    st.tuples(ANY_PATTERN.filter(lambda pattern: "rise" not in pattern.bits), EVENTS)
    | st.tuples(CONJUNCTIONS, st.lists(EVENT, max_size=25))
)
def test_matches_are_those_of_the_reference_that_goes_by_positions(searched):
    pattern, rows = searched[0], rows_of(searched[1])
    key_of = dict(zip(rows.column("id").to_pylist(), rows.column("source").to_pylist(), strict=True))
    assert sorted(match_all(pattern, rows).get_event_ids(), key=lambda ids: key_of[ids[0]]) == by_reference(
        pattern, rows
    )


@settings(deadline=None, max_examples=150)
@given(PATTERNS | GUARDED, EVENTS)
def test_whole_batches_and_event_by_event_find_the_same(pattern, events):
    assert not isinstance(create_raw_matcher(pattern), AutomatonMatcher)
    rows = rows_of(events)
    finder = AutomatonMatcher(pattern)
    one_by_one = concatenate([finder.take(rows, compute_masks(pattern, rows)), finder.finish()])
    assert match_all(pattern, rows).get_event_ids() == one_by_one.get_event_ids()


@pytest.mark.thorough
@settings(deadline=None, max_examples=200)
@given(ANY_PATTERN, EVENTS, st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=5))
def test_however_events_are_cut_and_state_is_put_away_the_matches_are_the_same(pattern, events, cuts):
    rows = rows_of(events)
    matcher, found, at = Matcher(pattern), [], 0
    for cut, puts_away in sorted(cuts):
        cut = min(cut, rows.num_rows)
        found.append(matcher.take(rows.slice(at, cut - at)))
        at = cut
        if at < rows.num_rows:
            found.append(matcher.advance(rows.column("time")[at].as_py()))
        if puts_away:
            saved = matcher.save()
            assert set(saved) <= set(range(GROUPS))
            matcher = Matcher.resume(pattern, saved)
    found += [matcher.take(rows.slice(at)), matcher.finish()]
    cut_up, whole = concatenate(found), match_all(pattern, rows)
    assert cut_up.get_event_ids() == whole.get_event_ids()
    assert list(cut_up.list_emitted()) == list(whole.list_emitted())


@pytest.mark.parametrize("consume", ["once", "skip-past-last"])
@pytest.mark.parametrize("text", ["SEQ(A; B; C)", "SEQ(A; B+; C)", "AND(A, B)"])
def test_what_time_has_closed_leaves_no_state_and_it_says_when_that_is(text, consume):
    matcher = Matcher(pattern_of(text, consume=consume))
    matcher.take(rows_of([(0, "A", 0, "x"), (1, "A", 0, "y")]))
    x, y = ord("x") % GROUPS, ord("y") % GROUPS
    assert matcher.compute_timers() == {x: 11, y: 12}
    matcher.advance(10)
    assert set(matcher.save()) == {x, y}
    matcher.advance(11)
    assert set(matcher.save()) == set(matcher.compute_timers()) == {y}
    matcher.advance(12)
    assert matcher.save() == matcher.compute_timers() == {}


def test_the_suppression_interval_and_the_event_before_are_let_go_in_time():
    matcher = Matcher(pattern_of("up", {"up": "value > prev(value)"}, suppression_us=5))
    matcher.take(rows_of([(0, "A", 0, "x"), (1, "A", 1, "x")]))
    x = ord("x") % GROUPS
    assert matcher.compute_timers() == {x: 16}  # what is found late, by 10 at most, is still to be held back
    matcher.advance(16)
    assert matcher.compute_timers() == {x: RETAINED_US + 2}
    matcher.advance(RETAINED_US + 2)
    assert matcher.save() == {}


def test_long_times_and_many_keys_do_not_mix_up_what_has_expired():
    far_us = 2**61
    events = [(0, "A", 0, "x"), (far_us, "A", 0, "x"), (far_us + 5, "B", 0, "x"), (far_us + 6, "B", 0, "y")]
    assert match_all(pattern_of("SEQ(A; B)"), rows_of(events)).get_event_ids() == [["e0001", "e0002"]]


def test_a_match_that_is_found_when_its_time_is_over_is_still_suppressed():
    pattern = pattern_of("SEQ(A; B*)", within_us=12, suppression_us=5)
    rows = rows_of([(0, "A", 0, "x"), (1, "A", 0, "x"), (13, "A", 0, "x")])
    matcher = Matcher(pattern)
    found = [matcher.take(rows.slice(0, 2)), matcher.advance(13), matcher.take(rows.slice(2)), matcher.finish()]
    assert [[event[0] for event in events] for _, events in concatenate(found).list_emitted()] == [[0], [13]]


def test_matches_in_the_suppression_interval_are_marked_and_the_first_after_it_is_not():
    pattern = pattern_of("SEQ(A)", suppression_us=10)
    matches = match_all(pattern, rows_of([(time, "A", 0, "x") for time in (0, 5, 9, 10, 15)]))
    assert matches.suppressed.tolist() == [False, True, True, False, True]


NAMED_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2**50),
        st.sampled_from("AB"),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.characters(codec="utf-8"),
    ),
    max_size=20,
)


@given(NAMED_EVENTS, st.integers(0, 50))
def test_a_complex_event_lists_its_contributing_events_as_they_were(events, suppression_us):
    pattern = pattern_of("SEQ(A; B)", within_us=2**50, suppression_us=suppression_us, emits="ab")
    matches = match_all(pattern, rows_of(events))
    made = build_complex_events(pattern, matches, "ab:run.1:0").to_pylist()
    emitted = list(matches.list_emitted())
    assert [event["source"] for event in made] == [key for key, _ in emitted]
    assert len({event["id"] for event in made}) == len(made)
    for event, (_, taken) in zip(made, emitted, strict=True):
        said = decode_document(MatchAttributes, event["attributes"], "attributes")
        names = ("time_us", "id", "type", "value", "source")
        assert [tuple(getattr(each, name) for name in names) for each in said.events] == taken
        assert (said.pattern, said.severity) == (pattern.name, "warning")
        assert said.first_time == taken[0][0] / 1e6
        assert (event["type"], event["value"]) == ("ab", taken[-1][3])
