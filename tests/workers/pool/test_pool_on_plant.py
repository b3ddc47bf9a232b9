"""The concurrency loop on a real host whose handler calls a slow service: the knee found, and followed."""

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import redis

from queues import keys
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.waiting import until
from tests.workers.celery_worker import CeleryWorker
from tests.workers.loops import ensured
from tests.workers.pool.slow_service import BLOCK, SlowService, feed, serving
from workers.control.engine import tick_due
from workers.models import LedgerEntry, Loop
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.slow, pytest.mark.django_db, pytest.mark.timeout(390)]
SERVICE_SECONDS = 0.1
BLOCKS_A_WORKER = 5
WAIT_SECONDS = 120.0


class Rig:
    """A plant whose loop of the host ticks each second, and whose queue never runs dry."""

    def __init__(self, control: redis.Redis, topology: Topology, segment: Segment) -> None:
        self.control, self.topology, self.segment = control, topology, segment
        self.plant = LocalPlant(control)
        self.sizes: list[int] = []

    def second(self) -> LedgerEntry | None:
        time.sleep(1.0)
        feed(self.control, self.topology, self.segment, BLOCKS_A_WORKER)
        entries = tick_due(self.plant, datetime.now(UTC), self.control, laws=("concurrency",))
        if not entries:
            return None
        self.sizes.append(entries[0].observation["threads"])
        return entries[0]

    def rests(self, where: range) -> bool:
        """Whether the pool has come to rest there."""
        entry = self.second()
        return entry is not None and entry.terms.get("phase") == "steady" and self.sizes[-1] in where


@pytest.fixture
def service():
    yield SlowService(6, SERVICE_SECONDS)


@pytest.fixture
def rig(control, broker, nodes, plant_topology, tmp_path, service):
    with serving(service) as url:
        queue = replace(
            plant_topology.queues["alert"],
            handler="webhook",
            handler_options={"url": url},
            events_per_worker=BLOCK * BLOCKS_A_WORKER,
        )
        topology = replace(plant_topology, queues={**plant_topology.queues, "alert": queue})
        control.set(keys.TOPOLOGY, topology.to_json())
        host = CeleryWorker(control, broker, tmp_path, slots=2).start()
        try:
            yield Rig(control, topology, Segment(nodes["n1"].client(), "alert"))
        finally:
            host.close()


def test_the_loop_finds_the_knee_of_a_slow_service_and_follows_it(rig, control, service):
    (loop,) = ensured(control, ["concurrency"])
    Loop.objects.update(mode="auto", interval_seconds=1.0)
    # Six are served at once. Starting each worker takes a moment, too, and a step is a quarter.
    until(lambda: rig.rests(range(5, 9)), WAIT_SECONDS, 0.0)
    first = rig.sizes[-1]
    explored = max(rig.sizes)
    for _ in range(15):
        rig.second()
    # It stays there, has the service work all the time, and has never asked for a pool much larger.
    assert set(rig.sizes[-12:]) == {first} and explored <= 16
    served, began = service.served, time.monotonic()
    for _ in range(5):
        rig.second()
    used = (service.served - served) * SERVICE_SECONDS / service.capacity / (time.monotonic() - began)
    assert used >= 0.75
    service.change(3)
    until(lambda: rig.rests(range(2, 5)), WAIT_SECONDS, 0.0)
    reasons = LedgerEntry.objects.filter(loop=loop).values_list("reason", flat=True)
    assert any("throughput changed" in reason for reason in reasons)
    assert all(1 <= size <= 16 for size in rig.sizes)
