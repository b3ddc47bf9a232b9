"""A stock Celery app on real brokers, left by Weir without a word: it is under its own control again."""

import subprocess
import sys
import time
from contextlib import closing

import pytest

from bench.celery.brokers import RABBITMQ, rabbitmq, valkey
from bench.celery.stock_workers import Rival, StockWorker
from tests import waiting
from workers.plants.foreign import interventions
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.celery_app import make
from workers.plants.foreign.celery_app.interventions import INTERVENTIONS, LIMIT, PAUSE
from workers.plants.foreign.kind import PlantAddress
from workers.plants.guard.manifests import GUARD_FILE

pytestmark = pytest.mark.slow
KINDS = {kind.name: kind for kind in INTERVENTIONS}
TASK = "bench.celery.shop.work"


@pytest.fixture(params=["valkey", "rabbitmq"])
def broker(request, tmp_path, monkeypatch, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    monkeypatch.setenv("WEIR_LEASE_SECONDS", "6")
    if request.param == "valkey":
        with valkey(["shop"]) as urls:
            command = [sys.executable, str(GUARD_FILE), "celery", urls["shop"]]
            guard = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            yield urls["shop"]
            guard.kill()
            guard.wait()
    elif RABBITMQ:
        with rabbitmq(["shop"], tmp_path / "rabbitmq") as urls:
            yield urls["shop"]
    else:
        pytest.skip("rabbitmq-server is not installed")


def intervene(control, plant, kind, subject, value=""):
    prepared = interventions.prepare_intervention(
        control, "shop", plant, KINDS[kind], subject, value, by="eve", until=time.time() + 3_600.0
    )
    interventions.begin(control, "shop", plant, KINDS[kind], prepared)


def read(plant):
    """Return the queues, the limit of the task, and the processes of the only worker."""
    [(worker, pool)] = plant.control.list_pools().items()
    limit = plant.control.list_rate_limits([worker])[worker][TASK]
    return list(pool.queues), limit, pool.processes


def test_a_pause_a_limit_and_a_smaller_pool_end_by_themselves(broker, control, tmp_path):
    with (
        StockWorker(Rival("shop", ("--concurrency", "3")), broker, tmp_path / "shop") as worker,
        closing(make(PlantAddress(name="shop", url=broker))) as adapter,
    ):
        worker.begin()
        plant = BoundedPlant("shop", adapter)
        assert read(adapter) == (["celery"], "", 3)
        [name] = adapter.control.list_pools()
        intervene(control, plant, PAUSE, "celery")
        intervene(control, plant, LIMIT, TASK, "1/m")
        plant.set_parallelism({name: 1})
        waiting.until(lambda: adapter.renew_leases() or read(adapter) == ([], "1/m", 1))  # ended processes are listed
        for _ in range(6):  # renewed, it lasts longer than the lease
            adapter.renew_leases()
            assert read(adapter) == ([], "1/m", 1)
        assert {value.restored_by for value in adapter.list_set_values()} == {"broker" if "amqp" in broker else "guard"}
        waiting.until(lambda: read(adapter) == (["celery"], "", 3))
        restored = {value.subject or value.operator for value in adapter.renew_leases()}
        # The guard reports a pool once it has seen the new size, which can be after Weir has returned.
        assert {"celery", TASK} <= restored <= {"celery", TASK, name}


def test_a_larger_pool_shrinks_again_or_stays_on_rabbitmq_and_works_on(broker, control, tmp_path):
    with (
        StockWorker(Rival("shop", ("--concurrency", "1")), broker, tmp_path / "shop") as worker,
        closing(make(PlantAddress(name="shop", url=broker))) as adapter,
    ):
        worker.begin()
        plant, stays = BoundedPlant("shop", adapter), broker.startswith("amqp")
        [name] = adapter.control.list_pools()
        intervene(control, plant, PAUSE, "celery")
        plant.set_parallelism({name: 3})
        waiting.until(lambda: adapter.renew_leases() or read(adapter) == ([], "", 3))
        [larger] = [value for value in adapter.list_set_values() if value.item == name]
        assert (larger.is_harmless, larger.afterwards) == (stays, "3 processes" if stays else "1 process")
        waiting.until(lambda: read(adapter) == (["celery"], "", 3 if stays else 1))
        worker.send(1, 0.01)
        worker.wait_until_done(1)
        assert [done.number for done in worker.count_done()] == [1]
