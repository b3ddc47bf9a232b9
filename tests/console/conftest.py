"""Fixtures of the console: people of each role, their browsers, and a snapshot as the observer makes it."""

import inspect
from dataclasses import is_dataclass
from datetime import timedelta
from importlib import import_module

import orjson
import pytest
from django.contrib.auth.models import Group, User
from django.template import Variable, VariableDoesNotExist
from django.test import Client
from django.utils import timezone

from common.stored_document import StoredDocument, convert_to_plain
from console.accounts.access import ROLES, create_token
from queues import keys
from queues.events.block import BlockIds, cut, from_events
from queues.models import Container, Node, Queue
from queues.segments.segment import Segment
from tests.console.pipeline_sample import sample_application
from tests.console.served import PASSWORD
from tests.workers.snapshots import snapshot_of
from workers.models import Loop


@pytest.fixture(autouse=True)
def _uncollected_static_files(settings, tmp_path_factory):
    """Pages name static files as they stand; collecting them is `./run`'s part."""
    settings.STATIC_ROOT = tmp_path_factory.getbasetemp() / "no-static-files"
    settings.STATIC_ROOT.mkdir(exist_ok=True)
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}


@pytest.fixture(autouse=True)
def _templates_read_what_is_declared(monkeypatch):
    """A field that a typed row does not have would leave its place empty, and nobody would notice."""
    resolve, missing = Variable._resolve_lookup, set[str]()

    def resolve_declared(variable, context):
        try:
            return resolve(variable, context)
        except VariableDoesNotExist as error:
            name, row = error.params
            if isinstance(row, StoredDocument) or is_dataclass(row):
                missing.add(f"{variable.var}: {type(row).__name__} has no {name}")
            raise

    monkeypatch.setattr(Variable, "_resolve_lookup", resolve_declared)
    yield
    assert missing == set()


@pytest.fixture(autouse=True)
def _quick_passwords(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def application(_uncollected_static_files):
    """The whole ASGI application; made when first asked for, since it reads the folder of static files."""
    return import_module("console.asgi").application


@pytest.fixture
def people(db):
    """One user of each role, named after it, and `stranger`, who has none."""
    found = {}
    for role in ROLES:
        found[role] = User.objects.create_user(role, password=PASSWORD)
        found[role].groups.add(Group.objects.get_or_create(name=role)[0])
    found["stranger"] = User.objects.create_user("stranger", password=PASSWORD)
    return found


class Browsers(dict[str, Client]):
    """A browser per person, logged in when a test first takes it: most tests take one of them."""

    def __init__(self, people):
        super().__init__(anonymous=Client())
        self._people = people

    def __missing__(self, name):
        self[name] = Client()
        self[name].force_login(self._people[name], backend="django.contrib.auth.backends.ModelBackend")
        return self[name]

    def all(self):
        for name in self._people:
            self[name]
        return self

    # Who goes through them gets everybody's.
    def __iter__(self):
        return super(Browsers, self.all()).__iter__()

    def items(self):
        return super(Browsers, self.all()).items()

    def values(self):
        return super(Browsers, self.all()).values()


@pytest.fixture
def browsers(people, request):
    """A logged-in browser per person, and `anonymous`."""
    made = Browsers(people)
    # Where logins are what is tested they come first; and no database is asked from within a loop of events.
    at_once = inspect.iscoroutinefunction(request.function) or {"accounts", "security"} & set(request.path.parts)
    return made.all() if at_once else made


@pytest.fixture
def viewer(browsers):
    return browsers["viewer"]


@pytest.fixture
def operator(browsers):
    return browsers["operator"]


@pytest.fixture
def administrator(browsers):
    return browsers["administrator"]


@pytest.fixture
def loop(db):
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)


@pytest.fixture
def secrets(people):
    """An API token per role, `producer` too."""
    until = timezone.now() + timedelta(days=1)
    roles = {**{role: role for role in ROLES}, "producer": "operator"}
    return {role: create_token(people[owner], f"of-{role}", role, until)[1] for role, owner in roles.items()}


@pytest.fixture
def snapshot():
    """A calm plant of one node and two queues, with all parts of the snapshot (`workers.documents`)."""
    return sample_snapshot()


@pytest.fixture
def stored_snapshot(control, snapshot):
    """The same, as the newest on the control server, observed just now."""
    snapshot["at"] = timezone.now().timestamp()
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    return snapshot


