"""The probe of the console: what it makes of what answers, and that it goes on asking."""

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from queues.nodes.server import free_port
from tests.waiting import MAX_SECONDS
from workers.snapshot.observer import is_answering


@contextmanager
def answering(said: bytes) -> Iterator[str]:
    """The address of what says this to whoever connects, once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def say() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(said)

        thread = threading.Thread(target=say, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(MAX_SECONDS)


@pytest.mark.parametrize(
    ("said", "available"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", False),
        (b"", False),
        (b"\x15\x03\x01\x00\x02\x02\x46", False),  # TLS: the port takes https alone
        (b"HTTP/1.1 2", False),  # it ended while it answered
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000, False),
    ],
)
def test_a_console_is_there_where_it_answers_in_http_and_not_where_another_does(said, available):
    with answering(said) as address:
        assert is_answering(address) is available


def test_no_proxy_is_asked_for_the_console_next_door(monkeypatch):
    """It may know nobody of a plant's own network, and would answer for a console that is away."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # it is made once a process
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as address:
        assert is_answering(address)
