"""A real Prometheus: PromQL as a loop's sensor, from the load to the call to the proof.

It also covers invalid answers.
"""

import json
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from tests.prometheus import prometheus
from tests.waiting import until
from tests.workers.loops import PARALLELISM, ensured
from workers.control import engine
from workers.models import LedgerEntry, Loop
from workers.plants.foreign import adapters
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.declared.sources import PrometheusClient
from workers.plants.foreign.watch import PlantWatch
from workers.plants.models import RegisteredPlant
from workers.plants.plant import InvalidPlantResponse
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(300)]
SERVICE_SECONDS = 0.05
DECLARATION = """name: shop
title: A service that reports to Prometheus
window_seconds: 5
prometheus: {prometheus}
sensors:
  requests: {{promql: 'sum(rate(shop_requests_total[3s]))', unit: 1/s, title: Requests}}
  replicas: {{promql: max(shop_replicas), title: Replicas that are ready}}
  waiting: {{promql: max(shop_waiting), unit: requests}}
operators:
  - {{name: clients, source: true, out_per_second: requests}}
  - name: shop
    after: [clients]
    tasks: replicas
    maximum: 8
    service_seconds: 0.05
    waiting_events: waiting
    set: {{http: {{method: PUT, url: '{service}/replicas', body: {{replicas: $tasks}}}}}}
    proof: {{within_seconds: 30}}
"""


class Shop(ThreadingHTTPServer):
    """A service with replicas that take SERVICE_SECONDS per request: it counts arrivals and the backlog.

    An ordered replica is ready one second later.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.per_second, self.waiting, self.replicas, self.orders = 0.0, 0.0, 1, []
        self.registry = CollectorRegistry()
        self.requests = Counter("shop_requests_total", "Requests.", registry=self.registry)
        Gauge("shop_replicas", "Ready.", registry=self.registry).set_function(lambda: self.replicas)
        Gauge("shop_waiting", "Waiting.", registry=self.registry).set_function(lambda: self.waiting)
        self.ended = threading.Event()
        for work in (self.serve_forever, self.run):
            threading.Thread(target=work, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def run(self):
        before = time.monotonic()
        while not self.ended.wait(0.1):
            now = time.monotonic()
            came, before = self.per_second * (now - before), now
            self.requests.inc(came)
            self.waiting = max(0.0, self.waiting + came - self.replicas / SERVICE_SECONDS * 0.1)

    def close(self):
        self.ended.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(generate_latest(self.server.registry))

    def do_PUT(self):
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["replicas"]
        self.server.orders.append(wanted)
        threading.Timer(1.0, setattr, (self.server, "replicas", wanted)).start()
        self.answer(b"ordered")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def shop():
    made = Shop()
    yield made
    made.close()


def test_a_loop_follows_promql_from_the_load_to_the_call_to_the_proof(shop, tmp_path, control, plant_topology):
    with prometheus(tmp_path, {"shop": shop.url.removeprefix("http://")}) as url:
        text = DECLARATION.format(prometheus=url, service=shop.url)
        row = RegisteredPlant(name="shop", kind="declared", url="", options={"declaration": text})
        adapters.check(row)
        row.save()
        watch = PlantWatch(observe_seconds=0.5)
        plant = LocalPlant(control, others=watch)
        ensured(control, PARALLELISM)
        loop = Loop.objects.get(name="parallelism_queueing/plant:shop")
        assert loop.mode == Loop.Mode.ADVISE  # loops of an attached plant start in advise
        loop.mode = Loop.Mode.AUTO
        loop.parameters = {"bound_seconds": 1.0, "maximum": 8, "only_changes": True}
        loop.interval_seconds, loop.guard = 1.0, {"cooldown_seconds": 5.0}
        loop.save()

        def status():
            return plant.observe().plants.get("shop")

        def comes():
            found = status()
            sensor = found.sensors.get("requests") if found else None
            return sensor.value or 0.0 if sensor else 0.0

        def ticked(is_reached):
            engine.tick(Loop.objects.get(pk=loop.pk), plant, datetime.now(UTC), control)
            found = status()
            return found.state == "seen" and is_reached(found.topology["operators"]["shop"]["parallelism"])

        try:
            shop.per_second = 5.0  # a quarter of one replica's capacity
            until(lambda: comes() > 3, 30.0, 0.5)
            assert not ticked(lambda tasks: tasks != 1)
            shop.per_second = 70.0  # three and a half of them
            until(lambda: ticked(lambda tasks: tasks >= 4), 60.0, 1.0)
            assert shop.replicas >= 4 and shop.orders[-1] == shop.replicas
            assert status().sensors["replicas"].value == shop.replicas  # the proof, as Prometheus has it
            shop.per_second = 5.0
            until(lambda: ticked(lambda tasks: tasks <= 2), 90.0, 1.0)
        finally:
            watch.close()
    acted = LedgerEntry.objects.filter(loop=loop, applied=True).order_by("id")
    assert [entry.action["tasks"]["shop"] for entry in acted] == shop.orders
    assert all(entry.error == "" for entry in acted)


def test_a_query_is_one_number_unknown_or_refused(shop, tmp_path):
    with prometheus(tmp_path, {"shop": shop.url.removeprefix("http://"), "gone": "127.0.0.1:1"}) as url:
        plant_client = PlantClient("metrics", url)
        client = PrometheusClient(plant_client)
        until(lambda: client.query_value("count(up)") == 2, 20.0, 0.5)
        assert client.query_value("vector(1) > 2") is None
        assert client.query_value("0 / 0") is None
        with pytest.raises(InvalidPlantResponse, match="returned 2 series"):
            client.query_value("up")
        with pytest.raises(InvalidPlantResponse, match="parse error"):
            client.query_value("sum(")
        plant_client.close()
