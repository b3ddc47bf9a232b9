"""Events without a partner are not searched, whatever matcher it is and however events are cut into batches:
against the reference that goes by positions and knows nothing of partners.
"""

import itertools
import random
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from common.errors import BadInput
from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from tests.workers.pipeline.matching.test_matchers import ANY_PATTERN, CONJUNCTIONS, EVENTS
from tests.workers.pipeline.matching.test_random_matches import FILTERED, LETTERS, documents, expected, satisfied
from workers.pipeline.matching import matcher as searching
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import concatenate
from workers.pipeline.patterns.pattern import check_states

USERS, MAX_EVENTS, SECOND_US = "abcdef", 30, 1_000_000
Document = dict[str, Any]


def keyed(document: Document, chance: random.Random) -> Document:
    """Its pattern, over events of several keys, of which some types are rare."""
    times = itertools.accumulate(chance.choice((0, 0, 1, 1, 3)) for _ in range(chance.randint(1, MAX_EVENTS)))
    weights = [chance.choice((1, 1, 4)) for _ in LETTERS] + [1]
    events = [
        {
            "id": f"e{place}",
            "time": float(seconds),
            "type": chance.choices(LETTERS + "X", weights)[0],
            "n": chance.choice((1, 0.5, 2, None)) if place else 1,
            "user": chance.choice(USERS),
        }
        for place, seconds in enumerate(times)
    ]
    return {**document, "key": "user", "events": events}


def masks_of(document: Document, bits: dict[str, int]) -> np.ndarray:
    last: dict[str, Document] = {}
    masks = []
    for event in document["events"]:
        held = satisfied(document, event, last.get(event["user"]))
        masks.append(sum(bit for letter, bit in bits.items() if letter in held))
        last[event["user"]] = event
    return np.array(masks, np.int64)


def found_in_batches(document: Document, chance: random.Random) -> tuple[dict[str, list[list[str]]], int]:
    """(key → its matches, partnerless events), batch by batch, each by a matcher that goes on with the state
    of the one before.
    """
    pattern = pattern_of(
        document["pattern"],
        document["define"],
        document["within_seconds"] * SECOND_US,
        contiguity=document["contiguity"],
        consume=document["consume"],
    )
    check_states(pattern, "pattern")
    rows = rows_of([(round(e["time"] * SECOND_US), e["type"], 0.0, e["user"]) for e in document["events"]])
    masks, matcher, parts, partnerless = masks_of(document, pattern.bits), Matcher(pattern), [], 0
    inside = {chance.randrange(rows.num_rows + 1) for _ in range(chance.randrange(5))}
    cuts = [0, *sorted(inside), rows.num_rows]
    for start, end in itertools.pairwise(cuts):  # some of nothing
        part = rows.slice(start, end - start)
        parts.append(matcher.take(part, masks[start:end]))
        if end > start and chance.random() < 0.8:
            parts.append(matcher.advance(part.column("time")[-1].as_py()))
        partnerless += matcher.partnerless
        matcher = Matcher.resume(pattern, matcher.save())
    parts.append(matcher.finish())
    found: dict[str, list[list[str]]] = {}
    for key, events in concatenate(parts).list_emitted():
        found.setdefault(key, []).append([f"e{int(event[1][1:])}" for event in events])
    return found, partnerless


def check(document: Document, number: int) -> int:
    chance = random.Random(number)
    document = keyed(document, chance)
    try:
        # In arrays, too, whatever the share of events that may be left out.
        with patch.object(searching, "is_rare", lambda *_: True):
            found, partnerless = found_in_batches(document, chance)
    except BadInput:
        assume(False)
    assert found == expected(document), document
    return partnerless


DOCUMENTS = documents().filter(lambda each: each["contiguity"] == "relaxed")


MANY = [pytest.param(part, 1_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]) for part in range(4)]


@pytest.mark.parametrize(("begin", "count"), [(20_261_128, 100), *MANY])
def test_random_documents_of_several_keys_match_as_the_reference_has_it_without_partnerless_events(begin, count):
    left_out = []

    @seed(begin)
    @settings(deadline=None, max_examples=count, database=None, suppress_health_check=FILTERED)
    @given(DOCUMENTS, st.integers(0, 2**32))
    def some(document, number):
        left_out.append(check(document, number))

    some()
    assert any(left_out), "no event was left out"


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
