"""Pairs of servers: the replica has every event that a durable queue acknowledged, and no server overwrites them."""

import shutil
from dataclasses import replace

import pytest
import redis

from common.errors import NodeUnavailable
from queues.durability import REPLICATED
from queues.nodes.replication import ReplicaPair, can_replace_primary
from queues.nodes.server import ServerConfig, free_port
from queues.nodes.write_sync import WriteSync
from queues.segments.segment import Segment
from queues.topology import NodeSpec, QueueSpec
from tests.queues.samples import blocks_of
from tests.servers import Server, new_server
from tests.waiting import until

ORDERS = QueueSpec("orders", "jobs", {"n1": 1000}, durability=REPLICATED)


@pytest.fixture
def pair(tmp_path):
    ports = free_port(), free_port()
    servers = [
        Server(ServerConfig(port, tmp_path / str(port), peer_port=peer)).start()
        for port, peer in zip(ports, ports[::-1], strict=True)
    ]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def spec(pair):
    return NodeSpec("n1", pair[0].url, replica_url=pair[1].url)


def align(spec):
    with redis.Redis.from_url(spec.url) as primary:
        problem = ReplicaPair().align(spec, [ORDERS])
        WriteSync().align(primary, [ORDERS])
    return problem


def replicate(spec):
    until(lambda: align(spec) == "")


def promote(spec):
    return replace(spec, url=spec.replica_url, replica_url=spec.url, promotions=spec.promotions + 1)


def segment(server):
    return Segment(server.client(), "orders", REPLICATED)


def test_a_pair_that_starts_gets_a_primary_and_acknowledges_events_on_both(pair, spec):
    replicate(spec)
    segment(pair[0]).publish(blocks_of(4))
    assert pair[1].client().xlen(segment(pair[1]).stream) == 1


def test_nothing_is_acknowledged_while_the_replica_is_away(pair, spec):
    replicate(spec)
    pair[1].kill()
    with pytest.raises(NodeUnavailable, match="no replica"):
        segment(pair[0]).publish(blocks_of(4))
    assert "not responding" in align(spec)


def test_servers_that_start_again_copy_nothing_from_a_primary_that_has_lost_its_disk(pair, spec):
    replicate(spec)
    segment(pair[0]).publish(blocks_of(4))
    for server in pair:
        server.kill()
    shutil.rmtree(pair[0].config.folder)
    for server in pair:
        server.start()
    assert align(spec) == "the primary has lost its data, which its replica has"
    assert can_replace_primary(spec)
    promoted = promote(spec)
    replicate(promoted)
    assert [server.client().xlen(segment(server).stream) for server in pair] == [1, 1]


def test_a_primary_that_keeps_its_disk_goes_on_after_a_restart(pair, spec):
    replicate(spec)
    segment(pair[0]).publish(blocks_of(4))
    for server in pair:
        server.kill()
    for server in pair:
        server.start()
    replicate(spec)
    segment(pair[0]).publish(blocks_of(4))
    assert pair[1].client().xlen(segment(pair[1]).stream) == 2


def test_a_primary_that_was_replaced_acknowledges_nothing_and_becomes_a_replica(pair, spec):
    replicate(spec)
    segment(pair[0]).publish(blocks_of(4))
    pair[1].client().replicaof("NO", "ONE")
    with pytest.raises(NodeUnavailable):
        segment(pair[0]).publish(blocks_of(4))
    promoted = promote(spec)
    replicate(promoted)
    assert [server.client().xlen(segment(server).stream) for server in pair] == [1, 1]


def test_a_process_with_an_old_topology_does_not_overwrite_the_new_primary(pair, spec):
    replicate(spec)
    promoted = promote(spec)
    replicate(promoted)
    segment(pair[1]).publish(blocks_of(4))
    assert align(spec) == "the replica was promoted in the meantime"
    assert pair[1].client().xlen(segment(pair[1]).stream) == 1


def test_a_replica_that_was_not_copied_again_replaces_nothing(pair, spec):
    replicate(spec)
    pair[0].kill()
    promoted = promote(spec)
    align(promoted)
    pair[0].start()
    assert not can_replace_primary(promoted)


def test_a_replica_with_data_of_something_else_is_not_overwritten(pair, spec, tmp_path):
    other = new_server(tmp_path / "other")
    try:
        other.client().set("important", "1")
        assert "data of another system" in align(replace(spec, replica_url=other.url))
        assert other.client().get("important") == b"1"
    finally:
        other.close()
