"""One contract for every plant: the plant in memory, the simulated one, and the real one on real servers."""

import json
import time
from contextlib import suppress
from itertools import count
from queue import Empty

import pytest

from common.errors import BadInput
from common.stored_document import convert_to_plain
from console.celery import app
from queues import keys
from queues.nodes.agent import Agent
from queues.segments.segment import Segment
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.workers.samples import fill
from workers import tasks
from workers.documents.snapshot import Snapshot
from workers.plants.memory import MemoryPlant
from workers.snapshot.local import LocalPlant
from workers.twin.simulated_plant import SimulatedPlant

pytestmark = pytest.mark.django_db
QUEUE, NODE = "alert", "n1"
BLOCK = 500


class MemoryRig:
    """The plant in memory, with the actions of a real plant's workers."""

    def __init__(self):
        seconds = count(1_790_000_000)
        self.plant = MemoryPlant(lambda: float(next(seconds)), [(QUEUE, NODE), (QUEUE, "n2")])

    def observe(self):
        return self.plant.observe()

    def publish(self, blocks):
        self.plant.put(QUEUE, NODE, blocks * BLOCK)

    def run_workers(self):
        return self.plant.run(QUEUE, NODE, 5_000)

    def steered(self, application):
        return self.plant.steered[application]

    def host(self):
        return next(iter(self.plant.hosts))

    def pool(self, host):
        return self.plant.hosts[host]["slots"]


class SimulatedRig:
    """The simulated plant, with a scenario that runs workers when it is told."""

    def __init__(self):
        points = {NODE: 600, "n2": 400}
        nodes = {name: NodeSpec(name, "") for name in points}
        self.plant = SimulatedPlant(Topology(1, nodes, {QUEUE: QueueSpec(QUEUE, "jobs", points)}), {"jobs@twin": 2})

    def observe(self):
        self.plant.clock.now += 1.0
        self.plant.beat()
        return self.plant.publish({})

    def publish(self, blocks):
        self.plant.container(QUEUE, NODE).insert(blocks * BLOCK, self.plant.clock())

    def run_workers(self):
        row = self.plant.container(QUEUE, NODE)
        started = row.start_workers()
        row.remove(5_000 * started)
        return started

    def steered(self, application):
        return self.plant.controls[application]

    def host(self):
        return next(iter(self.plant.hosts))

    def pool(self, host):
        return self.observe().hosts[host].slots


class LocalRig:
    """The local plant: real node servers and agents; tasks are taken from the real broker and run here."""

    def __init__(self, control, nodes):
        self.plant = LocalPlant(control)
        self.agents = [Agent(name, control) for name in nodes]
        self.segment = Segment(nodes[NODE].client(), QUEUE)
        self.control = control

    def observe(self):
        for agent in self.agents:
            agent.beat()
        return self.plant.observe()

    def publish(self, blocks):
        fill(self.segment, blocks, BLOCK)

    def run_workers(self):
        before = self.started()
        with app.connection_for_read() as connection, suppress(Empty):
            submitted = connection.SimpleQueue("jobs")
            while True:
                message = submitted.get(block=False)
                tasks.consume(*message.payload[0])
                message.ack()
        return self.started() - before

    def steered(self, application):
        return json.loads(self.control.get(keys.PIPELINE_CONTROLS.build(application)))

    def host(self):
        document = {"role": "jobs", "slots": 2, "pid": 7, "resizable": True, "busy": 0, "at": time.time()}
        self.control.hset("weir:hosts", "jobs@here", json.dumps(document))
        return "jobs@here"

    def pool(self, host):
        stored = self.control.get(f"weir:pool:{host}")
        return json.loads(stored)["threads"] if stored else 2

    def started(self):
        return int(self.control.hget(f"weir:work:{QUEUE}:{NODE}", "started") or 0)

    def close(self):
        for agent in self.agents:
            agent.close()


@pytest.fixture(params=["memory", "simulated", "local"])
def rig(request, monkeypatch):
    if request.param != "local":
        yield MemoryRig() if request.param == "memory" else SimulatedRig()
        return
    request.getfixturevalue("plant_topology")
    settings = request.getfixturevalue("settings")
    monkeypatch.setitem(app.conf, "broker_url", settings.CELERY_BROKER_URL)
    # Celery keeps its first connections: those of another test would lead to another broker.
    monkeypatch.setattr(app.amqp, "_producer_pool", None)
    local = LocalRig(request.getfixturevalue("control"), request.getfixturevalue("nodes"))
    yield local
    local.close()


def container(rig, node=NODE):
    return convert_to_plain(rig.observe())["queues"][QUEUE]["containers"][node]


def test_a_snapshot_is_what_its_type_says_and_the_callers_own(rig):
    snapshot = rig.observe()
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    snapshot.queues.clear()
    assert rig.observe().queues


def test_submitted_workers_wait_to_run_then_run_and_remove_events(rig):
    rig.publish(14)
    assert rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0", "e1-1"]) == ["e1-0", "e1-1"]
    assert container(rig)["waiting_to_run"] == 2
    assert rig.run_workers() == 2
    row = container(rig)
    assert (row["waiting_to_run"], row["workers_started"], row["removed_events"]) == (0, 2, 14 * BLOCK)


def test_the_same_ids_submitted_again_run_only_once(rig):
    for _ in range(2):
        rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0", "e1-1"])
    assert rig.run_workers() == 2
    rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0", "e1-1"])
    assert rig.run_workers() == 0


def test_an_order_that_does_not_fit_is_refused_and_changes_nothing(rig):
    with pytest.raises(BadInput):
        rig.plant.start_workers(QUEUE, NODE, 2, ["e1-0"])
    with pytest.raises(BadInput):
        rig.plant.start_workers(QUEUE, "n9", 1, ["e1-0"])
    assert container(rig)["waiting_to_run"] == 0


def test_an_application_is_steered_whole_or_not_at_all(rig):
    rig.plant.steer_pipeline("app", {"admit_events_per_second": 500.0, "shares": {"iap1": 0.25}})
    rig.plant.steer_pipeline("app", {"shares": {"iap1": 0.5}})
    rig.plant.steer_pipeline("app", {"shares": {"iap1": 0.5}})
    with pytest.raises(BadInput, match=r"controls\.shares"):
        rig.plant.steer_pipeline("app", {"admit_events_per_second": 1.0, "shares": {"iap1": 2.0}})
    steered = rig.steered("app")
    assert (steered["admit_events_per_second"], steered["shares"]) == (500.0, {"iap1": 0.5})


def test_a_pool_is_asked_for_a_size_that_stands_when_it_is_kept(rig):
    host = rig.host()
    rig.plant.keep_pool(host)
    assert rig.pool(host) == 2
    for _ in range(2):
        rig.plant.resize_pool(host, 5)
    rig.plant.keep_pool(host)
    assert rig.pool(host) == 5


@pytest.mark.parametrize(("host", "threads"), [("here", 0), ("here", 5_000), ("nowhere", 3)])
def test_a_size_that_no_pool_can_have_is_refused_and_changes_nothing(rig, host, threads):
    name = rig.host()
    with pytest.raises(BadInput):
        rig.plant.resize_pool(name if host == "here" else host, threads)
    assert rig.pool(name) == 2
