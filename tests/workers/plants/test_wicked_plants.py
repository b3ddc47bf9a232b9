"""A plant that answers slowly, wrongly, or partly: no caller waits for it, whatever its kind."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pytest

from common.errors import BadInput, WeirError
from tests.waiting import until
from tests.workers.plants.wicked_server import WAYS, wicked
from workers.plants.foreign import adapters
from workers.plants.foreign.bounded import CLOSE_SECONDS, BoundedPlant, call_within
from workers.plants.foreign.kind import Adapter
from workers.plants.foreign.watch import PlantWatch
from workers.plants.memory import MemoryPlant
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ORDER_SECONDS = 3.0  # shorter than in production, longer than any protocol's own limit
# One of each type: late, unreadable, readable.
QUICK = ("drip", "garbage", "wrong")
DECLARED = """
name: shop
sensors:
  jobs: {{url: "http://127.0.0.1:{port}/jobs", json: waiting}}
  workers: {{url: "http://127.0.0.1:{port}/workers", json: count}}
operators:
  - {{name: in, source: true, out_per_second: jobs}}
  - name: x
    after: [in]
    tasks: workers
    maximum: 4
    service_seconds: 1
    waiting_events: jobs
    set: {{http: {{method: PUT, url: "http://127.0.0.1:{port}/scale", body: {{tasks: $tasks}}}}}}
"""
# kind → addresses of its protocols; of any other kind an HTTP address
ADDRESSES = dict.fromkeys(adapters.list_kinds(), ("http://127.0.0.1:{port}",)) | {
    "celery": ("redis://127.0.0.1:{port}/0", "amqp://127.0.0.1:{port}/shop"),
    "declared": ("",),
    "kafka": ("kafka://127.0.0.1:{port}",),
}
OPTIONS = {"kubernetes": {"namespace": "shop", "workloads": "x"}}


@pytest.fixture(autouse=True)
def _as_in_production(monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "2")


def registered(kind, address, port, way):
    options = {"declaration": DECLARED.format(port=port)} if kind == "declared" else OPTIONS.get(kind, {})
    name = f"{kind}-{address.partition(':')[0] or 'page'}-{way}"
    return RegisteredPlant(name=name, kind=kind, url=address.format(port=port), options=options)


@pytest.fixture
def rows(request):
    """Yield a plant of each kind and protocol for each way, with the servers that answer so."""
    with ExitStack() as stack:
        servers = {way: stack.enter_context(wicked(way)) for way in request.param}
        yield [
            registered(kind, address, server.port, way)
            for way, server in servers.items()
            for kind, addresses in ADDRESSES.items()
            for address in addresses
        ]
    for thread in threading.enumerate():  # when the servers are gone, callers that still wait end
        if thread.name.startswith(("plant ", "order to ")):
            thread.join(15.0)
    gc.collect()  # after a broken connection, its library does not close the socket earlier


@pytest.mark.parametrize("kind", sorted(ADDRESSES))
def test_each_of_them_is_one_that_could_be_registered(kind):
    for address in ADDRESSES[kind]:
        row = registered(kind, address, 9_000, "silent")
        adapters.check(row)
        if not address.startswith(("redis", "amqp")):  # these connect when they are made
            adapters.create_adapter(row).close()


def ordered(row):
    """Return how long an order there takes, and the error that it ends with."""
    began = time.monotonic()
    try:
        with closing(BoundedPlant(row.name, adapters.create_adapter(row), ORDER_SECONDS)) as plant:
            plant.set_parallelism({"x": 2})
    except WeirError as error:
        return time.monotonic() - began, error
    return time.monotonic() - began, None


def nothing_comes():
    """Return how long it takes here to wait for ORDER_SECONDS and to close: the limit for the others."""
    began = time.monotonic()
    with suppress(PlantUnavailable):
        call_within(ORDER_SECONDS + CLOSE_SECONDS, "nobody", threading.Event().wait, ORDER_SECONDS + 2)
    return time.monotonic() - began


both = [pytest.param(QUICK, id="quick"), pytest.param(WAYS, id="all", marks=pytest.mark.slow)]


@pytest.mark.thorough
@pytest.mark.parametrize("rows", both, indirect=True)
def test_who_orders_something_there_waits_no_longer_than_a_tick_may_take_and_reads_why(rows, control):
    with ThreadPoolExecutor(len(rows) + 1) as pool:
        limit = pool.submit(nothing_comes)
        found = dict(zip((row.name for row in rows), pool.map(ordered, rows), strict=True))
    late = {name: seconds for name, (seconds, _) in found.items() if seconds > 2 * limit.result()}
    assert not late
    assert not [name for name, (_, error) in found.items() if not str(error or "")]
    # A BadInput would concern the request, so no server would have been asked.
    assert not {name: str(error) for name, (_, error) in found.items() if isinstance(error, BadInput)}


class Good(MemoryPlant, Adapter):
    def __init__(self):
        super().__init__(time.time, [], {"parse": 2})

    def close(self):
        pass


@pytest.mark.parametrize("rows", both, indirect=True)
def test_the_snapshot_has_a_good_plant_beside_them_at_once_and_each_wicked_one_as_not_seen(rows):
    good = RegisteredPlant(name="good", kind="weir", url="http://good.example")

    def make(row):
        return Good() if row is good else adapters.create_adapter(row)

    watch = PlantWatch(lambda: [good, *rows], make, observe_seconds=0.2)
    took = []

    def look():
        began = time.monotonic()
        found = watch.collect_rows()
        took.append(time.monotonic() - began)
        assert not [name for name, row in found.items() if row.state == "seen" and name != "good"]
        told = all(row.error for name, row in found.items() if name != "good" and "drip" not in name)
        return found if found["good"].state == "seen" and told else None

    try:
        until(look, every_seconds=0.1)
    finally:
        for _, ended, _ in watch._running.values():
            ended.set()
    assert max(took) < len(rows)  # one after the other would take at least twice as long
