"""A node killed with -9, or frozen, under 20,000 events/s: nothing acknowledged is lost, nobody waits."""

import threading
import time
from datetime import UTC, datetime

import pytest

from queues import points, projection
from queues.events.block import decode
from queues.models import Container, Node, Queue
from queues.nodes.agent import Agent
from queues.publishing.client import Client
from queues.segments.segment import Segment
from tests.queues.samples import batch_of
from tests.waiting import MAX_SECONDS, until
from workers.placement import execution, recovery
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.django_db, pytest.mark.faults]
RATE_PER_SECOND = 20_000
EVENTS = 1_000  # a call
MAX_STALL_SECONDS = 1.0


class Publisher(threading.Thread):
    """Publishes RATE_PER_SECOND to `alert` until told to stop, and times each call."""

    def __init__(self, control_url):
        super().__init__(name="publisher", daemon=True)
        self.url, self.ended = control_url, threading.Event()
        self.acknowledged, self.slowest_seconds, self.error = 0, 0.0, None
        self.by_node: list[tuple[float, dict[str, int]]] = []

    def run(self):
        try:
            with Client(self.url, "loss") as client:
                due = time.monotonic()
                while not self.ended.wait(max(0.0, due - time.monotonic())):
                    due += EVENTS / RATE_PER_SECOND
                    batch = batch_of(EVENTS, first=self.acknowledged)
                    began = time.monotonic()
                    published = client.publish("alert", batch)
                    self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
                    assert published.events == EVENTS
                    self.acknowledged += EVENTS
                    self.by_node.append((began, dict(published.by_container)))
        except Exception as error:
            self.error = error

    def stop(self):
        self.ended.set()
        self.join(MAX_SECONDS)
        assert self.error is None, self.error


@pytest.fixture
def plant(control, nodes):
    share = points.share(list(nodes))
    queue = Queue.objects.create(name="alert", kind="jobs", handler="noop")
    for name, server in nodes.items():
        node = Node.objects.create(name=name, url=server.url)
        Container.objects.create(queue=queue, node=node, points=share[name])
    projection.project(control)
    agents = [Agent(name, control) for name in nodes]
    local = LocalPlant(control)

    def second():
        """One second of the plant: agents beat, somebody looks, recovery and plans go on."""
        for agent in agents:
            agent.beat()
        now = datetime.now(UTC)
        recovery.recover(control, local.observe(), now)
        execution.advance_all(control, now)
        return True

    yield second
    for agent in agents:
        agent.close()


@pytest.fixture
def publisher(control_server, plant):
    made = Publisher(control_server.url)
    yield made
    made.ended.set()
    made.join(MAX_SECONDS)


def live(second, seconds):
    """Let the plant live for some seconds of real time."""
    for _ in range(seconds):
        began = time.monotonic()
        second()
        until(lambda began=began: time.monotonic() - began >= 1.0)


def stored(nodes):
    found = set()
    for server in nodes.values():
        for _, block_id, data, _ in Segment(server.client(), "alert").read("0-0", "+"):
            found.update(decode(block_id, data).get_event_ids().to_pylist())
    return found


def check(publisher, nodes):
    publisher.stop()
    missing = {f"e{row}" for row in range(publisher.acknowledged)} - stored(nodes)
    assert not missing, f"{len(missing)} of {publisher.acknowledged} acknowledged events are lost"
    assert publisher.slowest_seconds < MAX_STALL_SECONDS


def diverted_seconds(publisher, lost, since):
    """Until the last block that was stored on the lost node, from its end."""
    return max((at - since for at, nodes in publisher.by_node if lost in nodes), default=0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_lost_node_costs_no_acknowledged_event_and_no_publisher_a_second(plant, publisher, nodes, how):
    live(plant, 1)
    publisher.start()
    live(plant, 2)
    lost_at = time.monotonic()
    getattr(nodes["n2"], how)()
    live(plant, 2)
    publisher.stop()
    assert diverted_seconds(publisher, "n2", lost_at) < MAX_STALL_SECONDS
    if how == "kill":
        nodes["n2"].start()
    else:
        nodes["n2"].thaw()
    assert publisher.acknowledged >= 0.5 * 4 * RATE_PER_SECOND
    check(publisher, nodes)


@pytest.mark.slow
def test_a_lost_nodes_points_are_restored_under_load_and_it_returns_with_its_data(plant, publisher, nodes):
    live(plant, 2)
    publisher.start()
    live(plant, 3)
    nodes["n2"].kill()
    live(plant, 16)
    assert projection.read_database().queue("alert").points == {"n1": 501, "n2": 0, "n3": 499}
    nodes["n2"].start()
    live(plant, 4)
    assert Node.objects.get(name="n2").offline_since is None
    assert all("n2" not in nodes for _, nodes in publisher.by_node[-20:])
    check(publisher, nodes)
