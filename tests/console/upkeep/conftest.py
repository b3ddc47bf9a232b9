"""What tests of backups are made on: empty servers, and a data folder."""

from collections.abc import Callable

import pytest

from console.upkeep.backup import rest
from tests.servers import Server, new_server

Fresh = Callable[[str], Server]


@pytest.fixture(autouse=True)
def at_rest_at_once(monkeypatch):
    """Whether nothing is at work is asked once, and not again after some seconds."""
    monkeypatch.setattr(rest, "IDLE_SECONDS", 0.0)


@pytest.fixture
def fresh(tmp_path):
    """Makes an empty server."""
    made = []

    def new(name):
        made.append(new_server(tmp_path / f"fresh-{name}", appendonly=False))
        return made[-1]

    yield new
    for server in made:
        server.close()


@pytest.fixture
def data(tmp_path, settings):
    settings.WEIR_DATA = tmp_path / "data"
    settings.WEIR_DATA.mkdir(mode=0o700)
    return settings.WEIR_DATA
