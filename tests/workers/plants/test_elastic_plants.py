"""One contract for everything whose parallelism is observed and set.

It covers Weir's own plant, attached plants, and every example of a declared plant.
"""

import json
import re
import time

import httpx
import orjson
import pytest
from django.test import Client as Browser
from django.utils import timezone

from bench.vanish.cluster import DEPLOYMENTS, NAMESPACE, cluster
from common.errors import BadInput
from common.stored_document import decode_document, encode_document
from console.accounts.access import create_token
from controllers.parallelism.measured_topology import MeasuredTopology
from queues import keys
from tests.console.conftest import sample_snapshot
from tests.console.pipeline_sample import sample_application
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from tests.workers.plants.foreign.declared.examples import DeclaredRig
from tests.workers.plants.foreign_plants import FakeFlink, client_of
from workers.documents.plants import PoolSamples
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.declared.examples import EXAMPLES
from workers.plants.foreign.flink.flink_plant import FlinkPlant
from workers.plants.foreign.kind import Adapter, PlantAddress
from workers.plants.foreign.kubernetes.kubernetes_plant import KubernetesPlant
from workers.plants.foreign.remote import RemotePlant
from workers.plants.holding import PlantHeld, find_holder, hold
from workers.plants.memory import MemoryPlant
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable
from workers.snapshot.local import LocalPlant

pytestmark = pytest.mark.django_db
URL = "http://weir.example/control/main/v1"


class Rig:
    """A plant, with control over its parts: `settle` lets time pass until the order is in force."""

    operators = ("performance/hosts", "performance/sites")
    is_chain = True

    def parallelism(self):
        operators = self.plant.get_topology().operators
        return {name: operators[name].parallelism for name in self.operators if name in operators}

    def settle(self):
        pass


class MemoryRig(Rig):
    operators = ("parse", "sink")

    def __init__(self):
        self.plant = MemoryPlant(time.time, [], {"parse": 2, "sink": 2})

    def vanish(self, operator):
        del self.plant.operators[operator]

    def changes(self):
        return None


class LocalRig(Rig):
    """The pipeline takes its controls, and reports what is in force."""

    def __init__(self, control):
        self.control, self.application = control, sample_application()
        self.plant = LocalPlant(control)
        self.settle()

    def settle(self):
        steered = json.loads(self.control.get(keys.PIPELINE_CONTROLS.build("performance")) or "{}").get("tasks", {})
        self.application["controls"]["tasks"] = steered
        for name, tasks in steered.items():
            if name in self.application["operators"]:
                self.application["operators"][name]["parallelism"] = tasks
        status = {"state": "running", "at": time.time(), "applications": {"performance": self.application}}
        self.control.set("weir:pipeline", json.dumps(status))

    def vanish(self, operator):
        self.application["operators"].pop(operator.rpartition("/")[2])
        self.application["edges"] = []
        self.settle()

    def changes(self):
        return json.loads(self.control.get(keys.PIPELINE_CONTROLS.build("performance")))["revision"]


class RemoteRig(LocalRig):
    """The same plant from another console: over its real API, with a token."""

    def __init__(self, control, secret):
        super().__init__(control)
        client = PlantClient("east", URL, secret, 30.0, httpx.MockTransport(through_django))
        self.plant = RemotePlant(client)

    def settle(self):
        super().settle()
        snapshot = sample_snapshot()
        snapshot["at"] = timezone.now().timestamp()
        snapshot["pipeline"]["applications"]["performance"] = self.application
        self.control.set(keys.SNAPSHOT, orjson.dumps(snapshot))


class FlinkRig(Rig):
    operators = ("Calc[2]", "gone[3]: Writer")

    def __init__(self):
        self.far = FakeFlink(slots=64)
        client = client_of("flink", "http://flink", self.far.transport())
        self.plant = FlinkPlant(client, "hashes")

    def vanish(self, operator):
        self.far.names = {each: name for each, name in self.far.names.items() if name != operator}
        self.far.tasks = {each: self.far.tasks[each] for each in self.far.names}

    def changes(self):
        return self.far.puts


class KubernetesRig(Rig):
    """A Deployment's controller carries out the order when time passes."""

    operators = ("parse", "score")

    def __init__(self, k8s):
        self.far = k8s
        for name in self.operators:
            k8s.deployment(name, 2)
        options = {"namespace": NAMESPACE, "workloads": "parse > score"}
        self.plant = KubernetesPlant(PlantAddress(name="shop", url=k8s.url, options=options))

    def settle(self):
        self.far.settle()

    def vanish(self, operator):
        self.far.delete(DEPLOYMENTS, operator)

    def changes(self):
        return len(self.far.patches())


