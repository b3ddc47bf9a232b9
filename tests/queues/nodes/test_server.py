"""Servers are found and configured so that nothing stored is forgotten."""

import stat
from pathlib import Path

import pytest
import redis

from queues.nodes import server
from queues.nodes.server import ServerConfig, ServerMissing
from tests.servers import new_server


def test_a_server_asks_for_its_password_and_refuses_when_full_rather_than_forget(tmp_path: Path):
    started = new_server(tmp_path / "with space", password="geheim")
    try:
        client = started.client()
        (policy,) = client.config_get("maxmemory-policy").values()
        assert policy in (b"noeviction", "noeviction")
        with redis.Redis(port=started.config.port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
    finally:
        started.close()


def test_the_configuration_is_for_its_owner_only(tmp_path: Path):
    path = server.write_config(ServerConfig(server.free_port(), tmp_path, password="secret"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "appendonly yes" in path.read_text()


def test_without_any_server_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(server, "NAMES", ("no-such-server",))
    monkeypatch.setattr(server.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ServerMissing, match="install"):
        server.find_server_binary()