@pytest.fixture
def poisoned(nodes, db):
    """Queue alert on two nodes, a dead letter on each."""
    queue = Queue.objects.create(name="alert", kind="jobs")
    for name in ("n1", "n2"):
        row = Node.objects.create(name=name, url=nodes[name].url)
        Container.objects.create(queue=queue, node=row, points=500)
        dead_letter(nodes[name], name)
    return nodes


def dead_letter(server, name):
    """A dead letter of queue alert on a node's server."""
    segment = Segment(server.client(), "alert")
    batch = from_events([{"id": f"e-{name}", "type": "a"}], now_us=1_000_000)
    segment.publish(cut(batch, BlockIds()))
    (claimed,) = segment.claim("a worker", 10, 60)
    segment.move_to_dead_letters(claimed, "a worker", [(claimed.block().build_explicit_batch(), "no")])


def sample_snapshot():
    """A calm plant, with every key that the observer writes."""
    return convert_to_plain(snapshot_of(_calm()))


def _calm():
    return {
        "seq": 1, "at": 1_790_000_000.2, "plant": "main",
        "health": {"state": "NORMAL", "sentence": "All nodes normal; every queue keeps up; nothing shed."},
        "totals": {
            "in_per_second": 41.0, "out_per_second": 40.0, "latency_p95_seconds": None, "backlog_events": 12,
            "backlog_seconds": 0.3, "shed_share": 0.0, "nodes_in_use": 1, "nodes": 1, "workers_busy": 0,
            "workers_at_work": 0.0, "worker_slots": 2, "dead_letters": 0,
        },
        "producers": {
            "host": {
                "in_per_second": 41.0, "age_seconds": 0.4, "queues": {"telemetry": 30.0, "alert": 11.0},
                "rejected": 0, "rerouted": 0,
            },
        },
        "queues": {"telemetry": _queue("pipeline"), "alert": _queue("jobs")},
        "nodes": {
            "n1": {
                "state": "NORMAL", "stale": False, "age_seconds": 0.4, "utilisation": 0.03, "raw": 0.03,
                "parts": {"cpu": 0.01, "memory": 0.03, "events": 0.001}, "busy": 0.7, "toobusy": 0.9,
                "in_per_second": 12.0, "out_per_second": 12.0, "memory_bytes": 1000, "memory_capacity_bytes": 2000,
                "capacity_events_per_second": 50_000.0, "points": 2000, "containers": 2, "drained": False,
                "cordoned": False, "last_state": "NORMAL",
            },
        },
        "hosts": {
            "jobs@here": {"role": "jobs", "slots": 2, "busy": 0, "age_seconds": 0.5},
            "control@here": {"role": "control", "slots": 2, "busy": 0, "age_seconds": 0.5},
        },
        "pipeline": {
            "state": "running", "cores": 8, "age_seconds": 0.8, "batch": 12, "in_per_second": 30.0,
            "kept_per_second": 20.0,
            "alerts_per_second": 0.0, "batch_seconds": 0.4, "watermark_lag_seconds": 3.0, "waiting_events": 12,
            "patterns": {"load-rises": {"matches": 3, "seconds": 0.001}},
            "rules": [{"name": "discard", "in": 30, "out": 20}], "error": None,
            "applications": {"performance": sample_application()},
        },
        "loops": {}, "overrides": [], "plans": [], "alerts": [], "steered_by": None, "plants": {},
    }  # fmt: skip


def _queue(kind):
    figures = {
        "waiting_events": 12, "waiting_bytes": 900, "in_per_second": 30.0, "out_per_second": 30.0,
        "oldest_seconds": 0.4, "dead_letters": 0, "retry_blocks": 0,
    }  # fmt: skip
    container = {
        **figures, "dead_per_second": 0.0, "points": 1000, "load": 0.001, "server_time_share": 0.0005,
        "inserted_events": 1012, "removed_events": 1000, "waiting_to_run": 0, "workers_started": 9,
        "workers_busy": 0,
    }  # fmt: skip
    return {
        **figures, "kind": kind, "handler": None if kind == "pipeline" else "sql", "priority": 5,
        "minimum_containers": 1, "wait_seconds": 0.4, "latency_p95_seconds": None,
        "workers_at_once": None if kind == "pipeline" else 0.2,
        "service_seconds": None if kind == "pipeline" else 0.001, "containers": {"n1": container},
    }  # fmt: skip
