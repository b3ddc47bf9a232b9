"""The segment's protocol on a real server."""

import json
from contextlib import suppress

import pyarrow as pa
import pytest
import redis

from common.errors import BadInput, NodeFull, NodeUnavailable
from queues.events.block import Block, BlockIds, EncodedBlock, cut, decode
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Removal, Segment
from tests.protocols.exploring import age_segment
from tests.queues.samples import age_claims, batch_of, blocks_of
from tests.servers import Server

MINUTE = 60.0


@pytest.fixture
def segment(node: redis.Redis) -> Segment:
    return Segment(node, "alert")


def ids_of(claimed: list) -> list[str]:
    return [event for each in claimed for event in each.block().get_event_ids().to_pylist()]


def waiting(segment: Segment) -> int:
    counters = segment.get_counters()
    return counters["inserted_events"] - counters["removed_events"]


def test_a_published_block_comes_back_as_it_was(segment):
    (block,) = blocks_of(4)
    segment.publish([block])
    (claimed,) = segment.claim("w1", 100, MINUTE)
    assert claimed.block_id == block.block_id
    assert (claimed.events, claimed.tries, claimed.newest_time_us) == (4, 1, block.newest_time_us)
    assert claimed.block().batch.equals(batch_of(4))


def test_two_workers_never_hold_the_same_block(segment):
    segment.publish(blocks_of(40))
    first, second = segment.claim("w1", 20, MINUTE), segment.claim("w2", 100, MINUTE)
    assert sorted(ids_of(first) + ids_of(second)) == sorted(f"e{row}" for row in range(40))


def test_a_claim_takes_no_more_than_asked_but_at_least_one_block(segment):
    segment.publish(blocks_of(40))
    assert sum(each.events for each in segment.claim("w1", 10, MINUTE)) == 8
    assert sum(each.events for each in segment.claim("w1", 1, MINUTE)) == 4


def large_blocks(count: int) -> list[EncodedBlock]:
    """Each of some 64 kB, of one event."""
    batch = batch_of(count, attributes=[json.dumps({"text": "x" * 65_000})] * count)
    return cut(batch, BlockIds(), 1)


def size_of(claimed: list) -> int:
    return sum(len(each.data) for each in claimed)


def test_a_claim_takes_no_more_bytes_than_a_node_and_a_worker_have_room_for(segment):
    """Of events of 64 kB as many as a worker takes are hundreds of megabytes: the answer came too late, or
    the worker found no memory, and after a few such claims good events were dead letters.
    """
    segment.publish(large_blocks(60))
    assert 2**19 < size_of(segment.claim("w1", 5_000, MINUTE, most_bytes=2**20)) <= 2**20
    assert len(segment.claim("w2", 5_000, MINUTE, most_bytes=1)) == 1


def test_reading_takes_a_few_large_blocks_at_a_time(segment, monkeypatch):
    """256 of a megabyte, as often as there are tasks, were gigabytes at once."""
    segment.publish(large_blocks(100))
    sizes = []
    xrange = segment.node.xrange

    def noted(*arguments):
        entries = xrange(*arguments)
        sizes.append(sum(len(fields[b"d"]) for _, fields in entries))
        return entries

    monkeypatch.setattr(segment.node, "xrange", noted)
    assert len(list(segment.read("0-0", "+", most_bytes=2**20))) == 100
    assert max(sizes) < 2**20 + 70_000


def test_retries_and_what_a_dead_worker_had_are_claimed_by_their_bytes_too(segment):
    segment.publish(large_blocks(60))
    for failed in segment.claim("dead", 5_000, MINUTE)[:30]:
        segment.retry(failed, "dead", 0.0)
    age_segment(segment.node, "alert", 120)
    tries = []
    while claimed := segment.claim("w1", 5_000, MINUTE, most_bytes=2**20):
        assert size_of(claimed) < 2**20 + 70_000
        tries += [each.tries for each in claimed]
    assert tries == [2] * 60


def test_an_empty_segment_gives_nothing(segment):
    assert segment.claim("w1", 100, MINUTE) == []
    assert segment.measure()["oldest_seconds"] is None


