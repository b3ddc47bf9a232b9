"""The agent: what it measures and sends, and that silence means the server is away."""

import json
import os
import subprocess
import sys
import time

import pytest
import redis

from bench.queues.bit_flips import flip_bit, rewrite_entries
from queues import keys
from queues.nodes import agent as agents
from queues.nodes.agent import Agent, NodeSample, compute_utilization_by_part, connect
from queues.nodes.heartbeat import Membership, UtilizationByPart
from queues.segments.segment import Segment
from queues.topology import Capacity, NodeSpec, Topology
from tests.queues.samples import blocks_of
from tests.servers import Server
from tests.waiting import MAX_SECONDS, until

SPEC = NodeSpec("n1", "redis://x:1/0", Capacity(events_per_second=1000.0, memory_bytes=100))


@pytest.fixture
def agent(control_server: Server, plant_topology: Topology):
    control = connect(control_server.url)
    made = Agent("n1", control, clock=lambda: 1_790_000_000.0)
    yield made
    made.close()
    control.close()


def sample(at: float, cpu: float, memory: int, maxmemory: int, inserted: int) -> NodeSample:
    return NodeSample(at, cpu, memory, maxmemory, {"alert": {"inserted_events": inserted}})


def test_utilisation_by_part_is_a_share_of_capacity():
    before, now = sample(0.0, 5.0, 10, 0, 100), sample(2.0, 5.5, 60, 0, 2_100)
    assert compute_utilization_by_part(before, now, SPEC) == UtilizationByPart(cpu=0.25, memory=0.6, events=1.0)
    assert compute_utilization_by_part(None, now, SPEC) == UtilizationByPart(cpu=0.0, memory=0.6, events=0.0)


def test_memory_is_measured_against_what_the_server_may_really_take():
    assert compute_utilization_by_part(None, sample(0.0, 0.0, 20, 40, 0), SPEC).memory == 0.5


def test_a_server_that_came_back_empty_gives_no_negative_rates():
    shares = compute_utilization_by_part(sample(0.0, 50.0, 10, 0, 9_000), sample(1.0, 0.1, 10, 0, 0), SPEC)
    assert (shares.cpu, shares.events) == (0.0, 0.0)


def test_a_heartbeat_says_state_parts_and_containers(agent, control, nodes):
    Segment(nodes["n1"].client(), "alert").publish(blocks_of(8))
    assert agent.beat() is not None
    heartbeat = json.loads(control.hget(keys.HEARTBEATS, "n1"))
    assert set(heartbeat) == {
        "node", "seq", "at", "state", "utilisation", "raw", "parts", "memory_bytes", "containers",
        "ahead_seconds", "damaged_blocks", "unchecked_blocks", "missing_blocks", "damage", "damaged_at",
        "dropped_blocks", "dropped_at", "durability_problem",
    }  # fmt: skip
    assert (heartbeat["state"], heartbeat["at"]) == ("NORMAL", 1_790_000_000.0)
    assert heartbeat["raw"] == max(heartbeat["parts"].values())
    assert heartbeat["containers"]["alert"]["inserted_events"] == 8
    assert heartbeat["containers"]["alert"]["length_blocks"] == 2
    assert set(heartbeat["containers"]) == {"alert", "process", "telemetry"}


def test_a_heartbeat_names_the_block_that_was_found_damaged_last_after_its_queue_has_left(agent, nodes):
    segment = Segment(nodes["n1"].client(), "alert")
    segment.publish(blocks_of(8))
    rewrite_entries(segment.node, segment.stream, lambda place, parts: [*parts[:-1], flip_bit(parts[-1], 9)])
    for stored in segment.read("0-0", "+"):
        segment.quarantine(stored.entry_id, stored.damage, "w1")
    segment.node.delete(keys.DEAD.build("alert"))
    heartbeat = agent.beat()
    assert (heartbeat.damaged_blocks, heartbeat.missing_blocks, heartbeat.unchecked_blocks) == (2, 0, 0)
    assert "4 events" in heartbeat.damage
    assert heartbeat.damaged_at == pytest.approx(time.time(), abs=MAX_SECONDS)


def test_a_heartbeat_counts_blocks_that_the_server_has_lost(agent, nodes):
    segment = Segment(nodes["n1"].client(), "alert")
    segment.publish(blocks_of(12))
    assert agent.beat().missing_blocks == 0
    segment.node.xtrim(segment.stream, maxlen=1, approximate=False)
    assert agent.beat().missing_blocks == 2


