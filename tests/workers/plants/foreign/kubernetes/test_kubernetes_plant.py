"""Workloads by their replicas; KEDA and HPA held while a loop controls them, and restored afterwards.

`kmock` represents the API server: requests and patches are real, the cluster is not.
"""

import json
from contextlib import closing

import certifi
import httpx
import pytest

from bench.vanish.cluster import DEPLOYMENTS, HPAS, SCALED_OBJECTS, STATEFUL_SETS, cluster
from common.errors import BadInput
from workers.plants.foreign.adapters import list_kinds
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.kubernetes.api_server import ApiServer, _create_ssl_context, _read_token
from workers.plants.foreign.kubernetes.autoscalers import HELD, PAUSED
from workers.plants.foreign.kubernetes.kubernetes_plant import KubernetesPlant
from workers.plants.foreign.leases import lease_seconds
from workers.plants.holding import PlantHeld
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

NOW = 1_790_000_000.0
BEGIN = "-----BEGIN CERTIFICATE-----"
AUTHORITY = BEGIN + certifi.contents().split(BEGIN)[1]


@pytest.fixture
def k8s():
    with cluster() as running:
        yield running


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def plant_of():
    made = []

    def make(k8s, clock, workloads="parse > score", name="shop", installation="", **options):
        given = {"namespace": "shop", "workloads": workloads, **options}
        address = PlantAddress(name=name, url=k8s.url, options=given)
        made.append(KubernetesPlant(address, clock, lambda: installation))
        return made[-1]

    yield make
    for plant in made:
        plant.close()


def policies(k8s, name):
    behaviour = k8s.get(HPAS, name)["spec"].get("behavior") or {}
    return {each: (behaviour.get(each) or {}).get("selectPolicy") for each in ("scaleUp", "scaleDown")}


def test_replicas_are_ordered_by_scale_and_a_stateful_set_is_one_too(k8s, clock, plant_of):
    k8s.deployment("parse", 2)
    k8s.deployment("score", 3, STATEFUL_SETS)
    plant = plant_of(k8s, clock, "parse > statefulset/score")
    assert [list(path) for path in plant.get_topology().paths.values()] == [["outside", "parse", "score"]]
    plant.set_parallelism({"parse": 5, "score": 4})
    assert k8s.patches() == [
        ("/apis/apps/v1/namespaces/shop/deployments/parse/scale", {"spec": {"replicas": 5}}),
        ("/apis/apps/v1/namespaces/shop/statefulsets/score/scale", {"spec": {"replicas": 4}}),
    ]
    assert plant.get_topology().operators["parse"].parallelism == 2  # the current replicas, not the ordered ones
    k8s.settle()
    assert plant.get_topology().operators["parse"].parallelism == 5


def test_pods_that_a_rollout_has_besides_are_no_tasks(k8s, clock, plant_of):
    k8s.deployment("parse", 4)
    plant = plant_of(k8s, clock, "parse")
    for there, updated, tasks in ((5, 1, 4), (6, 5, 4), (3, 1, 3), (5, 5, 5)):
        status = {"replicas": there, "readyReplicas": 3, "updatedReplicas": updated}
        k8s.get(DEPLOYMENTS, "parse").patch({"status": status})
        assert plant.get_topology().operators["parse"].parallelism == tasks
        assert plant.get_details().set_to == {"parse": 4}


def test_keda_is_paused_while_a_loop_steers_and_goes_on_afterwards(k8s, clock, plant_of):
    k8s.deployment("parse")
    k8s.deployment("score")
    k8s.scaled_object("parse", annotations={"team": "orders"})
    k8s.hpa("parse", ownerReferences=[{"kind": "ScaledObject", "name": "keda-parse"}])
    plant = plant_of(k8s, clock)
    plant.set_parallelism({"parse": 4})
    annotations = k8s.annotations(SCALED_OBJECTS, "keda-parse")
    assert annotations[PAUSED] == "true"
    assert json.loads(annotations[HELD])["by"] == "weir/shop"
    assert k8s.patches()[0][0].endswith("scaledobjects/keda-parse")  # before anything was scaled
    assert policies(k8s, "hpa-parse") == {"scaleUp": None, "scaleDown": None}  # it is KEDA's own
    plant.release()
    assert k8s.annotations(SCALED_OBJECTS, "keda-parse") == {"team": "orders"}


