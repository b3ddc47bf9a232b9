"""Blocks have checksums: a damaged one is found by whoever takes it next, is named, and is never handled."""

import json
from collections.abc import Callable
from random import Random

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.queues.bit_flips import Parts, flip_bit, flip_random_bit, rewrite_entries
from common.errors import BadInput, MalformedEvent
from queues.events.block import decode, decode_unreadable_bytes
from queues.segments.checksum import compute_checksum, encode_header, find_damage, read_header
from queues.segments.dead_letters import CHANGED, REFUSED, DeadLetters
from queues.segments.peek import peek
from queues.segments.segment import Removal, Segment
from tests.queues.samples import NOW_US, batch_of, blocks_of
from workers.placement.transfer import Route

MINUTE = 60.0
FIELDS = ("c", "i", "n", "t", "d")
ON_A_SERVER = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def segment(node: redis.Redis) -> Segment:
    return Segment(node, "alert")


def damage_first(segment: Segment, change: Callable[[Parts], Parts]) -> None:
    """Change the first block as it is stored."""
    rewrite_entries(segment.node, segment.stream, lambda place, parts: parts if place else change(parts))


def change_field(name: str, changed: Callable[[bytes], bytes]) -> Callable[[Parts], Parts]:
    def change(parts: Parts) -> Parts:
        fields = dict(zip(parts[::2], parts[1::2], strict=True))
        fields[name.encode()] = changed(fields[name.encode()])
        return [part for pair in fields.items() for part in pair]

    return change


def rename_field(name: str, other: str) -> Callable[[Parts], Parts]:
    def change(parts: Parts) -> Parts:
        return [other.encode() if at % 2 == 0 and part == name.encode() else part for at, part in enumerate(parts)]

    return change


def flip_first_bit(value: bytes) -> bytes:
    return flip_bit(value, 0)


def waiting(segment: Segment) -> tuple[int, ...]:
    """What the counters say is there, and what is."""
    counters = segment.get_counters()
    return tuple(counters[f"inserted_{unit}"] - counters[f"removed_{unit}"] for unit in ("events", "blocks", "bytes"))


