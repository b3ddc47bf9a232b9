"""Servers sync each write while a durable queue has a container on their node."""

import json
import logging

import pytest

from common.errors import BadInput
from queues import keys
from queues.durability import DISK, MEMORY, REPLICATED
from queues.nodes.agent import Agent, connect
from queues.nodes.write_sync import WriteSync, check_nodes
from queues.topology import NodeSpec, QueueSpec
from tests.servers import new_server

SILENT = "redis://127.0.0.1:1/0"
SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite")


@pytest.fixture
def server(tmp_path):
    started = new_server(tmp_path)
    yield started
    started.close()


def queues(durability):
    return [QueueSpec("orders", "jobs", {"n1": 1000}, durability=durability)]


def settings_of(server):
    return tuple(server.client().config_get(*SETTINGS)[name] for name in SETTINGS)


def test_a_server_syncs_each_write_while_it_has_a_durable_queue_and_not_afterwards(server):
    sync, node = WriteSync(), server.client()
    assert sync.align(node, queues(MEMORY)) == "" and settings_of(server) == ("no", "yes")
    assert sync.align(node, queues(DISK)) == "" and settings_of(server) == ("always", "no")
    assert sync.align(node, queues(MEMORY)) == "" and settings_of(server) == ("no", "yes")


def test_the_settings_of_an_operator_are_restored(server):
    sync, node = WriteSync(), server.client()
    node.config_set("appendfsync", "everysec")
    for durability in (DISK, DISK, MEMORY):
        sync.align(node, queues(durability))
    assert settings_of(server) == ("everysec", "yes")


def test_a_server_that_was_restarted_syncs_again(server):
    sync = WriteSync()
    sync.align(server.client(), queues(DISK))
    server.kill()
    server.start()
    sync.align(server.client(), queues(DISK))
    assert settings_of(server) == ("always", "no")


def test_a_server_without_an_append_only_file_is_named(server):
    node = server.client()
    node.config_set("appendonly", "no")
    assert "orders" in WriteSync().align(node, queues(DISK))
    with pytest.raises(BadInput, match="n1 keeps no append-only file"):
        check_nodes(DISK, [NodeSpec("n1", server.url)])
    check_nodes(MEMORY, [NodeSpec("n1", server.url)])


def test_a_node_that_does_not_respond_prevents_no_durability():
    check_nodes(DISK, [NodeSpec("n1", SILENT)])


def test_a_replicated_queue_needs_a_replica_of_each_node():
    check_nodes(REPLICATED, [NodeSpec("n1", SILENT, replica_url=SILENT)])
    with pytest.raises(BadInput, match="n2 has no replica"):
        check_nodes(REPLICATED, [NodeSpec("n1", SILENT, replica_url=SILENT), NodeSpec("n2", SILENT)])


def test_a_node_that_may_not_be_set_still_sends_heartbeats(control, control_server, nodes, plant_topology, caplog):
    document = json.loads(plant_topology.to_json())
    document["queues"]["alert"]["durability"] = DISK
    control.set(keys.TOPOLOGY, json.dumps(document))
    agent = Agent("n1", connect(control_server.url))
    node = nodes["n1"].client()
    node.config_set("appendonly", "no", "appendfsync", "no")
    try:
        with caplog.at_level(logging.WARNING, "weir.agent"):
            reported = [agent.beat().durability_problem for _ in range(2)]
        assert [text.partition(",")[0] for text in reported] == ["the server keeps no append-only file"] * 2
        assert [record.message for record in caplog.records if "append-only" in record.message] == [
            "n1: events of durable queues are rejected: "
            "the server keeps no append-only file, which durable queues need (alert)"
        ]
        node.config_set("appendonly", "yes")
        agent.beat()
        assert node.config_get("appendfsync") == {"appendfsync": "always"}
        control.set(keys.TOPOLOGY, plant_topology.to_json())
        agent.beat()
        assert node.config_get("appendfsync") == {"appendfsync": "no"}
    finally:
        node.config_set("appendonly", "yes")
        agent.close()
