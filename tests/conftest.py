"""Shared fixtures: real servers. `control` and `nodes` are emptied for each test and live for the whole run.

`control`: a `redis.Redis` on the control server; Django's settings point to it.
`nodes`: {"n1": Server, "n2": Server, "n3": Server}, all alive at the start of each test.
`plant_topology`: three nodes; queues alert and process (jobs), telemetry (pipeline), in `weir:topology`.
"""

import fcntl
import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.db import connection
from django.db.backends.base.operations import BaseDatabaseOperations
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from hypothesis import settings as hypothesis_settings
from ninja import NinjaAPI
from xdist.scheduler import LoadScopeScheduling

from console.actions import dead_letters
from console.actions.queues import waiting_events
from console.audit import refusals
from console.connections import control_server
from console.live import fanout
from console.pages.health import readiness
from console.storage import append_only
from queues import keys
from queues.nodes import agent
from queues.points import share
from queues.publishing import client as publishing_client
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.console.api import answers
from tests.console.served import MIGRATED
from tests.console.served import served as served
from tests.servers import Server, new_server
from tests.waiting import MAX_SECONDS
from tests.worker_role import enforce
from workers.placement import execution

enforce()
# How long an example takes says nothing on a machine that others use too. CI takes the same examples each
# time, so that its verdict is about the change; whoever runs the tests by hand looks for new ones.
IN_CI = os.environ.get("CI") == "true"
EXAMPLES = int(os.environ.get("WEIR_TEST_EXAMPLES", "40"))
hypothesis_settings.register_profile("weir", deadline=None, derandomize=IN_CI, max_examples=EXAMPLES)
hypothesis_settings.load_profile("weir")

# What was collected stays to the end of the run, a million objects of it: they are gone through once, and not while
# they become more.
gc.disable()
gc.set_threshold(100_000, 50, 100)

# Desks and plants of the tests stand on this machine, where typed addresses may not lead by themselves.
os.environ["WEIR_EGRESS_ALLOW"] = "127.0.0.0/8 ::1/128"
os.environ["WEIR_HANDLERS"] = "tests.workers"  # people may name the samples there
# On a busy machine a plant's server that is alive may take more than the two seconds of a calm one.
os.environ["WEIR_PLANT_TIMEOUT_SECONDS"] = "10"
# So may a server of ours. A test that freezes one says how long it is waited for.
for patient in (agent, control_server, dead_letters, execution, publishing_client, waiting_events):
    patient.TIMEOUT_SECONDS = MAX_SECONDS