def test_a_block_that_is_acknowledged_twice_counts_once(segment):
    segment.publish(blocks_of(8))
    entries = [each.entry_id for each in segment.claim("w1", 100, MINUTE)]
    assert segment.acknowledge(entries) == Removal(8, 2)
    assert segment.acknowledge(entries) == Removal(0, 0)
    assert segment.get_counters()["removed_events"] == 8
    assert segment.measure()["length_blocks"] == 0


def test_counters_match_what_was_stored_and_removed(segment):
    blocks = blocks_of(10)
    segment.publish(blocks)
    segment.acknowledge([segment.claim("w1", 4, MINUTE)[0].entry_id])
    counters = segment.get_counters()
    assert counters["inserted_bytes"] == sum(block.size_bytes for block in blocks)
    assert counters["removed_bytes"] == blocks[0].size_bytes
    assert (counters["inserted_events"], counters["inserted_blocks"]) == (10, 3)
    assert (counters["removed_events"], counters["removed_blocks"]) == (4, 1)


def test_blocks_of_a_dead_worker_are_claimed_by_the_next_one_with_a_try_more(segment):
    segment.publish(blocks_of(4))
    segment.claim("dead", 100, MINUTE)
    assert segment.claim("w2", 100, MINUTE) == []
    (again,) = segment.claim("w2", 100, 0.0)
    assert again.tries == 2
    assert segment.acknowledge([again.entry_id]) == Removal(4, 1)


