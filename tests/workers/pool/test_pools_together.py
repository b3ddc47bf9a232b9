"""Three real worker hosts whose handlers call one service: they explore together and share it alike; when it
grows, they find out."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
import redis

from queues import keys
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.servers import Server
from tests.waiting import until
from tests.workers.celery_worker import CeleryWorker
from tests.workers.loops import ensured
from tests.workers.pool.slow_service import SlowService, serving
from tests.workers.samples import fill
from workers.consumer.dispatch import send_workers
from workers.consumer.work_report import count_waiting_workers
from workers.control.engine import tick_due
from workers.models import LedgerEntry, Loop
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.slow, pytest.mark.django_db, pytest.mark.timeout(1500)]
MACHINES = ("a", "b", "c")
# Long calls: three hosts and the service share this machine's cores, and must not be bound by them.
SERVICE_SECONDS, CAPACITY = 0.3, 12
BLOCK, BLOCKS_A_WORKER = 8, 2
# Hosts that share a service walk up together, a step each until all have measured it (test_pools_share: 39 of
# 40 within 402 s in virtual time, the other within 655).
REST_SECONDS, GROWTH_SECONDS = 700.0, 800.0


class Rig:
    """A queue that never runs dry, worked by three hosts, whose loops tick each second."""

    def __init__(self, control: redis.Redis, topology: Topology, segment: Segment) -> None:
        self.control, self.topology, self.segment = control, topology, segment
        self.plant, self.numbers = LocalPlant(control), count()
        self.newest: dict[str, LedgerEntry] = {}
        self.rested: dict[str, int] = {}  # the size at which each host came to rest last

    def second(self) -> None:
        time.sleep(1.0)
        now = float(self.control.time()[0])
        short = 100 - count_waiting_workers(self.control, "alert", "n1", now)
        if short > 0:
            fill(self.segment, short * BLOCKS_A_WORKER, BLOCK)
            ids = [f"worker-{next(self.numbers)}" for _ in range(short)]
            send_workers(self.control, self.topology, "alert", "n1", short, ids, now)
        for entry in tick_due(self.plant, datetime.now(UTC), self.control, laws=("concurrency",)):
            host, threads = entry.loop.target["host"], entry.terms.get("threads")
            self.newest[host] = entry
            if entry.terms.get("phase") == "steady" and entry.observation["threads"] == threads:
                self.rested[host] = threads

    def all_have_rested_alike(self) -> bool:
        self.second()
        sizes = list(self.rested.values())
        return len(sizes) == len(MACHINES) and alike(sizes) and sum(sizes) >= CAPACITY

    def all_have_grown(self) -> bool:
        self.second()
        """How alike they are then is a matter of chance too; see test_pools_share."""
        return sum(self.sizes()) >= 2 * CAPACITY and max(self.sizes()) <= 4 * min(self.sizes())

    def sizes(self) -> list[int]:
        return [self.newest[f"jobs@{machine}"].observation["threads"] for machine in MACHINES]


def alike(sizes: list[int]) -> bool:
    return max(sizes) <= 1.5 * min(sizes) + 1


@pytest.fixture
def service() -> SlowService:
    return SlowService(CAPACITY, SERVICE_SECONDS)


@pytest.fixture
def rig(
    control: redis.Redis,
    broker: str,
    nodes: dict[str, Server],
    plant_topology: Topology,
    tmp_path: Path,
    service: SlowService,
) -> Iterator[Rig]:
    with ExitStack() as at_the_end:
        url = at_the_end.enter_context(serving(service))
        queue = replace(
            plant_topology.queues["alert"],
            handler="webhook",
            handler_options={"url": url},
            events_per_worker=BLOCK * BLOCKS_A_WORKER,
        )
        topology = replace(plant_topology, queues={**plant_topology.queues, "alert": queue})
        control.set(keys.TOPOLOGY, topology.to_json())
        for machine in MACHINES:
            folder = tmp_path / machine
            folder.mkdir()
            host = CeleryWorker(control, broker, folder, slots=2, machine=machine).start()
            at_the_end.callback(host.close)
        yield Rig(control, topology, Segment(nodes["n1"].client(), "alert"))


def test_three_hosts_explore_together_share_a_service_alike_and_find_that_it_has_grown(
    rig: Rig, control: redis.Redis, service: SlowService
) -> None:
    for loop in ensured(control, ["concurrency"]):
        parameters = {**loop.parameters, "steady_seconds": 120.0}
        Loop.objects.filter(pk=loop.pk).update(mode="auto", interval_seconds=1.0, parameters=parameters)
    until(rig.all_have_rested_alike, REST_SECONDS, 0.0)
    service.change(3 * CAPACITY)
    # Whoever notices first begins, and the others join.
    until(rig.all_have_grown, GROWTH_SECONDS, 0.0)
    reasons = list(LedgerEntry.objects.values_list("reason", flat=True))
    assert any("another host is exploring" in reason for reason in reasons)
    judged = LedgerEntry.objects.exclude(expected=None).exclude(verdict="checking")
    assert judged.filter(verdict="effective").exists()
