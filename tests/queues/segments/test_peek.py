"""Waiting events seen by a person: a few, in order, and nothing changes by it."""

from itertools import count

import pyarrow as pa
import pytest

from queues.events.block import BlockIds, EncodedBlock, cut, from_events
from queues.segments.peek import MAX_TEXT, peek
from queues.segments.segment import Segment


@pytest.fixture
def segment(node):
    return Segment(node, "alert")


def put(segment, names, block_events=512, **fields):
    rows = [{"id": name, "type": "t", **fields} for name in names]
    segment.publish(cut(from_events(rows, 1_000_000), BlockIds(), block_events))


def still():
    return 0.0


def ids(events):
    return [each.event["id"] for each in events]


@pytest.mark.parametrize("newest, wanted", [(False, ["e0", "e1", "e2"]), (True, ["e6", "e5", "e4"])])
def test_so_many_of_the_newest_or_the_oldest_are_shown_across_blocks(segment, newest, wanted):
    put(segment, [f"e{number}" for number in range(7)], block_events=2)
    few, more = peek(segment, 3, newest, still)
    assert ids(few) == wanted and more
    every, more = peek(segment, 100, newest, still)
    assert len(every) == 7 and not more


def test_nothing_is_claimed_or_counted_by_it(segment):
    put(segment, ["a", "b"])
    before = segment.measure()
    peek(segment, 10, True, still)
    after = segment.measure()
    assert {**after, "oldest_seconds": None} == {**before, "oldest_seconds": None}
    assert [claimed.tries for claimed in segment.claim("w", 10, 60.0)] == [1]


def test_what_costs_too_much_ends_early_and_says_so(segment):
    put(segment, [f"e{number}" for number in range(20)], block_events=1)
    ticks = count()
    found, more = peek(segment, 100, True, lambda: float(next(ticks)))
    assert 0 < len(found) < 20 and more, "the time is over"
    put(segment, ["large-1", "large-2"], 1, attributes={"text": "x" * 60_000})
    found, _ = peek(segment, 100, True, still)
    large = found[0].event["attributes"]
    assert len(large) < MAX_TEXT + 40 and large.endswith("characters)")


def test_bytes_bound_it_too(segment, monkeypatch):
    monkeypatch.setattr("queues.segments.peek.MAX_BYTES", 1)
    put(segment, ["a", "b"], block_events=1)
    found, more = peek(segment, 100, True, still)
    assert ids(found) == ["b"] and more


def test_a_block_that_can_not_be_read_is_named_and_hides_no_other(segment):
    put(segment, ["a"])
    segment.publish([EncodedBlock("b" * 32, 1, 1_000_000, pa.py_buffer(b"no batch"))])
    found, _ = peek(segment, 10, True, still)
    assert found[0].event is None and found[0].block == "b" * 32 and found[0].error
    assert found[1].event["id"] == "a"


def test_an_empty_container_has_nothing_to_see(segment):
    assert peek(segment, 10, True, still) == ([], False)