CASES = {
    **{f"a bit of {name}": change_field(name, flip_first_bit) for name in FIELDS},
    **{f"the name of {name}": rename_field(name, "x") for name in FIELDS},
    "another number of events": change_field("n", lambda value: b"9" * 15),
    "a number that is none": change_field("n", lambda value: b"many"),
    "a time far ahead": change_field("t", lambda value: b"9" * 15),
    "the data of another block": change_field("d", lambda value: blocks_of(8, first=2)[0].data.to_pybytes()),
    "the copy of the events": change_field("c", lambda value: value.replace(b" 4 ", b" 6 ")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_claim_names_the_damage_and_the_counters_stay_exact(case, segment):
    segment.publish(blocks_of(8))
    damage_first(segment, CASES[case])
    first, second = segment.claim("w1", 100, MINUTE)
    assert second.damage is None and first.damage is not None
    with pytest.raises(MalformedEvent):
        first.block()
    assert segment.quarantine(first.entry_id, first.damage, "w1") == Removal(4, 1)
    assert segment.acknowledge([second.entry_id]) == Removal(4, 1)
    assert waiting(segment) == (0, 0, 0)
    gauge = segment.measure()
    assert (gauge["damaged_blocks"], gauge["dead_letters"], gauge["length_blocks"]) == (1, 1, 0)


@pytest.mark.parametrize("case", CASES)
def test_a_reader_by_id_and_a_transfer_find_it_too(case, segment):
    segment.publish(blocks_of(8))
    damage_first(segment, CASES[case])
    damaged, intact = segment.read("0-0", "+")
    assert damaged.damage is not None and intact.damage is None
    departing, _ = segment.depart({"n2": 1}, 10, 2**20)
    assert departing.damage is not None
    with pytest.raises(MalformedEvent):
        segment.receive("n1", departing)


@pytest.mark.parametrize("case", CASES)
def test_what_is_listed_of_a_damaged_block_moves_no_watermark_and_is_counted_as_published(case, segment):
    blocks = blocks_of(8)
    segment.publish(blocks)
    damage_first(segment, CASES[case])
    listed, _ = segment.scan()
    assert listed.events == 4
    assert listed.newest_time_us in (0, blocks[0].newest_time_us)
    assert listed.block_id in ("", blocks[0].block_id)


@ON_A_SERVER
@given(seed=st.integers(0, 2**32), flips=st.integers(1, 20))
def test_any_flipped_bits_are_found(segment, seed, flips):
    segment.node.flushall()
    segment.publish(blocks_of(12))
    chance = Random(seed)

    is_changed = []

    def change(parts: Parts) -> Parts:
        changed = parts
        for _ in range(flips):
            changed = flip_random_bit(changed, chance)
        is_changed.append(changed != parts)
        return changed

    damage_first(segment, change)
    first, *others = segment.claim("w1", 100, MINUTE)
    assert [first.damage is not None] == is_changed
    assert len(others) == 2 and all(each.damage is None for each in others)


@ON_A_SERVER
@given(field=st.sampled_from(FIELDS), bits=st.sets(st.integers(0, 2**20), min_size=1, max_size=8))
def test_flips_within_one_field_leave_all_counters_exact(segment, field, bits):
    segment.node.flushall()
    segment.publish(blocks_of(8))

    def flip_bits(value: bytes) -> bytes:
        for bit in {bit % (8 * len(value)) for bit in bits}:
            value = flip_bit(value, bit)
        return value

    damage_first(segment, change_field(field, flip_bits))
    for each in segment.claim("w1", 100, MINUTE):
        if each.damage is not None:
            segment.quarantine(each.entry_id, each.damage, "w1")
        else:
            segment.acknowledge([each.entry_id])
    assert waiting(segment) == (0, 0, 0)
    assert DeadLetters(segment).read()[0].kind == "damaged"


def test_a_checksum_whose_copy_and_digest_are_damaged_leaves_all_counters_exact(segment):
    segment.publish(blocks_of(8))

    def damage_tail(value: bytes) -> bytes:
        return value.replace(b" 4 ", b" 5 ")[:-1] + (b"0" if value.endswith(b"1") else b"1")

    damage_first(segment, change_field("c", damage_tail))
    for each in segment.claim("w1", 100, MINUTE):
        if each.damage is not None:
            assert each.events == 4
            segment.quarantine(each.entry_id, each.damage, "w1")
        else:
            segment.acknowledge([each.entry_id])
    assert waiting(segment) == (0, 0, 0)


def test_a_digest_that_a_flipped_bit_divides_is_no_number_of_events(segment):
    """One bit turns the digit 0 into a space, and the digits before it would look like the number of events."""
    while True:
        (block,) = blocks_of(4)
        header = encode_header(block.block_id, block.events, block.newest_time_us)
        checksum = compute_checksum(*header, block.data)
        digits, zero, _ = checksum[-8:].partition(b"0")
        if zero and digits.isdigit():
            break
    segment.publish([block])
    damage_first(segment, change_field("c", lambda value: value[:-8] + value[-8:].replace(b"0", b" ", 1)))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.quarantine(claimed.entry_id, claimed.damage, "w1")
    assert waiting(segment) == (0, 0, 0)


def test_events_that_are_damaged_after_the_claim_are_removed_as_they_were_counted(segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    damage_first(segment, CASES["another number of events"])
    assert segment.acknowledge([claimed.entry_id]) == Removal(4, 1)
    assert waiting(segment) == (0, 0, 0)


def test_a_recount_counts_a_damaged_block_as_it_was_published(segment):
    segment.publish(blocks_of(8))
    before = segment.get_counters()
    damage_first(segment, CASES["a number that is none"])
    segment.recount()
    assert segment.get_counters() == before


def test_the_dead_letter_says_what_the_block_held_and_has_its_bytes(segment):
    (block,) = blocks_of(4)
    segment.publish([block])
    damage_first(segment, CASES["a bit of d"])
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.quarantine(claimed.entry_id, claimed.damage, "w1")
    (letter,) = DeadLetters(segment).read()
    assert (letter.kind, letter.damage, letter.is_damaged) == ("damaged", "", True)
    assert (letter.events, letter.newest_time_us, letter.block_id) == (4, block.newest_time_us, block.block_id)
    assert (letter.worker, letter.tries) == ("w1", 0)
    assert f"Block {block.block_id}" in letter.error and "4 events, newest 2026-09-21" in letter.error
    (attributes,) = letter.batch["attributes"].to_pylist()
    assert decode_unreadable_bytes(attributes) == flip_first_bit(block.data.to_pybytes())
    held = json.loads(attributes)
    assert held["expected"] != held["computed"] and held["fields"]["i"] == block.block_id
    assert (held["events"], held["bytes"]) == (4, len(block.data))
    gauge = segment.measure()
    assert gauge["damage"] == letter.error and gauge["damaged_at"] == pytest.approx(letter.at_seconds, abs=1.0)


def test_whoever_finds_it_second_moves_nothing(segment):
    segment.publish(blocks_of(4))
    damage_first(segment, CASES["a bit of d"])
    (claimed,) = segment.claim("w1", 100, MINUTE)
    (stored,) = segment.read("0-0", "+")
    assert segment.quarantine(claimed.entry_id, claimed.damage, "w1").blocks == 1
    assert segment.quarantine(stored.entry_id, stored.damage, "pipeline").blocks == 0
    assert len(DeadLetters(segment).read()) == segment.get_counters()["damaged_blocks"] == 1


def test_a_damaged_letter_is_not_requeued_and_can_be_discarded(segment):
    segment.publish(blocks_of(4))
    damage_first(segment, CASES["a bit of d"])
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.quarantine(claimed.entry_id, claimed.damage, "w1")
    letters = DeadLetters(segment)
    (letter,) = letters.read()
    shown = {letter.dead_id: letter.digest}
    assert letters.requeue(shown) == {letter.dead_id: REFUSED}
    with pytest.raises(BadInput, match="damaged"):
        letters.amend(letter.dead_id, letter.digest, batch_of(1))
    assert letters.discard(shown) == {letter.dead_id: 4}
    assert segment.measure()["length_blocks"] == 0


LETTER_CASES = {
    "e": change_field("e", flip_first_bit),
    "n": change_field("n", flip_first_bit),
    "t": change_field("t", flip_first_bit),
    "block": change_field("block", flip_first_bit),
    "c": change_field("c", flip_first_bit),
    "the name of c": rename_field("c", "b"),
    "the name of e": rename_field("e", "q"),
}


def add_damaged_letter(segment, case):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.move_to_dead_letters(claimed, "w1", [(claimed.block().build_explicit_batch(), "bad")])
    rewrite_entries(segment.node, f"weir:{segment.queue}:dead", lambda place, parts: LETTER_CASES[case](parts))


@pytest.mark.parametrize("case", LETTER_CASES)
def test_a_dead_letter_that_is_damaged_where_it_is_stored_is_named_and_stays(case, segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.move_to_dead_letters(claimed, "w1", [(claimed.block().build_explicit_batch(), "bad")])
    letters = DeadLetters(segment)
    (intact,) = letters.read()
    assert (intact.damage, intact.kind) == ("", "")
    rewrite_entries(segment.node, f"weir:{segment.queue}:dead", lambda place, parts: LETTER_CASES[case](parts))
    (letter,) = letters.read()
    assert letter.is_damaged and "damaged" in letter.damage
    assert letters.requeue({letter.dead_id: letter.digest}) == {letter.dead_id: REFUSED}
    assert len(letters.read()) == 1


@pytest.mark.parametrize("case", LETTER_CASES)
def test_a_damaged_dead_letter_is_counted_once_and_named_with_what_it_held(case, segment):
    add_damaged_letter(segment, case)
    assert segment.measure()["damaged_blocks"] == 0
    DeadLetters(segment).read()
    DeadLetters(segment).read()
    gauge = segment.measure()
    assert gauge["damaged_blocks"] == 1 and gauge["damaged_at"] is not None
    assert gauge["damage"].startswith("Dead letter of block ") and "4 events" in gauge["damage"]


def test_a_damaged_dead_letter_that_moves_is_counted_where_it_was_damaged(nodes):
    at = {name: Segment(server.client(), "alert") for name, server in nodes.items()}
    add_damaged_letter(at["n1"], "e")
    assert Route("n1", at["n1"], {"n2": at["n2"]}, {"n2": 1}).move_letters(10**9).letters == 1
    (letter,) = DeadLetters(at["n2"]).read()
    assert letter.is_damaged
    assert [at[name].measure()["damaged_blocks"] for name in ("n1", "n2")] == [1, 0]


def test_a_requeued_letter_is_a_block_with_its_own_checksum(segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.move_to_dead_letters(claimed, "w1", [(claimed.block().build_explicit_batch(), "bad")])
    letters = DeadLetters(segment)
    (letter,) = letters.read()
    assert letters.requeue({letter.dead_id: "0" * 40}) == {letter.dead_id: CHANGED}
    new_id = letters.amend(letter.dead_id, letter.digest, batch_of(2))
    amended = letters.find(new_id)
    assert amended is not None and not amended.is_damaged
    assert letters.requeue({new_id: amended.digest}) == {new_id: 2}
    (again,) = segment.claim("w2", 100, MINUTE)
    assert (again.damage, again.events) == (None, 2)
    segment.acknowledge([again.entry_id])
    assert segment.get_counters()["unchecked_blocks"] == 0
    assert waiting(segment) == (0, 0, 0)


def test_a_block_of_an_earlier_version_is_accepted_and_counted(segment):
    (block,) = blocks_of(4)
    old = {"i": block.block_id, "n": 4, "t": block.newest_time_us, "d": block.data.to_pybytes()}
    segment.node.xadd(segment.stream, old)
    (claimed,) = segment.claim("w1", 100, MINUTE)
    assert claimed.damage is None and claimed.block().events == 4
    segment.acknowledge([claimed.entry_id])
    assert segment.get_counters()["unchecked_blocks"] == 1


def test_a_moved_block_keeps_the_checksum_of_its_publisher_and_a_damaged_one_stays_behind(nodes):
    at = {name: Segment(server.client(), "alert") for name, server in nodes.items()}
    blocks = blocks_of(8)
    at["n1"].publish(blocks)
    damage_first(at["n1"], CASES["a bit of d"])
    done = Route("n1", at["n1"], {"n2": at["n2"]}, {"n2": 1}).run(10**9)
    assert (done.blocks, done.events) == (1, 4)
    (fields,) = (fields for _, fields in at["n2"].node.xrange(at["n2"].stream))
    header = encode_header(blocks[1].block_id, 4, blocks[1].newest_time_us)
    assert fields[b"c"] == compute_checksum(*header, blocks[1].data)
    (letter,) = DeadLetters(at["n1"]).read()
    assert (letter.kind, letter.worker) == ("damaged", "transfer")
    assert at["n1"].measure()["leaving_blocks"] == 0
    assert waiting(at["n1"]) == (0, 0, 0)


def test_a_preview_shows_no_event_of_a_damaged_block(segment):
    segment.publish(blocks_of(8))
    damage_first(segment, CASES["a bit of d"])
    rows, _ = peek(segment, 10, False, lambda: 0.0)
    assert rows[0].event is None and "damaged" in rows[0].error
    assert [row.event["id"] for row in rows[1:]] == ["e4", "e5", "e6", "e7"]


@given(st.dictionaries(st.sampled_from([b"c", b"i", b"n", b"t", b"d", b"x"]), st.binary(max_size=20)))
def test_no_set_of_fields_stops_a_reader(fields):
    damage = find_damage(b"1-0", fields)
    assert damage is None or damage.format_sentence("a node")
    events, newest_time_us = read_header(fields)
    assert events >= 0 and newest_time_us >= 0


def test_a_checksum_covers_each_field():
    header, data = encode_header("a" * 32, 4, NOW_US), batch_of(4).serialize().to_pybytes()
    checksum = compute_checksum(*header, data)
    fields = dict(zip((b"i", b"n", b"t", b"d", b"c"), (*header, data, checksum), strict=True))
    assert find_damage(b"1-0", fields) is None
    assert decode("a" * 32, data).events == 4
    for name, value in fields.items():
        for bit in range(0, 8 * len(value), 7):
            assert find_damage(b"1-0", {**fields, name: flip_bit(value, bit)}) is not None, (name, bit)
