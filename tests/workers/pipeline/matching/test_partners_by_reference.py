"""Events without a partner are not searched, whatever matcher it is and however events are cut into batches:
against the reference that goes by positions and knows nothing of partners.
"""

import itertools
import random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from common.errors import BadInput
from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
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


def test_random_documents_of_several_keys_match_as_the_reference_has_it_without_partnerless_events():
    left_out = []

    @seed(20_261_128)
    @settings(deadline=None, max_examples=100, database=None, suppress_health_check=FILTERED)
    @given(DOCUMENTS, st.integers(0, 2**32))
    def some(document, number):
        left_out.append(check(document, number))

    some()
    assert any(left_out), "no event was left out"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
def test_four_thousand_random_documents_of_several_keys_match_as_the_reference_has_it(part):
    @seed(part)
    @settings(deadline=None, max_examples=1_000, database=None, suppress_health_check=FILTERED)
    @given(DOCUMENTS, st.integers(0, 2**32))
    def a_thousand(document, number):
        check(document, number)

    a_thousand()
