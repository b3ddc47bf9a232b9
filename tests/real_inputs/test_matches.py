"""Patterns on which other engines went wrong, by their own bug reports: Flink, Trino and Siddhi."""

from typing import Any

import pytest

from workers.pipeline.matching.match_request import answer


def matches(pattern: str, events: str, **more: Any) -> str:
    """events: `A0 B5` is an A at 0 s and a B at 5 s; their ids are the same words."""
    rows = [{"id": word, "time": float(word[1:]), "type": word[0]} for word in events.split()]
    found = answer({"pattern": pattern, "within_seconds": 100, "key": None, "events": rows, **more})["matches"]
    return ", ".join(" ".join(ids) for ids in found)


ROWS = {"consume": "skip-past-last"}
STRICT_ROWS = {**ROWS, "contiguity": "strict"}


@pytest.mark.parametrize(
    ("events", "found"),
    [
        *(("A0 B5", ""), ("A0 B10", ""), ("A0 B11", "A0"), ("A0", "A0"), ("A0 A1 B5", ""), ("A0 C5", "A0")),
        ("A0 B5 A20", "A20"),
    ],
)
def test_what_is_not_to_follow_is_waited_for_to_the_end_of_the_window(events, found):
    assert matches("SEQ(A; NOT B)", events, within_seconds=10) == found


OPTIONAL = ("SEQ(SEQ(E?){2,3}; Y)", {"define": {"Y": "true", "E": "true"}, **STRICT_ROWS})
COUNTS = ("SEQ(A{2}; B{2,})", {"within_seconds": 3})
FAILED_TRY = ("SEQ(X; C)", {"define": {"X": "type == 'A' or type == 'B'"}, **STRICT_ROWS})
ENDS_LATE = ("SEQ(A; NOT B)", {"within_seconds": 10, **ROWS})


@pytest.mark.parametrize(
    ("asked", "events", "found"),
    [
        (ENDS_LATE, "A0 A8 B12 C40", "A0"),  # it skips only what it took
        (ENDS_LATE, "A0 A8 C40", "A0, A8"),
        (ENDS_LATE, "A0 A8 B9 C40", ""),
        (OPTIONAL, "A1 A2 A3 A4 A5 A6", "A1 A2 A3 A4, A5 A6"),  # as many as it may, and none where it must
        (OPTIONAL, "A1 A2 A3 A4", "A1 A2 A3 A4"),
        (OPTIONAL, "A1", "A1"),
        (COUNTS, "A0 A1 B2 B3 A20 A21 B22 B23", "A0 A1 B2 B3, A20 A21 B22 B23"),
        (COUNTS, "A0 B2 B3 A20 A21 B22 B23", "A20 A21 B22 B23"),
        (COUNTS, "A0 A1 B2 A20 A21 B22 B23", "A20 A21 B22 B23"),
        (FAILED_TRY, "A0 B1 C2", "B1 C2"),  # a match may start within a try that failed
        (FAILED_TRY, "A0 A1 B2 C3", "B2 C3"),
        (FAILED_TRY, "A0 B1 A2 B3 C4 A5 C6", "B3 C4, A5 C6"),
    ],
)
def test_a_pattern_that_others_got_wrong_is_matched(asked, events, found):
    pattern, more = asked
    assert matches(pattern, events, **more) == found