class CeleryRig(Rig):
    """Two workers of one queue: in parallel, not one after the other."""

    operators = ("celery@one", "celery@two")
    is_chain = False

    def __init__(self):
        self.far = FakeCelery(dict.fromkeys(self.operators, 2))
        self.plant = self.far.plant()

    def settle(self):
        self.far.run(6.0)

    def vanish(self, operator):
        del self.far.processes[operator]
        self.far.run(10.0)

    def changes(self):
        return self.far.orders


def through_django(request):
    """Answer with the console's own views, as a server would call them."""
    headers = {"HTTP_AUTHORIZATION": request.headers["authorization"]}
    send = Browser().get if request.method == "GET" else Browser().post
    answer = send(request.url.raw_path.decode(), **headers)
    return httpx.Response(answer.status_code, content=answer.content)


@pytest.fixture(autouse=True)
def _no_collected_static_files(settings, tmp_path):
    settings.STATIC_ROOT = tmp_path


@pytest.fixture
def secret(django_user_model):
    owner = django_user_model.objects.create_superuser("chief", password="x")
    return create_token(owner, "weir-2", "operator", timezone.now() + timezone.timedelta(days=1))[1]


ALONE = {"memory": MemoryRig, "flink": FlinkRig, "celery": CeleryRig}


@pytest.fixture
def k8s():
    with cluster() as running:
        yield running


@pytest.fixture(params=[*ALONE, "cluster", "local", "remote", *EXAMPLES])
def rig(request):
    if request.param in EXAMPLES:
        folder, monkeypatch = map(request.getfixturevalue, ("tmp_path", "monkeypatch"))
        rig = DeclaredRig(request.param, folder, monkeypatch)
        request.addfinalizer(rig.plant.close)
        return rig
    if request.param in ALONE:
        return ALONE[request.param]()
    if request.param == "cluster":
        made = KubernetesRig(request.getfixturevalue("k8s"))
        request.addfinalizer(made.plant.close)
        return made
    control = request.getfixturevalue("control")
    request.getfixturevalue("plant_topology")
    if request.param == "local":
        return LocalRig(control)
    return RemoteRig(control, request.getfixturevalue("secret"))


def test_a_topology_is_one_document_of_one_instant(rig):
    topology = rig.plant.get_topology()
    document = json.loads(json.dumps(topology.to_document(), allow_nan=False))
    assert MeasuredTopology.from_document(document).to_document() == document
    assert topology.at > 0
    first, second = rig.operators
    paths = [set(path) for path in topology.paths.values()]
    assert all(any(name in path for path in paths) for name in (first, second))
    assert any({first, second} <= path for path in paths) == rig.is_chain
    assert topology.operators[first].task_names == tuple(f"{first}_{n}" for n in (1, 2))
    assert any(each.kind == "source" for each in topology.operators.values())


def test_completions_are_said_of_operators_that_can_be_set_where_they_are_said_at_all(rig):
    topology = rig.plant.get_topology()
    said = rig.plant.get_details().completions if isinstance(rig.plant, Adapter) else {}
    assert all(topology.operators[name].fixed is None for name in said)
    assert {name: decode_document(PoolSamples, encode_document(each), "pool") for name, each in said.items()} == said


def test_tasks_that_are_set_are_in_force_soon_the_others_stay_and_the_same_again_changes_nothing(rig):
    first, second = rig.operators
    rig.plant.set_parallelism({first: 5})
    rig.settle()
    assert rig.parallelism() == {first: 5, second: 2}
    rig.plant.set_parallelism({second: 3})
    rig.settle()
    before = rig.changes()
    rig.plant.set_parallelism({first: 5, second: 3})
    rig.settle()
    assert (rig.parallelism(), rig.changes()) == ({first: 5, second: 3}, before)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("tasks", [0, -1, 257, 10**9])
def test_tasks_outside_the_range_are_refused_by_name_and_nothing_is_set(rig, tasks):
    first, second = rig.operators
    with pytest.raises(BadInput) as refused:
        rig.plant.set_parallelism({first: 3, second: tasks})
    assert second in str(refused.value)
    rig.settle()
    assert rig.parallelism() == {first: 2, second: 2}


def test_an_operator_that_is_not_known_is_refused_by_name_and_nothing_is_set(rig):
    first, _ = rig.operators
    with pytest.raises(BadInput, match="nobody"):
        rig.plant.set_parallelism({first: 3, "nobody": 1})
    rig.settle()
    assert rig.parallelism()[first] == 2


