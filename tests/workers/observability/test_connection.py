"""Whatever stands at the collector's address, nothing waits for it and nothing is sent elsewhere."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from common import environment as variables
from tests.waiting import MAX_SECONDS, until
from workers.observability import collector
from workers.observability.collector import Collector
from workers.observability.unsent import MAX_SPANS


class Asked(ThreadingHTTPServer):
    """Answers each request with a status, and sends it on to `elsewhere`."""

    daemon_threads = True

    def __init__(self, status: int, elsewhere: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status, self.elsewhere, self.paths = status, elsewhere, []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Asked

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        self.send_header("Location", self.server.elsewhere)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read what was asked."""


@pytest.fixture
def elsewhere():
    yield from _serving(Asked(200))


@pytest.fixture
def sends_on(elsewhere):
    yield from _serving(Asked(307, f"{elsewhere.url}/v1/traces"))


def _serving(server: Asked) -> Iterator[Asked]:
    with server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def at(url: str, monkeypatch) -> Collector:
    monkeypatch.setenv(variables.OTLP_ENDPOINT.name, url)
    return Collector.open()


def send(connected: Collector) -> None:
    with connected.span("tick", {}, None):
        pass


def test_a_redirect_is_not_followed_and_counts_as_not_taken(sends_on, elsewhere, monkeypatch):
    connected = at(sends_on.url, monkeypatch)
    send(connected)
    connected.unsent.end(MAX_SECONDS)
    assert (sends_on.paths, elsewhere.paths, connected.unsent.dropped) == (["/v1/traces"], [], 1)


def test_a_proxy_of_the_environment_is_not_asked(elsewhere, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    connected = at(elsewhere.url, monkeypatch)
    send(connected)
    connected.unsent.end(MAX_SECONDS)
    assert (elsewhere.paths, connected.unsent.dropped) == (["/v1/traces"], 0)


def test_one_that_takes_connections_and_never_answers_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(collector, "SEND_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connected = at(f"http://127.0.0.1:{silent.getsockname()[1]}", monkeypatch)
        for _ in range(2 * MAX_SPANS):
            send(connected)
        until(lambda: connected.unsent.dropped > 0)
        connected.unsent.end(0.01)
