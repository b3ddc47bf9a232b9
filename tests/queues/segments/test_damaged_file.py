"""A node's append-only file is damaged while its server is stopped: no damaged block is handled afterwards."""

import subprocess
from pathlib import Path

import pytest

from bench.queues.bit_flips import find_log, flip_bit
from queues import keys
from queues.nodes.agent import Agent, connect
from queues.nodes.server import prepare_server_command
from queues.segments.segment import Segment
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.queues.samples import blocks_of
from tests.servers import Server, new_server
from tests.waiting import MAX_SECONDS, until

pytestmark = pytest.mark.faults


@pytest.fixture
def server(tmp_path: Path):
    """A stopped server with three blocks in its file."""
    server = new_server(tmp_path / "n1")
    Segment(server.client(), "alert").publish(blocks_of(12))
    server.stop()
    yield server
    server.close()


@pytest.fixture
def agent(server: Server, control_server: Server, control):
    """The agent of that node."""
    queues = {"alert": QueueSpec("alert", "jobs", {"n1": 1000}, minimum_containers=1, handler="noop")}
    control.set(keys.TOPOLOGY, Topology(1, {"n1": NodeSpec("n1", server.url)}, queues).to_json())
    connected = connect(control_server.url)
    agent = Agent("n1", connected)
    yield agent
    agent.close()
    connected.close()


def change_log(server: Server, old: bytes, new: bytes) -> None:
    """Replace the first occurrence of `old` in the server's file."""
    log = find_log(server.config.folder)
    content = log.read_bytes()
    assert old in content and len(old) == len(new)
    log.write_bytes(content.replace(old, new, 1))


def test_a_flipped_bit_in_the_data_of_a_block_is_found(server):
    log = find_log(server.config.folder)
    content = log.read_bytes()
    place = content.index(b"\r\nd\r\n") + 300
    log.write_bytes(flip_bit(content, 8 * place))
    server.start()
    damaged, *intact = Segment(server.client(), "alert").read("0-0", "+")
    assert damaged.damage is not None
    assert len(intact) == 2 and all(each.damage is None for each in intact)


def test_a_block_that_went_to_another_key_is_counted_as_missing(server, agent):
    segment = keys.SEGMENT.build("alert").encode()
    change_log(server, segment, flip_bit(segment, 0))
    server.start()
    heartbeat = agent.beat()
    assert (heartbeat.missing_blocks, heartbeat.damaged_blocks) == (1, 0)
    assert len(list(Segment(server.client(), "alert").read("0-0", "+"))) == 2


def test_blocks_that_the_server_dropped_for_a_damaged_entry_id_are_counted_as_missing(server, agent):
    """All later IDs are smaller than the damaged one, and the server drops their blocks when it starts."""
    log = find_log(server.config.folder)
    content = log.read_bytes()
    head = content.index(keys.SEGMENT.build("alert").encode())
    place = content.index(b"\r\n", content.index(b"$", head)) + 2
    assert content[place : place + 1] == b"1"
    log.write_bytes(content[:place] + b"9" + content[place + 1 :])
    server.start()
    stored = list(Segment(server.client(), "alert").read("0-0", "+"))
    assert [each.damage for each in stored] == [None] * len(stored)
    assert agent.beat().missing_blocks == 3 - len(stored)


def test_blocks_that_the_server_cut_off_are_counted_as_dropped(server, agent):
    server.start()
    Segment(server.client(), "alert").publish(blocks_of(4))
    assert agent.beat().dropped_blocks == 0
    server.stop()
    log = find_log(server.config.folder)
    log.write_bytes(log.read_bytes()[:-20])
    server.start()
    heartbeat = until(agent.beat)
    assert (heartbeat.dropped_blocks, heartbeat.missing_blocks) == (1, 0)


def test_a_server_whose_file_has_a_broken_structure_does_not_start_and_its_node_is_silent(server, agent):
    change_log(server, b"XADD", b"XA\x04D")
    refused = subprocess.run(
        prepare_server_command(server.config), stdin=subprocess.DEVNULL, capture_output=True, timeout=MAX_SECONDS
    )
    assert refused.returncode != 0
    assert b"append only file" in (refused.stdout + refused.stderr)
    assert agent.beat() is None
