"""Segments of durable queues: a write counts only when it is on the disk."""

import pytest

from common.errors import NodeUnavailable
from queues.durability import DISK, REPLICATED
from queues.events.block import BlockIds
from queues.nodes.write_sync import WriteSync
from queues.segments import synced_write
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from tests.queues.samples import batch_of, blocks_of
from tests.servers import new_server
from workers.placement.transfer import Route

ORDERS = QueueSpec("orders", "jobs", {"n1": 500, "n2": 500}, durability=DISK)
MINUTE = 60.0


@pytest.fixture(autouse=True)
def short_wait(monkeypatch):
    monkeypatch.setattr(synced_write, "SYNC_MILLISECONDS", 30)


@pytest.fixture
def servers(tmp_path):
    started = {name: new_server(tmp_path / name) for name in ("n1", "n2")}
    yield started
    for server in started.values():
        server.close()


@pytest.fixture
def segments(servers):
    return {name: Segment(server.client(), "orders", DISK) for name, server in servers.items()}


def sync(server):
    WriteSync().align(server.client(), [ORDERS])


def stop_syncing(server):
    server.client().config_set("appendfsync", "no")


def move(segments):
    targets = {"n2": segments["n2"]}
    return Route("n1", segments["n1"], targets, {"n2": 1000})


def test_a_publish_to_a_server_that_does_not_sync_is_not_acknowledged(segments):
    with pytest.raises(NodeUnavailable, match="not synced its file"):
        segments["n1"].publish(blocks_of(4))


def test_a_publish_to_a_server_that_syncs_is_acknowledged_and_stored_once(servers, segments):
    sync(servers["n1"])
    segments["n1"].publish(blocks_of(4))
    assert segments["n1"].measure()["length_blocks"] == 1


def test_connections_stay_usable_after_a_publish_that_was_not_synced(servers, segments):
    with pytest.raises(NodeUnavailable):
        segments["n1"].publish(blocks_of(4))
    sync(servers["n1"])
    segments["n1"].publish(blocks_of(4))
    assert segments["n1"].get_counters()["inserted_events"] == 8


def test_a_server_without_a_file_acknowledges_nothing(servers, segments):
    servers["n1"].client().config_set("appendonly", "no")
    with pytest.raises(NodeUnavailable, match="rejected a flush"):
        segments["n1"].publish(blocks_of(4))


def test_a_replicated_queue_needs_a_replica_with_the_events(servers):
    sync(servers["n1"])
    with pytest.raises(NodeUnavailable, match="no replica"):
        Segment(servers["n1"].client(), "orders", REPLICATED).publish(blocks_of(4))


def test_a_moved_block_stays_at_its_source_until_the_target_has_synced_it(servers, segments):
    sync(servers["n1"])
    segments["n1"].publish(blocks_of(4))
    done = move(segments).run(10**6)
    assert done.blocks == 0 and "not synced" in done.last_error
    assert segments["n1"].measure()["length_blocks"] == 1
    again = move(segments).run(10**6)
    assert again.blocks == 0, "the repeated write waits as well, although the target has the block already"
    sync(servers["n2"])
    assert move(segments).run(10**6).blocks == 1
    assert segments["n1"].measure()["length_blocks"] == 0
    assert segments["n2"].measure()["length_blocks"] == 1


def test_a_moved_dead_letter_stays_at_its_source_until_the_target_has_synced_it(servers, segments):
    sync(servers["n1"])
    segments["n1"].publish(blocks_of(4))
    (claimed,) = segments["n1"].claim("w", 100, MINUTE)
    segments["n1"].move_to_dead_letters(claimed, "w", [(claimed.block().build_explicit_batch(), "poison")])
    for _ in range(2):
        assert move(segments).move_letters(10**6).letters == 0
        assert len(DeadLetters(segments["n1"]).read()) == 1
    sync(servers["n2"])
    assert move(segments).move_letters(10**6).letters == 1
    assert len(DeadLetters(segments["n2"]).read()) == 1


def test_a_person_is_told_that_a_letter_was_requeued_only_when_that_is_on_the_disk(servers, segments):
    letters = DeadLetters(segments["n1"])
    sync(servers["n1"])
    letters.add("1-0", "pipeline", "b", [(batch_of(1), "poison")])
    stop_syncing(servers["n1"])
    (letter,) = letters.read()
    with pytest.raises(NodeUnavailable, match="not synced"):
        letters.requeue({letter.dead_id: letter.digest}, BlockIds())


def test_a_script_that_a_restarted_server_does_not_know_is_sent_again(servers, segments):
    sync(servers["n2"])
    servers["n2"].client().script_flush()
    sync(servers["n1"])
    segments["n1"].publish(blocks_of(4))
    assert move(segments).run(10**6).blocks == 1
