"""Damage to the append-only file of a server: what it destroys, and what the server has afterwards."""

from pathlib import Path
from random import Random

import pytest

from bench.faults.stored_log import cut, flip, tear
from queues.nodes.server import ServerConfig, free_port
from queues.segments.segment import Segment
from tests.queues.samples import blocks_of
from tests.servers import Server

EVENTS = 40


@pytest.fixture
def server(tmp_path: Path):
    server = Server(ServerConfig(free_port(), tmp_path / "n1"))
    server.start()
    Segment(server.client(), "alert").publish(blocks_of(EVENTS))
    server.kill()
    yield server
    server.close()


def read_after_start(server: Server) -> list[bool]:
    """Start the server, and return whether each block is damaged."""
    server.start()
    return [stored.damage is not None for stored in Segment(server.client(), "alert").read("0-0", "+")]


@pytest.mark.parametrize("seed", range(3))
def test_a_command_that_was_never_complete_destroys_nothing(server, seed):
    assert tear(server.config.folder, "alert", Random(seed)) == 0
    assert read_after_start(server) == [False] * (EVENTS // 4)


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_destroys_the_flush_that_it_reaches(server, seed):
    assert cut(server.config.folder, "alert", Random(seed)) == EVENTS
    assert read_after_start(server) == []


@pytest.mark.parametrize("seed", range(3))
def test_an_inverted_bit_damages_the_newest_block(server, seed):
    assert flip(server.config.folder, "alert", Random(seed)) == 4
    assert read_after_start(server) == [False] * (EVENTS // 4 - 1) + [True]


def test_a_file_without_a_block_of_the_queue_is_not_damaged(server):
    assert flip(server.config.folder, "process", Random(1)) == 0
    assert read_after_start(server) == [False] * (EVENTS // 4)
