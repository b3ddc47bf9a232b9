"""The first content of a plant, and the tokens handed out by hand."""

import json
import stat
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from common.errors import BadInput
from console.accounts.access import find_token_actor, find_user_role
from console.embedded.seeding import FIRST_LOGIN, seed, seed_plant
from console.models import ApiToken, AuditEntry
from queues import keys
from queues.models import Node, Queue
from queues.nodes.addresses import parse_nodes
from queues.topology import Topology
from workers.models import Loop

pytestmark = pytest.mark.django_db
NODES = "n1=redis://127.0.0.1:6381/0 n2=redis://127.0.0.1:6382/0 n3=redis://127.0.0.1:6383/0"


@pytest.fixture(autouse=True)
def data(settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    return tmp_path


def test_a_first_start_makes_everything_a_plant_needs(control, data):
    topology = seed(control, {"WEIR_NODES": NODES})
    assert sorted(topology.nodes) == ["n1", "n2", "n3"]
    assert {name: queue.kind for name, queue in topology.queues.items()} == {
        "telemetry": "pipeline",
        "process": "jobs",
        "alert": "jobs",
    }
    assert topology.queues["alert"].points == {"n1": 334, "n2": 333, "n3": 333}
    assert Topology.from_json(control.get(keys.TOPOLOGY)) == topology
    assert Loop.objects.filter(law="worker_rate").count() == 6
    assert Loop.objects.get(law="rebalancing").target == {}
    assert PeriodicTask.objects.filter(task="workers.tasks.tick").exists()
    assert find_user_role(User.objects.get(username="admin")) == "administrator"


def test_a_second_start_changes_no_count_and_no_setting(control):
    seed(control, {"WEIR_NODES": NODES})
    Queue.objects.filter(name="alert").update(handler="noop")
    Node.objects.filter(name="n1").update(drained=True)
    counts = [model.objects.count() for model in (User, Node, Queue, Loop, PeriodicTask)]
    topology = seed(control, {"WEIR_NODES": NODES.replace("6381", "7777")})
    assert [model.objects.count() for model in (User, Node, Queue, Loop, PeriodicTask)] == counts
    assert topology.queues["alert"].handler == "noop"
    assert topology.nodes["n1"].drained
    assert topology.nodes["n1"].url.endswith(":7777/0")


def test_the_first_password_is_kept_for_its_owner_only(control, data, monkeypatch):
    monkeypatch.setenv("WEIR_NODES", NODES)
    monkeypatch.delenv("WEIR_ADMIN_PASSWORD", raising=False)
    password = seed_plant()
    kept = data / FIRST_LOGIN
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert User.objects.get(username="admin").check_password(password)
    assert seed_plant() == password


def test_a_weak_first_password_stops_the_start(control):
    with pytest.raises(BadInput, match="WEIR_ADMIN_PASSWORD"):
        seed(control, {"WEIR_NODES": NODES, "WEIR_ADMIN_PASSWORD": "secret"})
    assert not User.objects.exists() and not Node.objects.exists()


@pytest.mark.parametrize(
    "text",
    [
        "n1",
        "N1=redis://a",
        "n1=redis://a n1=redis://b",
        "n1:redis://me:word@a",
        "n1=http://a:6380",
        "n1=redis://a:638O/0",
        "n1=redis://me:word/more@a:6380/0",
    ],
)
def test_malformed_nodes_are_refused_and_a_password_in_them_is_not_said(text):
    with pytest.raises(BadInput) as caught:
        parse_nodes(text)
    assert caught.value.field == "WEIR_NODES"
    assert "word" not in str(caught.value)


def token(*arguments):
    out = StringIO()
    call_command("token", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_a_token_is_printed_once_and_works(people):
    made = token("shop", "--role", "producer", "--days", "7", "--owner", "operator")
    actor = find_token_actor(made["token"], timezone.now())
    assert (actor.name, actor.role) == ("token:shop", "producer")
    assert AuditEntry.objects.get().target == "shop"
    assert made["token"] not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["shop", "--owner", "nobody"], "--owner"),
        (["shop", "--role", "king", "--owner", "operator"], "--role"),
        (["shop", "--role", "administrator", "--owner", "operator"], "--role"),
        (["shop", "--days", "0", "--owner", "operator"], "--days"),
        (["a shop", "--owner", "operator"], "name"),
        (["taken", "--owner", "operator"], "name"),
    ],
)
def test_a_bad_token_request_exits_2_naming_the_field(arguments, field, people):
    token("taken", "--owner", "operator")
    error = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("token", *arguments, stderr=error)
    assert ended.value.code == 2
    assert error.getvalue().startswith(field)
    assert len(error.getvalue().splitlines()) == 1
    assert ApiToken.objects.count() == 1


def test_a_plant_that_nobody_administers_starts_and_gives_nobody_a_role(control, data):
    seed(control, {"WEIR_NODES": NODES})
    User.objects.get(username="admin").groups.clear()
    kept = (data / FIRST_LOGIN).read_text()
    seed(control, {"WEIR_NODES": NODES})
    assert find_user_role(User.objects.get(username="admin")) is None
    assert (data / FIRST_LOGIN).read_text() == kept
