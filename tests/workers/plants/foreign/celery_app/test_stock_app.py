"""A stock Celery app, from a plain `celery worker`, on real brokers: attached, followed, nothing lost."""

import threading

import pytest

from bench.celery.brokers import RABBITMQ, rabbitmq, valkey
from bench.celery.load import square_wave
from bench.celery.stock_workers import Rival, StockWorker, drive
from bench.celery.watched import Attached

pytestmark = pytest.mark.slow
STOCK = Rival("shop", ("--concurrency", "2"))


@pytest.fixture(params=["valkey", "rabbitmq"])
def broker(request, tmp_path):
    if request.param == "valkey":
        context = valkey(["shop"])
    elif RABBITMQ:
        context = rabbitmq(["shop"], tmp_path / "rabbitmq")
    else:
        pytest.skip("rabbitmq-server is not installed")
    with context as urls:
        yield urls["shop"]


def watched_sizes(worker, sizes, ended):
    while not ended.wait(0.5):
        sizes.append(worker.processes())


@pytest.mark.parametrize("law", ["parallelism_joint", "worker_rate"])
def test_a_stock_app_is_attached_its_pool_follows_its_load_and_no_task_is_lost(broker, law, tmp_path):
    load, sizes, ended = square_wave(120.0), [], threading.Event()
    with StockWorker(STOCK, broker, tmp_path / "shop") as worker, Attached({"shop": broker}, tmp_path, law) as attached:
        assert attached.wait_until_seen()["shop"] <= 60.0
        watch = threading.Thread(target=watched_sizes, args=(worker, sizes, ended))
        watch.start()
        drive([worker], load)
        ended.set()
        watch.join()
        done = worker.count_done()
    assert max(sizes) >= 7  # 9 per second for 0.8 s each
    assert min(sizes[sizes.index(max(sizes)) :]) <= 4
    assert sorted(each.number for each in done) == list(range(len(load)))


def test_a_stock_pool_with_work_for_all_is_sized_by_what_its_processes_bring(broker, tmp_path):
    """Tasks only wait: each further process adds the same throughput, within the range."""
    load, sizes, ended = [(0.0, 0.4)] * 700, [], threading.Event()
    with (
        StockWorker(STOCK, broker, tmp_path / "shop") as worker,
        Attached({"shop": broker}, tmp_path, "concurrency") as attached,
    ):
        watch = threading.Thread(target=watched_sizes, args=(worker, sizes, ended))
        watch.start()
        drive([worker], load)
        ended.set()
        watch.join()
        done = worker.count_done()
        notes = attached.notes()
    assert max(sizes) == 8 and sizes[0] == 2, [each["reason"] for each in notes]
    errors = [each["error"] for each in notes if "error" in each]
    assert all("All processes busy" in each for each in errors), errors  # one started between two requests
    assert any("decided_seconds" in each for each in notes)
    assert sorted(each.number for each in done) == list(range(len(load)))