fanout.ANSWER_SECONDS = fanout.JOIN_SECONDS = MAX_SECONDS
NODE_NAMES = ("n1", "n2", "n3")
SCENARIOS = "tests/controllers/simulation/"
# A long proof that says nothing else hangs after so long; three share two cores whose speed varies.
LONG_SECONDS = 1_200
ON_A_PLANT = ("tests/plant/", "tests/production/", "tests/hosts/", "tests/workers/", "tests/queues/")
# Long, and each of them by itself: they measure nothing, and any process may take any.
BY_THEMSELVES = (
    SCENARIOS,
    "tests/protocols/",
    "tests/controllers/test_unseen_documents.py",
    "tests/security/requests/test_fuzz.py",
    "tests/workers/pipeline/matching/",
    "tests/workers/placement/test_moving.py",
)
# Long, with real servers of their own, and they measure nothing.
BESIDE_OTHERS = (
    *BY_THEMSELVES,
    "tests/queues/control/",
    "tests/workers/alerts/",
    "tests/workers/consumer/test_sql_postgres.py",
    "tests/workers/control/ledger/",
    "tests/workers/plants/foreign/declared/",
)
# Whose tests share a plant, a served console and a browser, or a Spark session: one takes as long to start as
# twenty of the tests.
SERVED = (
    "tests/console/browser/",
    "tests/security/requests/test_http_surface.py",
    "tests/security/requests/test_proxies.py",
    "tests/security/requests/test_request_cost.py",
    "tests/security/requests/test_sockets.py",
)
# What starts servers or programs, as a fixture or in a test's module. `heavy` marks the tests that use one of them.
SERVERS = frozenset({"_control_server", "_node_servers"})
PROGRAMS = ("subprocess", "Popen", "multiprocessing", "new_server")
# The tests of the house share the parsed sources and the rendered Help.
TOGETHER = {
    "plant": ("tests/plant/",),
    "served": SERVED,
    "rules": ("tests/workers/pipeline/rules/",),
    "house": ("tests/house/", "tests/console/help/"),
}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Long proofs on a plant are marked `alone` and tests of the control laws `law`, before marks choose. The
    longest come first, so that no process is left with them alone in the end.
    """
    _leave_cases_of_sweeps_to_the_long_run(items)
    for item in items:
        proof = item.get_closest_marker("slow") or item.get_closest_marker("faults")
        long = proof or item.get_closest_marker("thorough")
        if item.nodeid.startswith("tests/controllers/") and not item.nodeid.startswith(SCENARIOS):
            item.add_marker("law")
        if long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
        if proof and item.nodeid.startswith(ON_A_PLANT) and not item.nodeid.startswith(BESIDE_OTHERS):
            item.add_marker("alone")
        if long or _is_heavy(item):
            item.add_marker("heavy")
    yield
    items.sort(key=_order)


def _is_heavy(item: pytest.Item) -> bool:
    """Return whether a test starts a server or a program, or simulates a whole scenario of the lab."""
    return (
        item.nodeid.startswith(SCENARIOS)
        or not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))
        or any(map(item.get_closest_marker, ("browser", "spark", "faults")))
        or any(hasattr(getattr(item, "module", None), name) for name in PROGRAMS)
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is shown when it happens as well: a long run ends an hour later."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ and sys.__stderr__ is not None:
        sys.__stderr__.write(f"\n{report.nodeid} ({report.when}) failed:\n{report.longreprtext[-4000:]}\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def _order(item: pytest.Item) -> tuple[bool, ...]:
    """The longest first. In a group, what needs Spark is last: its plant runs no longer than its own tests."""
    long = (item.get_closest_marker("slow") or item.get_closest_marker("thorough")) and item.nodeid.startswith(
        BY_THEMSELVES
    )
    in_group = group_of(item.nodeid) in TOGETHER
    needs_spark = item.get_closest_marker("spark") is not None
    return not in_group, not long, needs_spark == in_group


def _leave_cases_of_sweeps_to_the_long_run(items: list[pytest.Item]) -> None:
    """Of a test marked sweep(n) every n-th case runs at once, and the others are thorough."""
    seen: Counter[str] = Counter()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep is None or item.get_closest_marker("slow"):
            continue
        name = item.nodeid.partition("[")[0]
        if seen[name] % sweep.args[0]:
            item.add_marker("thorough")
        seen[name] += 1


class Groups(LoadScopeScheduling):
    """When several processes share the run, one gets all tests of a file, or of a group of TOGETHER; of
    BY_THEMSELVES a single one.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


