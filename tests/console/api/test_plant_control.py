"""The control API of a plant, as a client sees it: Table 6.1's answers, refusals, and who holds the plant."""

import json

import orjson
import pytest
from django.test import Client as Browser
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import create_token
from console.api.routes.plant_control import parse_operator_tasks
from console.models import AuditEntry
from queues import keys
from workers.plants.plant import InvalidPlantResponse
from workers.plants.steered import PublishedPlant

pytestmark = pytest.mark.django_db
HOSTS, SITES, SOURCE = "performance/hosts", "performance/sites", "producers/telemetry"


@pytest.fixture
def call(secrets, control, stored_snapshot):
    """An operation of the control API; `(status, document)`."""
    Browser().get("/healthz")  # the first request imports all of the console: no snapshot grows old by it
    stored_snapshot["at"] = timezone.now().timestamp()
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))

    def ask(which, method="get", /, role="operator", plant="main", secret=None, **query):
        token = {"HTTP_AUTHORIZATION": f"Bearer {secret or secrets[role]}"}
        send = getattr(Browser(), method)
        parameters = {"QUERY_STRING": "&".join(f"{name}={value}" for name, value in query.items())}
        answer = send(f"/control/{plant}/v1/{which}", **parameters, **token)
        return answer.status_code, json.loads(answer.content) if answer.status_code != 405 else None

    return ask


def steered(control):
    stored = control.get(keys.PIPELINE_CONTROLS.build("performance"))
    return json.loads(stored)["tasks"] if stored else {}


def test_operators_and_paths_are_those_of_the_plant(call):
    _, operators = call("getalloperators")
    assert {HOSTS, SITES, SOURCE, "replicas/performance", "alert"} == set(operators) - {"producers/alert"}
    status, paths = call("getlogicaltopology")
    assert status == 200
    assert [SOURCE, "replicas/performance", HOSTS, SITES, "alert"] in paths.values()
    _, physical = call("getphysicaltopology")
    assert physical["tasks"][HOSTS] == [f"{HOSTS}_1", f"{HOSTS}_2"]
    assert {"source", "target", "latency", "batching"} == set(physical["channels"][0])


def test_what_is_measured_of_an_operator_has_the_shapes_of_the_table(call):
    def by_task(value):
        return {f"{HOSTS}_1": value, f"{HOSTS}_2": value}

    measured = {
        "getoperatorparallelism": 2, "getlatency": 100.0, "getoperatorlatency": by_task(100.0),
        "getoperatorlatencyvariance": by_task(0.0), "getoutputcount": 4.0, "getoperatoroutputcount": by_task(2),
        "getoperatoroutputcountvariance": by_task(0.0), "getexecutioncount": 40.0,
        "getoperatorexecutioncount": by_task(20), "getoperatorexecutioncountvariance": by_task(0.0),
        # Of a window at the rate of the second batch, the only one whose arrivals are known to take 1 s.
        "getinputcount": 200.0, "getoperatorinputcount": by_task(100.0),
        "getoperatorinputcountvariance": by_task(0.0),
    }  # fmt: skip
    for operation, answer in measured.items():
        assert call(operation, role="viewer", operator=HOSTS) == (200, answer), operation


def test_tasks_are_aggregated_as_asked(call):
    answers = {how: call("getexecutioncount", operator=HOSTS, operation=how)[1] for how in ("AVG", "MAX")}
    assert answers == {"AVG": 20.0, "MAX": 20.0}
    status, refused = call("getlatency", operator=HOSTS, operation="MEDIAN")
    assert status == 422 and "AVG, SUM, MAX, MIN" in refused["errors"]["operation"][0]


def test_a_source_is_asked_for_its_paths_and_nothing_else(call):
    assert call("getpathlatency", operator=SOURCE)[1] == pytest.approx(3_601.0)
    assert call("getackedtuplescount", operator=SOURCE) == (200, 300.0)
    assert call("getfailedtuplescount", operator=SOURCE) == (200, 0.0)
    assert call("getoutputcount", operator=SOURCE) == (200, 300.0)
    for operation in ("getlatency", "getoperatorexecutioncount", "getinputcount"):
        status, refused = call(operation, operator=SOURCE)
        assert status == 422 and "is a source" in refused["errors"]["operator"][0]
    for operation in ("getpathlatency", "getackedtuplescount", "getfailedtuplescount"):
        status, refused = call(operation, operator=HOSTS)
        assert status == 422 and SOURCE in refused["errors"]["operator"][0]


def test_what_is_not_known_is_null(call):
    assert call("getoperatorlatencyvariance", operator="alert") == (200, {"alert_1": None})


def test_setting_one_operator_or_several_is_true_steered_and_audited(call, control):
    assert call("setoperatorparallelism", "post", operator=HOSTS, parallelism=4) == (200, True)
    both = f"{HOSTS}:3;{SITES}:5"
    assert call("setmultipleoperatorparallelism", "post", map=both, reason="a test") == (200, True)
    assert steered(control) == {"hosts": 3, "sites": 5}
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.target, entry.reason) == ("plant.scale", "main", "a test")
    assert (entry.before, entry.after) == ({HOSTS: 2, SITES: 2}, {HOSTS: 3, SITES: 5})


