"""What a server has acknowledged outlasts its kill, and is on the disk a second later."""

import random
import threading
from pathlib import Path

import pytest

from queues.nodes import file_sync
from queues.nodes.file_sync import FileSync
from tests.servers import Server, new_server

KILLS, MAX_WRITES = 8, 150
PAYLOAD = b"x" * 20_000


def write_until_killed(server: Server, number: int) -> int:
    """How many writes were acknowledged before the server was killed, while its file was put on the disk."""
    sync = FileSync([server.config.folder], pytest.fail)
    client = server.client(retry=None)
    for _ in range(number):
        client.rpush("written", PAYLOAD)
    syncing = threading.Thread(target=sync.sync)
    syncing.start()
    acknowledged = client.rpush("written", PAYLOAD)
    server.kill()
    syncing.join()
    return acknowledged


def test_a_server_that_is_killed_while_its_file_is_put_on_the_disk_has_all_that_it_acknowledged(tmp_path):
    random_number = random.Random(7)
    server = new_server(tmp_path)
    try:
        for _ in range(KILLS):
            acknowledged = write_until_killed(server, random_number.randint(1, MAX_WRITES))
            server.start()
            assert server.client().llen("written") == acknowledged
    finally:
        server.close()


def test_every_server_that_weir_starts_leaves_the_disk_to_it(tmp_path):
    server = new_server(tmp_path)
    try:
        assert server.client().config_get("appendfsync") == {"appendfsync": "no"}
        synced: list[Path] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_sync, "put_on_disk", synced.append)
            FileSync([tmp_path], pytest.fail).sync()
        assert any(".incr." in path.name for path in synced)
    finally:
        server.close()


def test_a_disk_that_refuses_is_named_once_and_so_is_its_return(tmp_path, monkeypatch):
    (tmp_path / "n1" / "appendonlydir").mkdir(parents=True)
    (tmp_path / "n1" / "appendonlydir" / "a.incr.aof").write_bytes(b"x")
    said: list[str] = []
    sync = FileSync([tmp_path / "n1"], said.append)

    def refuse(_opened: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(file_sync.os, "fdatasync", refuse)
        sync.sync()
        sync.sync()
    sync.sync()
    assert len(said) == 2 and "n1" in said[0] and "Input/output error" in said[0] and "again" in said[1]


def test_a_file_that_the_server_replaced_meanwhile_is_passed_over(tmp_path):
    file_sync.put_on_disk(tmp_path / "gone.aof")