def group_of(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    if file.startswith(BY_THEMSELVES):
        return nodeid
    return next((group for group, places in TOGETHER.items() if file.startswith(places)), file)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> None:
    """The database is a file, as in a plant: two threads that write wait for each other. One in memory
    refuses the second at once, whatever the time that it may wait. To migrate one takes seconds: the first of the
    processes that share the run does it, and each has a copy.
    """
    if connection.vendor == "sqlite":
        connection.settings_dict["TEST"]["NAME"] = str(tmp_path_factory.mktemp("database") / "weir.sqlite3")
        shared = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            shared = shared.parent
        with django_db_blocker.unblock():
            shutil.copyfile(_migrated(shared), connection.settings_dict["TEST"]["NAME"])


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The copy is the database."""
    return connection.vendor == "sqlite"


def _migrated(folder: Path) -> Path:
    """An empty SQLite database with every table, made once in this folder."""
    database = folder / MIGRATED
    with (folder / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not database.exists():
            made, usual = folder / "migrating.sqlite3", connection.settings_dict["NAME"]
            connection.close()
            connection.settings_dict["NAME"] = str(made)
            try:
                call_command("migrate", verbosity=0, interactive=False)
            finally:
                connection.close()  # which writes what its journal holds
                connection.settings_dict["NAME"] = usual
            made.rename(database)
    return database


@pytest.fixture(scope="session", autouse=True)
def _emptying_the_database_may_empty_the_audit() -> Iterator[None]:
    """A test that commits is followed by emptying every table, the one that refuses it included."""
    flush = BaseDatabaseOperations.execute_sql_flush

    def released(operations: BaseDatabaseOperations, statements: list[str]) -> None:
        vendor = operations.connection.vendor
        with operations.connection.cursor() as cursor:
            for statement in append_only.release(vendor):
                cursor.execute(statement)
            flush(operations, statements)
            for statement in append_only.protect(vendor):
                cursor.execute(statement)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseDatabaseOperations, "execute_sql_flush", released)
        yield


@pytest.fixture(autouse=True)
def _no_refusals_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test was refused, or repeated, within the minute is not folded into what the next one is."""
    monkeypatch.setattr(refusals, "fold", refusals.Fold())
    monkeypatch.setattr(refusals, "entry_fold", refusals.Fold())


@pytest.fixture(autouse=True)
def _readiness_is_not_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was ready for one test, or a second ago in the same, says nothing about now."""
    monkeypatch.setattr(readiness, "RETAINED_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _answers_are_as_their_schemas_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of the API that any test gets is held to the API's document."""
    make = NinjaAPI.create_response

    def checked(api: NinjaAPI, request: HttpRequest, *said: Any, **more: Any) -> HttpResponse:
        response = make(api, request, *said, **more)
        answers.hold(request, response)
        return response

    monkeypatch.setattr(NinjaAPI, "create_response", checked)


@pytest.fixture(autouse=True)
def _desks_on_this_machine() -> Iterator[None]:
    """The settings may have been read before the environment was set."""
    with override_settings(WEIR_EGRESS_ALLOW=os.environ["WEIR_EGRESS_ALLOW"]):
        yield


@pytest.fixture(scope="session")
def _control_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = new_server(tmp_path_factory.mktemp("control"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def _node_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    servers = {name: new_server(tmp_path_factory.mktemp(name)) for name in NODE_NAMES}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def control_server(_control_server: Server, settings) -> Iterator[Server]:
    """The control server, emptied; `settings.REDIS_URL` and what is derived from it name it."""
    _revived(_control_server).flushall()
    settings.REDIS_URL = _control_server.url
    settings.CELERY_BROKER_URL = _control_server.url
    yield _control_server
    _left_alive(_control_server)


@pytest.fixture
def control(control_server: Server) -> redis.Redis:
    """A client of the emptied control server (bytes)."""
    return control_server.client()


@pytest.fixture
def nodes(_node_servers: dict[str, Server]) -> Iterator[dict[str, Server]]:
    """Three emptied node servers by name; one that a test killed is started again for the next."""
    for server in _node_servers.values():
        _revived(server).flushall()
    yield _node_servers
    for server in _node_servers.values():
        _left_alive(server)


@pytest.fixture
def node(nodes: dict[str, Server]) -> redis.Redis:
    """A client of node n1 (bytes)."""
    return nodes["n1"].client()


@pytest.fixture
def plant_topology(control: redis.Redis, nodes: dict[str, Server]) -> Topology:
    """Three nodes and three queues, as `weir:topology` on the control server."""
    points = share(list(nodes))
    topology = Topology(
        revision=1,
        nodes={name: NodeSpec(name, server.url) for name, server in nodes.items()},
        queues={
            "alert": QueueSpec("alert", "jobs", points, handler="noop"),
            "process": QueueSpec("process", "jobs", points, handler="noop"),
            "telemetry": QueueSpec("telemetry", "pipeline", points),
        },
    )
    control.set(keys.TOPOLOGY, topology.to_json())
    return topology


def _revived(server: Server) -> redis.Redis:
    """A client of the server, alive and configured as at first, whatever the test before did to it."""
    if server.process is None or server.process.poll() is not None:
        server.start()
    server.thaw()
    server.keeper.config_set("maxmemory", server.config.maxmemory_bytes)
    return server.keeper


def _left_alive(server: Server) -> None:
    """For whoever shares it and asks for no emptied one, as the served console does."""
    _revived(server)
    for client in server.clients:
        client.close()
    server.clients.clear()
