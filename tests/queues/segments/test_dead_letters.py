"""Dead letters are put in again, mended and discarded once, as they were shown, or not at all."""

from collections import Counter

import pyarrow as pa
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from queues.events.block import Block, from_events
from queues.segments.dead_letters import CHANGED, GONE, DeadLetter, DeadLetters
from queues.segments.segment import Segment
from tests.queues.samples import NOW_US, batch_of, blocks_of

MINUTE = 60.0


@pytest.fixture
def segment(node: redis.Redis) -> Segment:
    return Segment(node, "alert")


def dead_lettered(segment: Segment, events: int = 8) -> list[DeadLetter]:
    """Blocks of four events each, all of them dead."""
    segment.publish(blocks_of(events))
    for each in segment.claim("w1", 1_000, MINUTE):
        segment.move_to_dead_letters(each, "w1", [(each.block().build_explicit_batch(), "bad")])
    return DeadLetters(segment).read()


def shown(*letters: DeadLetter) -> dict[str, str]:
    return {each.dead_id: each.digest for each in letters}


def test_requeued_letters_keep_their_event_ids_and_are_dead_once(segment):
    batch = batch_of(3, id=pa.array([None] * 3, pa.string()))
    segment.publish([Block("a" * 32, batch).encode()])
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.move_to_dead_letters(claimed, "w1", [(claimed.block().build_explicit_batch().slice(1, 2), "bad")])
    (letter,) = DeadLetters(segment).read()
    assert DeadLetters(segment).requeue(shown(letter)) == {letter.dead_id: 2}
    assert DeadLetters(segment).requeue(shown(letter)) == {letter.dead_id: GONE}
    (again,) = segment.claim("w2", 100, MINUTE)
    assert again.block().get_event_ids().to_pylist() == ["a" * 32 + ":1", "a" * 32 + ":2"]
    assert again.block_id != claimed.block_id
    assert DeadLetters(segment).read() == []


def test_however_large_they_are_few_bytes_of_them_are_asked_for_at_once(segment, node):
    letters = dead_lettered(segment, events=160)
    calls = node.info("commandstats")["cmdstat_xrange"]["calls"]
    four = 4 * max(len(each.data) for each in letters)
    assert list(DeadLetters(segment).iterate(1_000, four)) == letters
    assert node.info("commandstats")["cmdstat_xrange"]["calls"] - calls >= 8
    assert list(DeadLetters(segment).iterate(30)) == letters[:30]


def test_discarded_letters_are_gone_and_the_others_stay(segment):
    first, second = dead_lettered(segment)
    assert DeadLetters(segment).read(1, after=first.dead_id) == [second]
    answers = DeadLetters(segment).discard({**shown(first), "1-1": first.digest})
    assert answers == {first.dead_id: 4, "1-1": GONE}
    assert DeadLetters(segment).read() == [second]
    assert DeadLetters(segment).find(first.dead_id) is None


def test_a_letter_that_is_not_as_it_was_shown_stays_as_it_is(segment):
    first, second = dead_lettered(segment)
    stale = {first.dead_id: second.digest, second.dead_id: second.digest}
    assert DeadLetters(segment).requeue(stale) == {first.dead_id: CHANGED, second.dead_id: 4}
    assert DeadLetters(segment).discard({first.dead_id: "0" * 40}) == {first.dead_id: CHANGED}
    with pytest.raises(BadInput, match="has changed since it was shown"):
        DeadLetters(segment).amend(first.dead_id, "0" * 40, first.batch)
    assert DeadLetters(segment).read() == [first]


def test_a_mended_letter_keeps_its_age_error_and_tries_and_is_requeued_as_mended(segment):
    first, _ = dead_lettered(segment)
    events = [{**event, "value": -1.0} for event in first.batch.to_pylist()]
    mended = from_events(events, NOW_US)
    new_id = DeadLetters(segment).amend(first.dead_id, first.digest, mended)
    letter = DeadLetters(segment).find(new_id)
    assert letter is not None
    assert (letter.error, letter.tries, letter.worker) == (first.error, first.tries, first.worker)
    assert (letter.at_seconds, letter.fixes) == (first.at_seconds, 1)
    assert DeadLetters(segment).requeue(shown(first)) == {first.dead_id: GONE}
    assert DeadLetters(segment).requeue(shown(letter)) == {new_id: 4}
    (again,) = segment.claim("w2", 100, MINUTE)
    assert again.block().batch.column("value").to_pylist() == [-1.0] * 4
    assert again.block().get_event_ids().to_pylist() == first.batch.column("id").to_pylist()


def test_mending_needs_the_events_ids(segment):
    first, _ = dead_lettered(segment)
    with pytest.raises(BadInput, match="must have an ID"):
        DeadLetters(segment).amend(first.dead_id, first.digest, batch_of(1, id=pa.array([None], pa.string())))


STEPS = st.lists(
    st.tuples(st.sampled_from(["dead_letter", "read", "requeue", "discard", "amend", "work"]), st.integers(0, 3)),
    min_size=3,
    max_size=16,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_however_people_act_on_what_they_saw_before_every_event_is_in_one_place(node, steps):
    node.flushall()
    segment = Segment(node, "alert")
    letters = DeadLetters(segment)
    seen: list[DeadLetter] = []
    ended: Counter[str] = Counter()
    made = 0
    for step, place in steps:
        chosen = seen[place] if place < len(seen) else None
        if step == "dead_letter":
            segment.publish(blocks_of(4, first=made))
            made += 4
            for each in segment.claim("w1", 4, MINUTE):
                segment.move_to_dead_letters(each, "w1", [(each.block().build_explicit_batch(), "bad")])
        elif step == "read":
            seen = letters.read()
        elif step == "work":
            for each in segment.claim("w2", 4, MINUTE):
                segment.acknowledge([each.entry_id])
                ended.update(each.block().get_event_ids().to_pylist())
        elif chosen is not None and step == "discard":
            answer = letters.discard(shown(chosen))[chosen.dead_id]
            ended.update(chosen.batch.column("id").to_pylist() if answer > 0 else [])
        elif chosen is not None and step == "requeue":
            letters.requeue(shown(chosen))
        elif chosen is not None and letters.find(chosen.dead_id):
            letters.amend(chosen.dead_id, chosen.digest, chosen.batch)
    dead = Counter(name for each in letters.read(1_000) for name in each.batch.column("id").to_pylist())
    waiting = Counter(
        name for each in segment.claim("w3", 10_000, 0.0) for name in each.block().get_event_ids().to_pylist()
    )
    assert ended + dead + waiting == Counter(f"e{row}" for row in range(made))
    counters = segment.get_counters()
    assert counters["inserted_events"] - counters["removed_events"] == waiting.total()
