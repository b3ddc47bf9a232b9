"""Publishing from one host to nodes on others: what is acknowledged is stored, whatever the network does."""

import sys
import time
from pathlib import Path

import pytest
import redis

from queues import keys
from queues.nodes.server import ServerConfig, prepare_server_command
from queues.points import share
from queues.publishing.client import Client
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.hosts.network import Network, missing, network
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.faults]
NODES, QUEUE, PORT = ("n1", "n2", "n3"), "alert", 6379
FAST = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0, "retry": None}
FLUSHES, EVENTS = 40, 20


@pytest.fixture
def net(tmp_path):
    """A control server and three nodes with their agents, each on a host of its own; the test publishes."""
    if absent := missing():
        pytest.skip(absent)
    with network(("control", *NODES), tmp_path, clocked=("n2",)) as net:
        for host in ("control", *NODES):
            line = prepare_server_command(ServerConfig(PORT, tmp_path / host, 128 * 2**20, bind="0.0.0.0"))
            with Path(line[-1]).open("a") as file:
                file.write("protected-mode no\n")
            net.start(host, line, {"PATH": "/usr/bin:/bin"}, host)
        control = client_of(net, "control")
        until(control.ping, 20)
        nodes = {name: NodeSpec(name, url_of(net, name)) for name in NODES}
        queue = QueueSpec(QUEUE, "jobs", share(NODES))
        control.set(keys.TOPOLOGY, Topology(1, nodes, {QUEUE: queue}).to_json())
        for name in NODES:
            agent = [sys.executable, "-m", "queues.nodes.agent", name]
            environment = {"REDIS_URL": url_of(net, "control"), "PATH": "/usr/bin:/bin"}
            net.start(name, agent, environment, f"agent-{name}")
        until(lambda: control.hlen(keys.HEARTBEATS) == len(NODES), 30)
        yield net


def url_of(net: Network, host: str) -> str:
    return f"redis://{net.of(host)}:{PORT}/0"


def client_of(net: Network, host: str) -> redis.Redis:
    return redis.Redis.from_url(url_of(net, host), **FAST)


def stored(net: Network) -> int:
    """Events of different blocks on all nodes: the same block on two of them is one in effect."""
    blocks: dict[bytes, int] = {}
    for name in NODES:
        with client_of(net, name) as node:
            for _, fields in node.xrange(keys.SEGMENT.build(QUEUE)):
                blocks[fields[b"i"]] = int(fields[b"n"])
    return sum(blocks.values())


def publish(client: Client, flushes: int = FLUSHES) -> tuple[int, int]:
    """(acknowledged, sent to another node than was meant)."""
    events = [{"type": "steady", "key": str(number)} for number in range(EVENTS)]
    done = [client.publish(QUEUE, events) for _ in range(flushes)]
    return sum(each.events for each in done), sum(each.rerouted for each in done)


def beat(net: Network, node: str) -> bytes | None:
    with client_of(net, "control") as control:
        return control.hget(keys.HEARTBEATS, node)


def test_what_a_cut_off_node_would_get_goes_to_others_and_it_is_used_again_later(net):
    with Client(url_of(net, "control"), producer="desk") as client:
        before, _ = publish(client)
        with net.disturbed("n3", cut=True):
            during, rerouted = publish(client)
            last = beat(net, "n3")
            assert rerouted > 0
        until(lambda: beat(net, "n3") != last, 30)
        with client_of(net, "n3") as node:
            had = node.xlen(keys.SEGMENT.build(QUEUE))
            after = 0
            deadline = time.monotonic() + 30
            while node.xlen(keys.SEGMENT.build(QUEUE)) == had and time.monotonic() < deadline:
                after += publish(client, 5)[0]
            assert node.xlen(keys.SEGMENT.build(QUEUE)) > had
    assert stored(net) == before + during + after


@pytest.mark.parametrize("what", [{"delay_seconds": 0.1}, {"loss": 0.05}], ids=["200 ms", "5 % lost"])
def test_over_a_slow_or_lossy_network_all_that_is_acknowledged_is_stored_once(net, what):
    with Client(url_of(net, "control"), producer="desk") as client, net.disturbed("n2", **what):
        acknowledged, _ = publish(client)
        last = beat(net, "n2")
        until(lambda: beat(net, "n2") != last, 30)  # its agent is heard
    assert stored(net) == acknowledged


def test_without_the_control_server_publishing_goes_on_by_the_topology_that_is_known(net):
    with Client(url_of(net, "control"), producer="desk") as client:
        before, _ = publish(client, 2)
        with net.disturbed("control", cut=True):
            during, _ = publish(client, 10)
    assert stored(net) == before + during


@pytest.mark.parametrize("ahead_seconds", [600, -600])
def test_a_node_whose_clock_is_stepped_beats_on_and_takes_events(net, ahead_seconds):
    if not net.has_clocks:
        pytest.skip("needs a C compiler (cc) for clocks of its own")
    with Client(url_of(net, "control"), producer="desk") as client:
        before, _ = publish(client, 5)
        net.set_clock("n2", ahead_seconds)
        with client_of(net, "n2") as node:
            until(lambda: abs(node.time()[0] - time.time() - ahead_seconds) < 5, 10)
        last = beat(net, "n2")
        until(lambda: beat(net, "n2") != last, 30)
        after, rerouted = publish(client)
        assert rerouted == 0
    assert stored(net) == before + after