def test_a_worker_that_keeps_its_block_alive_is_not_robbed(segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("slow", 100, MINUTE)
    age_claims(segment, "slow", [claimed], 10 * MINUTE)
    assert segment.keep_alive("slow", [claimed.entry_id]) == [claimed.entry_id]
    assert segment.claim("w2", 100, 5 * MINUTE) == []


def test_a_paused_worker_does_not_steal_its_block_back(segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("paused", 100, MINUTE)
    segment.claim("w2", 100, 0.0)
    assert segment.keep_alive("paused", [claimed.entry_id]) == []
    assert segment.node.xpending_range(segment.stream, "workers", "-", "+", 1)[0]["consumer"] == b"w2"


def test_a_failed_block_waits_for_its_time_and_comes_first_then(segment):
    segment.publish(blocks_of(8))
    failed = segment.claim("w1", 4, MINUTE)[0]
    assert segment.retry(failed, "w1", MINUTE)
    assert [each.entry_id for each in segment.claim("w2", 4, 0.0)] != [failed.entry_id]
    age_segment(segment.node, segment.queue, 60)
    again = segment.claim("w2", 4, MINUTE)[0]
    assert (again.entry_id, again.tries) == (failed.entry_id, 2)
    assert segment.measure()["retry_blocks"] == 0


def test_a_block_that_waits_for_its_retry_is_not_taken_for_abandoned(segment):
    segment.publish(blocks_of(4))
    (failed,) = segment.claim("w1", 100, MINUTE)
    segment.retry(failed, "w1", MINUTE)
    assert segment.claim("w2", 100, 0.0) == []
    assert segment.measure()["retry_blocks"] == 1


def test_a_dead_workers_block_is_claimed_behind_however_many_that_wait_for_their_retry(segment):
    """A claim sees two thousand of them, and the next one goes on from there."""
    segment.publish(blocks_of(2_500, per_block=1))
    while failed := segment.claim("w1", 1_000, MINUTE):
        for each in failed:
            segment.retry(each, "w1", MINUTE)
    segment.publish(blocks_of(4, first=2_500))
    (lost,) = segment.claim("dead", 100, MINUTE)
    assert segment.claim("w2", 100, 0.0) == []
    assert [each.entry_id for each in segment.claim("w2", 100, 0.0)] == [lost.entry_id]
    segment.acknowledge([lost.entry_id])
    ((first, _),) = segment.node.xrange(segment.stream, count=1)
    segment.node.zrem("weir:alert:retry", first)  # as one that another worker had
    assert [each.entry_id for each in segment.claim("w3", 100, 0.0)] == [first.decode()]


def test_a_block_whose_turn_never_came_has_no_try_more(segment):
    segment.publish(blocks_of(4))
    for _ in range(3):
        (claimed,) = segment.claim("w1", 100, MINUTE)
        assert claimed.tries == 1
        assert segment.retry(claimed, "w1", 0.0, untried=True)
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.retry(claimed, "w1", 0.0)
    assert segment.claim("w2", 100, MINUTE)[0].tries == 2


def test_a_retry_of_an_acknowledged_block_is_refused(segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.acknowledge([claimed.entry_id])
    assert not segment.retry(claimed, "w1", 0.0)
    assert segment.claim("w2", 100, 0.0) == []


def test_dead_lettering_moves_poison_rows_alone_and_acknowledges_the_block(segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    poison = claimed.block().build_explicit_batch().slice(2, 1)
    assert segment.move_to_dead_letters(claimed, "w1", [(poison, "no such table")]) == Removal(4, 1)
    (letter,) = DeadLetters(segment).read()
    assert letter.batch.column(0).to_pylist() == ["e2"]
    assert (letter.error, letter.worker, letter.tries) == ("no such table", "w1", 1)
    assert segment.get_counters()["dead_events"] == 1
    assert segment.measure()["dead_error"] == "no such table"
    assert waiting(segment) == 0


def test_dead_lettering_a_block_that_another_worker_ended_moves_nothing(segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    segment.acknowledge([claimed.entry_id])
    assert segment.move_to_dead_letters(claimed, "w1", [(claimed.block().build_explicit_batch(), "late")]) == Removal(
        0, 0
    )
    assert DeadLetters(segment).read() == []


def test_a_worker_that_was_overtaken_neither_puts_a_block_off_nor_gives_it_up(segment):
    segment.publish(blocks_of(4))
    (late,) = segment.claim("late", 100, MINUTE)
    (again,) = segment.claim("w2", 100, 0.0)
    assert not segment.retry(late, "late", MINUTE)
    assert segment.move_to_dead_letters(late, "late", [(late.block().build_explicit_batch(), "bad")]) == Removal(0, 0)
    assert segment.keep_alive("w2", [again.entry_id]) == [again.entry_id]
    assert segment.acknowledge([again.entry_id]) == Removal(4, 1)
    assert DeadLetters(segment).read() == []


def test_dead_lettering_rows_without_ids_is_refused_and_changes_nothing(segment):
    batch = batch_of(2, id=pa.array([None, None], pa.string()))
    segment.publish([Block("a" * 32, batch).encode()])
    (claimed,) = segment.claim("w1", 100, MINUTE)
    with pytest.raises(BadInput, match="rows"):
        segment.move_to_dead_letters(claimed, "w1", [(batch, "bad")])
    assert waiting(segment) == 2


def test_a_scan_lists_blocks_in_order_up_to_the_limit(segment):
    segment.publish(blocks_of(40))
    rows = segment.scan("0-0", 10)
    assert [row.events for row in rows] == [4, 4]
    further = segment.scan(rows[-1].entry_id, 1_000)
    assert sum(row.events for row in further) == 32
    assert [row.entry_id for row in segment.scan("0-0", 1)] == [rows[0].entry_id]
    assert segment.scan(further[-1].entry_id, 10) == []


def test_a_range_reads_the_same_each_time_until_it_is_trimmed(segment):
    segment.publish(blocks_of(40))
    through = segment.scan("0-0", 20)[-1].entry_id
    first = list(segment.read("0-0", through))
    segment.publish(blocks_of(4, first=100))
    assert list(segment.read("0-0", through)) == first
    events = [event for _, name, data, _ in first for event in decode(name, data).get_event_ids().to_pylist()]
    assert events == [f"e{row}" for row in range(20)]


def test_trimming_counts_exactly_what_it_removes(segment):
    segment.publish(blocks_of(4_000, per_block=2))
    through = segment.scan("0-0", 3_000)[-1].entry_id
    assert segment.trim(through) == Removal(3_000, 1_500)
    assert segment.trim(through) == Removal(0, 0)
    assert segment.get_counters()["removed_events"] == 3_000
    assert len(list(segment.read("0-0", "+"))) == 500


def test_measuring_gives_lengths_and_the_oldest_age(segment):
    segment.publish(blocks_of(8))
    segment.claim("w1", 4, MINUTE)
    measured = segment.measure()
    assert (measured["length_blocks"], measured["pending_blocks"]) == (2, 1)
    assert 0 <= measured["oldest_seconds"] < 60


def test_a_node_whose_disk_is_full_is_one_that_is_away(segment, node):
    with pytest.raises(NodeUnavailable, match="No space left"), segment.convert_errors():
        node.eval("return redis.error_reply('MISCONF Errors writing to the AOF file: No space left')", 0)


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        ("READONLY You can't write against a read only replica.", NodeUnavailable),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", NodeUnavailable),
        ("LOADING Valkey is loading the dataset in memory", NodeUnavailable),
        ("BUSY Valkey is busy running a script.", NodeUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", NodeUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", NodeFull),
        ("EXECABORT Transaction discarded because of: OOM command not allowed", NodeFull),
        ("ERR unknown command", redis.ResponseError),
    ],
)
def test_a_refusal_is_known_whatever_the_client_makes_of_its_text(segment, node, refusal, raised):
    with pytest.raises(raised), segment.convert_errors():
        node.eval("return redis.error_reply(ARGV[1])", 0, refusal)


def test_a_node_that_is_a_replica_now_is_one_that_is_away(segment, node):
    segment.publish(blocks_of(8))
    node.replicaof("127.0.0.1", "1")
    try:
        for refused in (lambda: segment.publish(blocks_of(8)), lambda: segment.claim("w1", 4, MINUTE)):
            with pytest.raises(NodeUnavailable, match="read only replica"):
                refused()
    finally:
        node.replicaof("NO", "ONE")
    assert segment.get_counters()["inserted_events"] == 8


def test_a_node_that_refuses_a_flush_for_whatever_reason_is_passed_by(segment, node):
    node.set(segment.stream, "no stream at all")
    with pytest.raises(NodeUnavailable, match="wrong kind of value"):
        segment.publish(blocks_of(8))


def test_a_node_that_is_almost_full_refuses_a_flush_as_a_whole_or_stores_it(segment, node):
    """The limit may be passed between the last command of a flush and its EXEC, which then says so."""
    segment.publish(blocks_of(8))
    stored, used = 1, node.info("memory")["used_memory"]
    for more in range(20_000, 70_000, 256):
        node.config_set("maxmemory", used + more)
        with suppress(NodeFull):
            segment.publish(blocks_of(8))
            stored += 1
    assert segment.get_counters()["inserted_events"] == 8 * stored


def test_ended_workers_are_forgotten_but_those_that_hold_blocks_are_not(segment):
    segment.publish(blocks_of(8))
    segment.acknowledge([segment.claim("ended", 4, MINUTE)[0].entry_id])
    segment.claim("busy", 4, MINUTE)
    assert segment.sweep(0.0) == 1
    assert [each["name"] for each in segment.node.xinfo_consumers(segment.stream, "workers")] == [b"busy"]


def test_a_full_node_refuses_a_flush_as_a_whole_and_can_still_be_emptied(segment):
    segment.publish(blocks_of(8))
    segment.node.config_set("maxmemory", 1)
    with pytest.raises(NodeFull, match="maxmemory"):
        segment.publish(blocks_of(8))
    assert segment.get_counters()["inserted_events"] == 8
    claimed = segment.claim("w1", 4, MINUTE)[0]
    assert segment.retry(claimed, "w1", 0.0)
    (claimed,) = segment.claim("w1", 4, MINUTE)
    segment.move_to_dead_letters(claimed, "w1", [(claimed.block().build_explicit_batch(), "bad")])
    assert segment.acknowledge([each.entry_id for each in segment.claim("w1", 100, MINUTE)]) == Removal(4, 1)
    assert waiting(segment) == 0


def test_scripts_survive_a_server_that_forgot_them(segment):
    segment.publish(blocks_of(4))
    segment.node.script_flush()
    assert len(segment.claim("w1", 100, MINUTE)) == 1


@pytest.mark.faults
def test_what_was_stored_survives_kill_9_of_the_node(nodes: dict[str, Server]):
    server = nodes["n2"]
    segment = Segment(server.client(), "alert")
    segment.publish(blocks_of(8))
    segment.claim("w1", 4, MINUTE)
    server.kill()
    with pytest.raises(NodeUnavailable):
        segment.claim("w2", 100, 0.0)
    server.start()
    assert sorted(ids_of(segment.claim("w2", 100, 0.0))) == [f"e{row}" for row in range(8)]
    assert waiting(segment) == 8
