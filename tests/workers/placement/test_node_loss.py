"""A node killed with -9, or frozen, under 20,000 events/s: nothing acknowledged is lost, nobody waits."""

import threading
import time

import pytest

from queues.events.block import decode
from queues.publishing.client import Client
from queues.segments.segment import Segment
from tests.queues.samples import batch_of
from tests.waiting import until

RATE_PER_SECOND, SECONDS = 20_000, 4
EVENTS = 1_000  # a call
MAX_STALL_SECONDS = 1.0


@pytest.mark.faults
@pytest.mark.thorough
@pytest.mark.parametrize(("lose", "get_back"), [("kill", "start"), ("freeze", "thaw")])
def test_a_lost_node_costs_no_acknowledged_event_and_no_publisher_a_second(
    control_server, plant_topology, nodes, lose, get_back
):
    acknowledged, slowest_seconds, was_there_at = 0, 0.0, 0.0
    loss, began = threading.Timer(SECONDS / 2, getattr(nodes["n2"], lose)), time.monotonic()
    with Client(control_server.url, "loss") as client:
        loss.start()
        while acknowledged < SECONDS * RATE_PER_SECOND:
            due = began + acknowledged / RATE_PER_SECOND
            until(lambda due=due: time.monotonic() >= due, every_seconds=0.001)
            asked = time.monotonic()
            published = client.publish("alert", batch_of(EVENTS, first=acknowledged))
            slowest_seconds = max(slowest_seconds, time.monotonic() - asked)
            assert published.events == EVENTS
            acknowledged += EVENTS
            was_there_at = asked if "n2" in published.by_container else was_there_at
    loss.join()
    getattr(nodes["n2"], get_back)()
    assert was_there_at - began - SECONDS / 2 < MAX_STALL_SECONDS
    assert slowest_seconds < MAX_STALL_SECONDS
    stored = {
        name
        for server in nodes.values()
        for _, block_id, data in Segment(server.client(), "alert").read("0-0", "+")
        for name in decode(block_id, data).get_event_ids().to_pylist()
    }
    missing = {f"e{row}" for row in range(acknowledged)} - stored
    assert not missing, f"{len(missing)} of {acknowledged} acknowledged events are lost"
