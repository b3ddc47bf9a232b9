"""Whatever stands at the collector's address, nothing waits for it and nothing is sent elsewhere."""

import socket

from common import environment as variables
from tests.waiting import MAX_SECONDS, until
from tests.workers.alerts.receiving import hook
from workers.observability import collector
from workers.observability.collector import Collector
from workers.observability.unsent import MAX_SPANS


def at(port: int, monkeypatch) -> Collector:
    monkeypatch.setenv(variables.OTLP_ENDPOINT.name, f"http://127.0.0.1:{port}")
    return Collector.open()


def send(connected: Collector) -> None:
    with connected.span("tick", {}, None):
        pass


def test_a_redirect_is_not_followed_and_counts_as_not_taken(monkeypatch):
    with hook() as sends_on, hook() as elsewhere:
        sends_on.answers, sends_on.location = [307], f"http://127.0.0.1:{elsewhere.port}/v1/traces"
        connected = at(sends_on.port, monkeypatch)
        send(connected)
        connected.unsent.end(MAX_SECONDS)
    assert (sends_on.paths, elsewhere.paths, connected.unsent.dropped) == (["/v1/traces"], [], 1)


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with hook() as received:
        connected = at(received.port, monkeypatch)
        send(connected)
        connected.unsent.end(MAX_SECONDS)
    assert (received.paths, connected.unsent.dropped) == (["/v1/traces"], 0)


def test_one_that_takes_connections_and_never_answers_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(collector, "SEND_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connected = at(silent.getsockname()[1], monkeypatch)
        for _ in range(2 * MAX_SPANS):
            send(connected)
        until(lambda: connected.unsent.dropped > 0)
        connected.unsent.end(0.01)