def test_blocks_that_a_server_no_longer_knows_are_counted_also_by_the_next_agent(agent, control_server, nodes):
    segment = Segment(nodes["n1"].client(), "alert")
    segment.publish(blocks_of(12))
    assert agent.beat().dropped_blocks == 0
    segment.node.flushall()
    assert agent.beat().dropped_blocks == 0, "an empty server is a new one"
    segment.publish(blocks_of(12))
    agent.beat()
    segment.node.flushall()
    segment.publish(blocks_of(4))
    assert (agent.beat().dropped_blocks, agent.beat().dropped_at) == (2, 1_790_000_000.0)
    control = connect(control_server.url)
    following = Agent("n1", control)
    assert following.beat().dropped_blocks == 2
    following.close()
    control.close()


def test_a_node_beats_on_while_the_topology_can_not_be_read(agent, control, nodes):
    agent.beat()
    control.set(keys.TOPOLOGY, b'{"newer": 1}')
    assert agent.beat().containers


def test_a_node_near_its_memory_is_toobusy(agent, nodes):
    client = nodes["n1"].client()
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.02))
    assert agent.beat().state == "TOOBUSY"


def test_a_node_without_points_is_idle_but_shows_what_still_waits(agent, control, nodes, plant_topology):
    Segment(nodes["n1"].client(), "alert").publish(blocks_of(4))
    document = json.loads(plant_topology.to_json())
    for queue in document["queues"].values():
        queue["points"] = {"n2": 1000}
    control.set(keys.TOPOLOGY, json.dumps(document))
    heartbeat = agent.beat()
    assert heartbeat.state == "IDLE"
    assert set(heartbeat.containers) == {"alert"}


@pytest.mark.faults
def test_no_heartbeat_goes_out_while_the_server_is_away_and_it_goes_on_afterwards(agent, control, nodes):
    first = agent.beat().seq
    nodes["n1"].kill()
    assert agent.beat() is None
    assert json.loads(control.hget(keys.HEARTBEATS, "n1"))["seq"] == first
    nodes["n1"].start()
    assert agent.beat().seq == first + 1


def test_a_beat_says_by_how_much_the_agents_clock_was_off_at_the_one_before(control, plant_topology):
    agent = Agent("n1", control, clock=lambda: time.time() + 600)
    assert agent.beat().ahead_seconds == 0.0
    assert 599 < agent.beat().ahead_seconds < 601


@pytest.mark.faults
def test_a_frozen_server_is_not_waited_for(agent, nodes, monkeypatch):
    monkeypatch.setattr(agents, "TIMEOUT_SECONDS", 0.4)
    nodes["n1"].freeze()
    assert agent.beat() is None
    nodes["n1"].thaw()
    until(agent.beat)


@pytest.mark.faults
def test_a_control_server_that_was_away_is_beaten_to_again(agent, control, control_server, plant_topology):
    agent.beat()
    control_server.kill()
    assert agent.beat() is None
    control_server.start()
    control.set(keys.TOPOLOGY, plant_topology.to_json())
    assert until(agent.beat)


def test_a_new_agent_goes_on_behind_the_old_ones_seq(agent, control):
    control.hset(keys.HEARTBEATS, "n1", json.dumps({"seq": 811}))
    assert agent.beat().seq == 812


def test_an_unknown_node_sends_nothing(control, plant_topology):
    stranger = Agent("n9", control)
    assert stranger.beat() is None
    assert control.hgetall(keys.HEARTBEATS) == {}


@pytest.mark.slow
def test_the_process_beats_each_second_without_arrow_or_django_and_ends_on_sigterm(
    control: redis.Redis, control_server: Server, plant_topology: Topology
):
    environment = {**os.environ, "REDIS_URL": control_server.url}
    process = subprocess.Popen([sys.executable, "-m", "queues.nodes.agent", "n1"], env=environment)
    try:

        def seq() -> int:
            return json.loads(control.hget(keys.HEARTBEATS, "n1") or b'{"seq": 0}')["seq"]

        membership = Membership().record_sequences({"n1": until(seq)}, 0.0)
        assert until(lambda: seq() > membership.heard["n1"].seq)
    finally:
        process.terminate()
        assert process.wait(MAX_SECONDS) == 0
    loaded = "import sys, queues.nodes.agent; print([m for m in ('pyarrow', 'django', 'numpy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_missing_control_url_is_named():
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    command = [sys.executable, "-m", "queues.nodes.agent", "n1"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "REDIS_URL" in ended.stderr
