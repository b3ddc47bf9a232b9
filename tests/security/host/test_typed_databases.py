"""An address of a database that a person types: no password of the host goes there."""

import socket
import struct
import threading
from contextlib import suppress

import psycopg
import pytest

from workers.consumer.handlers import sql

PASSWORD = "of-another-database"
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
CLEARTEXT, MD5 = struct.pack("!cii", b"R", 8, 3), struct.pack("!cii4s", b"R", 12, 5, b"salt")


class Thief:
    """A server that speaks PostgreSQL up to the login, and keeps what it is told."""

    def __init__(self, demand: bytes) -> None:
        self.heard, self._demand = b"", demand
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            for _ in range(5):
                connection, _ = self._listening.accept()
                connection.settimeout(2)
                with connection, suppress(OSError, struct.error):
                    self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        while True:
            size, code = struct.unpack("!ii", connection.recv(8))
            connection.recv(size - 8)
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            connection.sendall(b"N")
        connection.sendall(self._demand)
        self.heard += connection.recv(1_000)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture(params=[CLEARTEXT, MD5], ids=["cleartext", "md5"])
def thief(request):
    server = Thief(request.param)
    yield server
    server.close()


def connect(thief: Thief) -> None:
    """As a worker does, for a name that an administrator of Weir has typed."""
    with pytest.raises(psycopg.OperationalError):
        sql.connect(f"postgresql://weir@thief.example:{thief.port}/weir", lambda *_, **__: ["127.0.0.1"])


def test_a_password_of_the_environment_is_not_sent(thief, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    connect(thief)
    assert thief.heard == b""


def test_a_password_file_of_the_environment_is_not_sent(thief, tmp_path, monkeypatch):
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:*:*:{PASSWORD}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    connect(thief)
    assert thief.heard == b""


def test_the_host_s_own_address_still_logs_in_with_its_password(thief, monkeypatch):
    """The thief hears what it is sent, so that the tests above can fail."""
    with pytest.raises(psycopg.OperationalError):
        sql.open_own(f"postgresql://weir:{PASSWORD}@127.0.0.1:{thief.port}/weir")
    assert thief.heard.startswith(b"p")
