"""Waits for new entries of real nodes."""

import pytest

from queues import keys
from tests.workers.pipeline.times import Times
from workers.pipeline.dispatch.arrivals import RETRY_SECONDS, ArrivalWatch

LONG_SECONDS = 60.0
UNUSED = "redis://127.0.0.1:1/0"
STREAM = keys.SEGMENT.build("telemetry")


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def arrivals(times):
    made = ArrivalWatch(times, sleep=lambda _: None)
    yield made
    made.close()


def await_entry(arrivals: ArrivalWatch, known: dict[str, str], seconds: float = LONG_SECONDS) -> bool:
    return arrivals.await_entry({url: {"telemetry": entry_id} for url, entry_id in known.items()}, seconds)


def test_a_wait_ends_when_any_node_has_a_newer_entry(arrivals, nodes):
    known = {}
    for server in nodes.values():
        known[server.url] = server.client().xadd(STREAM, {"d": "old"}).decode()
    assert not await_entry(arrivals, known, 0.0)
    for server in nodes.values():
        newest = server.client().xadd(STREAM, {"d": "new"}).decode()
        assert await_entry(arrivals, known)
        known[server.url] = newest


def test_a_node_that_does_not_answer_delays_no_wait(arrivals, nodes, times):
    server = next(iter(nodes.values()))
    for _ in range(2):
        server.client().xadd(STREAM, {"d": "new"})
        assert await_entry(arrivals, {UNUSED: "0-0", server.url: "0-0"})
        times.now += RETRY_SECONDS


def test_a_wait_continues_after_a_lost_connection(arrivals, nodes, times):
    server = next(iter(nodes.values()))
    assert not await_entry(arrivals, {server.url: "0-0"}, 0.0)
    server.client().client_kill_filter(_type="normal", skipme=True)
    assert not await_entry(arrivals, {server.url: "0-0"}), "the node is left out"
    times.now += RETRY_SECONDS
    server.client().xadd(STREAM, {"d": "new"})
    assert await_entry(arrivals, {server.url: "0-0"})