@pytest.mark.parametrize(
    ("operation", "query", "field"),
    [
        ("setoperatorparallelism", {"operator": HOSTS, "parallelism": 65}, f"tasks.{HOSTS}"),
        ("setoperatorparallelism", {"operator": "nobody", "parallelism": 2}, "tasks.nobody"),
        ("setoperatorparallelism", {"operator": "alert", "parallelism": 2}, "tasks.alert"),
        ("setoperatorparallelism", {"operator": HOSTS, "parallelism": 2, "seconds": 0}, "seconds"),
        ("setmultipleoperatorparallelism", {"map": f"{HOSTS}:3;{SITES}:0"}, f"tasks.{SITES}"),
        ("setmultipleoperatorparallelism", {"map": f"{HOSTS}=3"}, "map"),
        ("setmultipleoperatorparallelism", {"map": ""}, "map"),
    ],
)
def test_what_cannot_be_set_is_refused_by_name_and_changes_nothing(call, control, operation, query, field):
    status, refused = call(operation, "post", **query)
    assert status == 422 and list(refused["errors"]) == [field]
    assert steered(control) == {} and not AuditEntry.objects.exists()
    assert not control.exists("weir:holder:main")


def test_a_map_names_each_operator_once():
    assert parse_operator_tasks(" a/b:2; c:3;") == {"a/b": 2, "c": 3}
    with pytest.raises(BadInput, match="only once"):
        parse_operator_tasks("a:1;a:2")


def test_the_answer_to_a_second_controller_names_who_holds_the_plant(call, people, control):
    ends = timezone.now() + timezone.timedelta(days=1)
    other = create_token(people["operator"], "weir-3", "operator", ends)[1]
    assert call("setoperatorparallelism", "post", operator=HOSTS, parallelism=4)[0] == 200
    status, refused = call("setoperatorparallelism", "post", secret=other, operator=HOSTS, parallelism=1)
    assert status == 409
    assert refused["holder"] == "token:of-operator" and refused["until"] > timezone.now().timestamp()
    assert steered(control) == {"hosts": 4}
    assert call("release", "post", secret=other) == (200, False)
    assert call("release", "post") == (200, True)
    assert call("setoperatorparallelism", "post", secret=other, operator=HOSTS, parallelism=1) == (200, True)


def test_taking_a_plant_and_letting_go_is_audited_and_keeping_it_is_not(call):
    for _ in range(3):
        assert call("hold", "post", seconds=30)[0] == 200
    assert call("release", "post") == (200, True)
    noted = [(each.actor, each.action, each.target) for each in AuditEntry.objects.order_by("id")]
    assert noted == [("token:of-operator", "plant.hold", "main"), ("token:of-operator", "plant.release", "main")]
    assert call("hold", "post", role="viewer")[0] == 403
    assert [each.action for each in AuditEntry.objects.order_by("id")][2:] == ["refused.plant.scale"]


@pytest.fixture
def held(monkeypatch):
    """What the plant's own controllers are asked, in order."""
    found = []
    monkeypatch.setattr(PublishedPlant, "hold", lambda plant, seconds: found.append(seconds))
    monkeypatch.setattr(PublishedPlant, "release", lambda plant: found.append("release"))
    return found


def test_the_plants_own_controllers_are_held_as_long_as_the_plant_is(call, held):
    call("setoperatorparallelism", "post", operator=HOSTS, parallelism=4, seconds=600)
    call("hold", "post", seconds=900)
    call("release", "post")
    assert call("release", "post") == (200, False)
    assert held == [600.0, 900.0, "release"]


@pytest.mark.parametrize("before", [False, True])
def test_what_the_plant_refuses_leaves_held_what_was_before(call, control, held, monkeypatch, before):
    def refuse(plant, tasks):
        raise InvalidPlantResponse("main answers 403.")

    monkeypatch.setattr(PublishedPlant, "set_parallelism", refuse)
    if before:
        call("hold", "post", seconds=60)
    status, refused = call("setoperatorparallelism", "post", operator=HOSTS, parallelism=4, seconds=600)
    assert status >= 400 and "403" in str(refused)
    assert control.exists("weir:holder:main") == before
    assert held == ([60.0, 600.0] if before else [600.0, "release"])


def test_an_unknown_plant_is_not_found_and_one_not_seen_lately_is_not_decided_on(call, control, snapshot):
    status, refused = call("getalloperators", plant="east")
    assert status == 404 and "east" in refused["errors"]["path"][0]
    snapshot["at"] = timezone.now().timestamp() - 60
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    status, refused = call("gettopology")
    assert status == 503 and "60 s ago" in refused["errors"]["snapshot"][0]
