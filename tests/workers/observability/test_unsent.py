"""Whatever stands at the collector's address, nothing waits for it: what waits is bounded, what is lost is counted."""

import socket
import threading

from common import environment as variables
from tests.waiting import MAX_SECONDS, until
from tests.workers.alerts.receiving import hook
from workers.observability import collector
from workers.observability.collector import Collector
from workers.observability.unsent import COMPLAIN_SECONDS, MAX_SPANS, Unsent


def test_what_is_put_is_sent_in_order_and_in_batches():
    sent = []
    unsent = Unsent("spans", lambda batch: not sent.append(batch), batch=2, every_seconds=60.0)
    for number in range(5):
        unsent.put(number)
    unsent.end(MAX_SECONDS)
    assert [number for batch in sent for number in batch] == [0, 1, 2, 3, 4]
    assert max(map(len, sent)) == 2 and unsent.dropped == 0


def test_a_slow_collector_keeps_nobody_waiting_and_the_oldest_give_way():
    asked, answered, sent = threading.Event(), threading.Event(), []

    def send(batch):
        asked.set()
        answered.wait()
        sent.extend(batch)
        return True

    unsent = Unsent("spans", send, most=3, batch=1)
    unsent.put("first")
    assert asked.wait(MAX_SECONDS)
    for number in range(10):
        unsent.put(number)  # would never come back if it waited
    assert unsent.dropped == 7
    answered.set()
    unsent.end(MAX_SECONDS)
    assert sent == ["first", 7, 8, 9]


def test_what_is_not_taken_or_fails_is_counted_and_said_once_a_minute(caplog):
    now = [0.0]

    def send(batch):
        if batch == ["bad"]:
            raise OSError("connection refused: password")
        return False

    unsent = Unsent("spans", send, batch=1, monotonic=lambda: now[0])
    for number, item in enumerate(("a", "bad", "c"), 1):
        unsent.put(item)
        until(lambda number=number: unsent.dropped == number)
    now[0] = COMPLAIN_SECONDS
    unsent.put("d")
    unsent.end(MAX_SECONDS)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" spans")[0] for line in lines] == ["1", "3"]
    assert "(4 since the start)" in lines[1] and "password" not in caplog.text


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