def test_a_sources_tasks_cannot_be_set(rig):
    source = next(each.name for each in rig.plant.get_topology().operators.values() if each.kind == "source")
    rig.settle()
    with pytest.raises(BadInput, match="can't be set"):
        rig.plant.set_parallelism({source: 2})


@pytest.mark.parametrize("rig", ["memory", "local", "remote", "flink", "celery", "cluster"], indirect=True)
def test_an_operator_that_vanished_is_refused_and_the_others_can_still_be_set(rig):
    first, second = rig.operators
    rig.vanish(second)
    assert second not in rig.plant.get_topology().operators
    with pytest.raises(BadInput, match=re.escape(second)):
        rig.plant.set_parallelism({second: 3})
    rig.plant.set_parallelism({first: 3})
    rig.settle()
    assert rig.parallelism() == {first: 3}


def test_a_remote_plant_is_held_and_let_go(control, plant_topology, secret):
    rig = RemoteRig(control, secret)
    rig.plant.hold(30.0)
    assert find_holder(control, "main").holder == "token:weir-2"
    rig.plant.release()
    assert find_holder(control, "main") is None


def remote(answer, timeout_seconds=20.0, **more):
    client = PlantClient("east", URL, "a token", timeout_seconds, httpx.MockTransport(answer), **more)
    return RemotePlant(client)


def answering(status=200, **more):
    return lambda request: httpx.Response(status, **more)


def slow(request):
    raise httpx.ReadTimeout("late", request=request)


def away(request):
    raise httpx.ConnectError("refused", request=request)


def broken_off(request):
    raise httpx.RemoteProtocolError("peer closed connection", request=request)


GOOD = {"plant": "main", "at": 1.0, "window_seconds": 10.0, "operators": {}, "links": []}


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (slow, PlantUnavailable, "did not respond within 20 s"),
        (away, PlantUnavailable, "can't be reached"),
        (broken_off, PlantUnavailable, "can't be reached"),
        (answering(503, json={"errors": {"snapshot": ["seen 9 s ago"]}}), PlantUnavailable, "seen 9 s ago"),
        (answering(content=orjson.dumps(GOOD)[:40]), InvalidPlantResponse, "incomplete JSON"),
        (answering(text="<html>"), InvalidPlantResponse, "incomplete JSON"),
        (answering(json=[1, 2]), InvalidPlantResponse, "topology: must be a JSON object"),
        (answering(json={**GOOD, "operators": None}), InvalidPlantResponse, "topology.operators"),
        (answering(json={**GOOD, "links": [{"source": "a", "target": "b"}]}), InvalidPlantResponse, "not an operator"),
        (answering(401, json={"errors": {"authorization": ["expired"]}}), InvalidPlantResponse, "401.*expired"),
        (answering(500, json={"oops": 1}), InvalidPlantResponse, "500"),
        (answering(301, json={}, headers={"Location": "http://evil"}), InvalidPlantResponse, "301"),
        (answering(content=b" " * (9 * 2**20)), InvalidPlantResponse, "more than"),
    ],
)
def test_a_remote_that_answers_slowly_wrongly_or_half_is_no_topology_and_says_why(answer, error, said):
    with pytest.raises(error, match=said):
        remote(answer).get_topology()


def test_a_remote_that_sends_its_answer_drop_by_drop_is_slow_too():
    now = [0.0]

    def drops():
        while True:
            now[0] += 1.0
            yield b" "

    plant = remote(answering(content=drops()), timeout_seconds=20.0, monotonic=lambda: now[0])
    with pytest.raises(PlantUnavailable, match="did not complete its response within 20 s"):
        plant.get_topology()
    assert now[0] == 21.0


def test_the_answer_to_a_second_controller_of_a_plant_says_who_holds_it_and_until_when(control, plant_topology, secret):
    rig = RemoteRig(control, secret)
    until = hold(control, "main", "token:weir-3", time.time(), 30.0)
    with pytest.raises(PlantHeld) as held:
        rig.plant.set_parallelism({rig.operators[0]: 3})
    assert (held.value.holder, held.value.until) == ("token:weir-3", until)
    with pytest.raises(PlantHeld):
        rig.plant.hold(30.0)
    rig.plant.release()  # nothing about another holder
    assert find_holder(control, "main").holder == "token:weir-3"
    rig.settle()
    assert rig.parallelism()[rig.operators[0]] == 2
