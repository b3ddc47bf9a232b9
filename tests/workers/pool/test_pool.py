"""The pool of a real worker host: made larger and smaller under load, by orders that lapse."""

from dataclasses import replace

import orjson
import pytest
import redis

from queues import keys
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.waiting import until
from tests.workers.celery_worker import CeleryWorker
from tests.workers.pool.slow_service import BLOCK, feed
from workers.pool import orders

pytestmark = [pytest.mark.faults, pytest.mark.slow]
WAIT_SECONDS = 40.0
BLOCKS_A_WORKER = 4


class Busy:
    """A host with one process whose pool always has more to do than it can."""

    def __init__(self, control: redis.Redis, topology: Topology, host: CeleryWorker, segment: Segment):
        self.control, self.topology, self.host, self.segment = control, topology, host, segment
        feed(self.control, self.topology, self.segment, BLOCKS_A_WORKER)

    def report(self) -> dict:
        (document,) = self.control.hvals(keys.HOSTS)
        return orjson.loads(document)

    @property
    def name(self) -> str:
        (name,) = self.control.hkeys(keys.HOSTS)
        return name.decode()

    def order(self, threads: int) -> None:
        orders.order(self.control, self.name, threads)

    def rate(self) -> float:
        """Events per second, once there are samples enough of the present size."""

        def enough() -> dict | None:
            feed(self.control, self.topology, self.segment, BLOCKS_A_WORKER)
            done = self.report()["done"]
            return done if len(done["recent_seconds"]) > 10 else None

        return float(until(enough, WAIT_SECONDS, 0.2)["per_second"])

    def has(self, slots: int) -> bool:
        return self.report()["slots"] == slots and len(self.host.pool_pids()) == slots


@pytest.fixture
def busy(control, broker, nodes, slow_topology, tmp_path):
    worker = CeleryWorker(control, broker, tmp_path).start()
    yield Busy(control, slow_topology, worker, Segment(nodes["n1"].client(), "alert"))
    worker.close()


@pytest.fixture
def slow_topology(control, plant_topology):
    queue = replace(
        plant_topology.queues["alert"],
        handler="emulate",
        handler_options={"seconds": 0.1, "per": "block"},
        events_per_worker=BLOCK * BLOCKS_A_WORKER,
    )
    topology = replace(plant_topology, queues={**plant_topology.queues, "alert": queue})
    control.set("weir:topology", topology.to_json())
    return topology


def test_a_pool_under_load_grows_and_shrinks_as_it_is_asked_and_cuts_no_work_off(busy):
    busy.order(5)
    until(lambda: busy.has(5), WAIT_SECONDS)
    until(lambda: busy.report()["busy"] == 5, WAIT_SECONDS)
    # Five at once, eight events in 0.1 s each.
    assert busy.rate() == pytest.approx(5 * 80, rel=0.2)
    busy.order(2)
    until(lambda: busy.has(2), WAIT_SECONDS)
    assert busy.rate() == pytest.approx(2 * 80, rel=0.2)
    work = busy.control.hgetall("weir:work:alert:n1")
    assert (int(work[b"failed"]), int(work[b"dead"]), work[b"trouble"]) == (0, 0, b"")
    assert "WorkerLost" not in busy.host.log() and "Traceback" not in busy.host.log()


def test_a_drained_host_finishes_what_it_has_takes_nothing_new_and_returns(busy):
    until(lambda: busy.report()["busy"], WAIT_SECONDS)
    busy.control.set(keys.DRAIN.build(busy.name), "1", px=120_000)
    until(lambda: busy.report()["drained"] and not busy.report()["reserved"], WAIT_SECONDS)
    waiting = busy.control.zcard(keys.SUBMITTED.build("alert", "n1"))
    handled = busy.segment.get_counters()["removed_events"]
    assert waiting > 0 and handled > 0
    feed(busy.control, busy.topology, busy.segment, BLOCKS_A_WORKER)
    until(lambda: busy.report()["at"] > float(busy.control.time()[0]) - 1.0, WAIT_SECONDS)
    seen = busy.report()["at"]
    until(lambda: busy.report()["at"] > seen + 2.0, WAIT_SECONDS)
    assert busy.segment.get_counters()["removed_events"] == handled, "nothing new was begun"
    busy.control.delete(keys.DRAIN.build(busy.name))
    until(lambda: busy.segment.get_counters()["removed_events"] > handled, WAIT_SECONDS)
    until(lambda: not busy.report()["drained"], WAIT_SECONDS)