def test_an_hpa_changes_nothing_meanwhile_and_gets_its_policies_back(k8s, clock, plant_of):
    k8s.deployment("parse")
    before = {"scaleDown": {"selectPolicy": "Min", "stabilizationWindowSeconds": 120}}
    k8s.hpa("parse", behavior=before)
    plant = plant_of(k8s, clock, "parse")
    plant.hold(60.0)
    assert policies(k8s, "hpa-parse") == {"scaleUp": "Disabled", "scaleDown": "Disabled"}
    plant.release()
    assert policies(k8s, "hpa-parse") == {"scaleUp": None, "scaleDown": "Min"}
    assert k8s.get(HPAS, "hpa-parse")["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 120
    assert HELD not in k8s.annotations(HPAS, "hpa-parse")


def test_a_held_hpa_keeps_its_bounds_so_tasks_are_set_between_them_alone(k8s, clock, plant_of):
    k8s.deployment("parse", 2)
    k8s.deployment("score", 2)
    k8s.hpa("parse")  # 2 to 8 replicas
    k8s.scaled_object("score")  # once it is paused, it has no bounds
    plant = plant_of(k8s, clock, minimum="1", maximum="20")
    bounds = {each.name: (each.minimum, each.maximum) for each in plant.get_topology().operators.values()}
    assert (bounds["parse"], bounds["score"]) == ((2, 8), (1, 20))
    for count in (1, 9):
        with pytest.raises(BadInput, match=r"2 to 8 replicas.*HorizontalPodAutoscaler") as refused:
            plant.set_parallelism({"parse": count})
        assert refused.value.field == "tasks.parse"
    assert k8s.patches() == []
    plant.set_parallelism({"parse": 8, "score": 12})
    plant.hold(60.0)
    with pytest.raises(BadInput, match="even while it is held"):
        plant.set_parallelism({"parse": 9})
    k8s.delete(HPAS, "hpa-parse")
    plant.set_parallelism({"parse": 9})
    clock.now += 11.0
    assert plant.get_topology().operators["parse"].maximum == 20


def test_where_autoscalers_may_not_be_listed_replicas_are_seen_all_the_same(k8s, clock, plant_of, monkeypatch):
    k8s.deployment("parse", 2)
    get = ApiServer.get

    def refuse(server, group, path):
        if path == "horizontalpodautoscalers":
            raise InvalidPlantResponse("shop rejected the request to get horizontalpodautoscalers (403): forbidden")
        return get(server, group, path)

    monkeypatch.setattr(ApiServer, "get", refuse)
    assert plant_of(k8s, clock, "parse").get_topology().operators["parse"].maximum == 20


def test_a_hold_that_nobody_renewed_is_ended_by_whoever_observes(k8s, clock, plant_of):
    k8s.deployment("parse")
    k8s.scaled_object("parse")
    plant_of(k8s, clock, "parse").hold(60.0)  # its loop dies now
    watching = plant_of(k8s, clock, "parse")
    clock.now += 59.0
    watching.list_sections()
    assert k8s.annotations(SCALED_OBJECTS, "keda-parse")[PAUSED] == "true"
    clock.now += 2.0
    watching.list_sections()
    assert k8s.annotations(SCALED_OBJECTS, "keda-parse") == {}


def test_what_a_person_has_paused_stays_paused(k8s, clock, plant_of):
    k8s.deployment("parse")
    k8s.scaled_object("parse", annotations={PAUSED: "true"})
    plant = plant_of(k8s, clock, "parse")
    plant.hold(60.0)
    plant.release()
    assert k8s.annotations(SCALED_OBJECTS, "keda-parse") == {PAUSED: "true"}
    assert k8s.patches() == []


def test_another_weir_that_holds_is_not_disturbed_until_its_end(k8s, clock, plant_of):
    k8s.deployment("parse")
    k8s.scaled_object("parse")
    one, other = plant_of(k8s, clock, "parse"), plant_of(k8s, clock, "parse", name="far-shop")
    one.hold(60.0)
    with pytest.raises(PlantHeld) as held:
        other.set_parallelism({"parse": 4})
    assert (held.value.holder, held.value.until) == ("weir/shop", NOW + lease_seconds())
    assert k8s.get(DEPLOYMENTS, "parse")["spec"]["replicas"] == 2
    other.release()
    assert k8s.annotations(SCALED_OBJECTS, "keda-parse")[PAUSED] == "true"
    clock.now += 61.0
    other.set_parallelism({"parse": 4})
    assert json.loads(k8s.annotations(SCALED_OBJECTS, "keda-parse")[HELD])["by"] == "weir/far-shop"


def test_two_weirs_that_call_the_plant_alike_do_not_both_steer_it(k8s, clock, plant_of):
    k8s.deployment("parse")
    k8s.scaled_object("parse")
    one, other = (plant_of(k8s, clock, "parse", installation=each) for each in ("3f9a12bc", "77d01e5a"))
    one.set_parallelism({"parse": 4})
    with pytest.raises(PlantHeld) as held:
        other.set_parallelism({"parse": 7})
    assert held.value.holder == "weir-3f9a12bc/shop"


def test_a_workload_that_is_no_longer_the_plants_is_let_go(k8s, clock, plant_of):
    for name in ("parse", "score"):
        k8s.deployment(name)
        k8s.scaled_object(name)
    plant_of(k8s, clock, "parse > score").hold(60.0)
    clock.now += 61.0
    plant_of(k8s, clock, "score").list_sections()
    assert k8s.annotations(SCALED_OBJECTS, "keda-score") == {}
    assert k8s.annotations(SCALED_OBJECTS, "keda-parse") == {}


def test_where_one_of_several_is_refused_the_others_are_set_back(k8s, clock, monkeypatch, plant_of):
    k8s.deployment("parse", 2)
    k8s.deployment("score", 2)
    plant, scale = plant_of(k8s, clock), ApiServer.patch

    def refuse(server, group, path, changes):
        if path.startswith("deployments/score"):
            raise InvalidPlantResponse("shop rejected the request to patch deployments/score/scale (403): forbidden")
        return scale(server, group, path, changes)

    monkeypatch.setattr(ApiServer, "patch", refuse)
    with pytest.raises(InvalidPlantResponse, match="403"):
        plant.set_parallelism({"parse": 5, "score": 5})
    assert k8s.get(DEPLOYMENTS, "parse")["spec"]["replicas"] == 2


def test_what_a_namespace_has_is_said_before_anything_is_registered(k8s):
    k8s.deployment("parse")
    k8s.deployment("mail", 1, STATEFUL_SETS)
    k8s.scaled_object("parse")
    found = list_kinds()["kubernetes"].run_inspection(
        PlantAddress(name="shop", url=k8s.url, options={"namespace": "shop"})
    )
    assert {part.name: part.tasks for part in found.parts} == {"deployment/parse": 2, "statefulset/mail": 1}
    assert any("KEDA keda-parse scales parse" in said for said in found.said)
    assert any("scaledobjects" in need for need in found.needs)
    assert k8s.patches() == []


def test_a_server_that_is_away_or_refuses_says_so(k8s, clock, plant_of):
    away = PlantAddress(name="shop", url="http://127.0.0.1:1099", options={"workloads": "parse"})
    with closing(KubernetesPlant(away)) as plant, pytest.raises(PlantUnavailable, match="can't be reached"):
        plant.get_topology()
    k8s.handler["get", "/apis/apps/v1/namespaces/shop/deployments/parse"] << 403
    with pytest.raises(InvalidPlantResponse, match="rejected the request to get deployments/parse \\(403\\)"):
        plant_of(k8s, clock, "parse").get_topology()


def test_a_pods_token_goes_to_its_own_cluster_alone_and_over_tls(tmp_path):
    (tmp_path / "token").write_text("of the pod\n")
    (tmp_path / "ca.crt").write_text(AUTHORITY)

    def sent(url, secret=""):
        address = PlantAddress(name="shop", url=url, secret=secret)
        server = ApiServer(address, "shop", tmp_path)
        found = server._client._client.headers.get("authorization")
        server.close()
        return found

    assert sent("https://kubernetes.default.svc") == "Bearer of the pod"
    assert sent("https://kubernetes.default.svc.cluster.local") == "Bearer of the pod"
    assert sent("https://kubernetes.default.svc", "own") == "Bearer own"
    for other in ("http://kubernetes.default.svc", "https://kubernetes.default.svcs.example", "https://k8s.example"):
        assert sent(other) is None


def test_a_pods_token_goes_to_who_the_pods_own_authority_vouches_for_alone(tmp_path, monkeypatch):
    """Somebody else may register https://kubernetes.default.svc.example and have a certificate for it."""
    url = "https://kubernetes.default.svc.example"
    monkeypatch.setenv("WEIR_KUBERNETES_CA", certifi.where())
    (tmp_path / "token").write_text("of the pod\n")
    assert _read_token(url, tmp_path) == ""  # no authority could certify the receiver
    (tmp_path / "ca.crt").write_text(AUTHORITY)
    assert _read_token(url, tmp_path) == "of the pod"
    assert len(_create_ssl_context(url, tmp_path, is_pods=True).get_ca_certs()) == 1
    assert len(_create_ssl_context(url, tmp_path, is_pods=False).get_ca_certs()) > 1


@pytest.mark.parametrize("answer", [{}, {"items": None}, {"items": [{}]}, {"items": [1]}, {"status": "success"}])
def test_an_inspection_of_something_else_says_that_it_is_no_cluster(answer):
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    address = PlantAddress(name="it", url="http://shop.example", transport=transport)
    with pytest.raises(InvalidPlantResponse, match="it returned a response that is not from an API server"):
        list_kinds()["kubernetes"].run_inspection(address)


@pytest.mark.parametrize(
    "document",
    [
        {"spec": [], "metadata": {"name": "parse"}},
        {"spec": {"replicas": 2}, "status": ["no"], "metadata": {"name": "parse"}},
        {"spec": {"replicas": 2}},
        {"spec": {"replicas": 2}, "metadata": None},
        {"spec": {"replicas": 2}, "metadata": {"creationTimestamp": 5}},
        {"spec": {"replicas": 2}, "status": {"readyReplicas": "many"}, "metadata": {}},
    ],
)
def test_a_workload_that_is_none_is_said_and_no_fault_of_ours(clock, plant_of, document):
    def answer(request):
        return httpx.Response(200, json=document if "deployments/" in request.url.path else {"items": []})

    options = {"namespace": "shop", "workloads": "parse"}
    transport = httpx.MockTransport(answer)
    address = PlantAddress(name="shop", url="http://shop", options=options, transport=transport)
    with closing(KubernetesPlant(address, clock)) as plant:
        for ask in (plant.get_topology, plant.list_sections, lambda: plant.set_parallelism({"parse": 3})):
            with pytest.raises(InvalidPlantResponse, match="returned an invalid deployment"):
                ask()


def test_a_note_that_is_nested_without_end_keeps_no_plant_from_being_seen(k8s, clock, plant_of):
    k8s.deployment("parse")
    k8s.scaled_object("parse", annotations={HELD: "[" * 100_000})
    plant = plant_of(k8s, clock, "parse")
    assert plant.list_sections()[1].rows[0][-1] == "active"
    plant.hold(60.0)
    assert k8s.annotations(SCALED_OBJECTS, "keda-parse")[PAUSED] == "true"
