"""One bad or partial number of a plant is unknown, with its reason, and every other number stands."""

from contextlib import closing

import httpx
import pytest

from common.stored_document import replace_fields
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.control.parts.operators import build_topology_inputs
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import NOTHING_SEEN
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.examples import EXAMPLES
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.kubernetes.api_server import ApiServer
from workers.plants.foreign.kubernetes.kubernetes_plant import KubernetesPlant
from workers.plants.foreign.remote import RemotePlant
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

CHAIN = """name: shop
prometheus: http://prometheus:9090
window_seconds: 10
sensors:
  rate: {promql: rate}
  tasks: {promql: tasks}
  lag: {promql: lag}
  busy: {promql: busy}
operators:
  - {name: src, source: true, out_per_second: rate}
  - name: w1
    after: [src]
    tasks: tasks
    maximum: 9
    service_seconds: 0.1
    set: {http: {url: 'http://runner/w1/$tasks'}}
  - name: w2
    after: [w1]
    tasks: tasks
    maximum: 9
    utilisation: busy
    waiting_events: lag
    set: {http: {url: 'http://runner/w2/$tasks'}}
"""
INFO = 'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "jobs_done" (1:6)'


def vector(value, **more):
    result = [{"metric": {}, "value": [1790000000.1, value]}]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}


def refused(status, error):
    return httpx.Response(status, json={"status": "error", "errorType": "execution", "error": error})


def chain(**answers):
    """A plant of a source and two operators; answers: of a query, in place of a good one."""
    good = {"rate": vector("40"), "tasks": vector("2"), "lag": vector("20"), "busy": vector("0.5")}

    def answer(request):
        found = {**good, **answers}[request.url.params["query"]]
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)

    return closing(DeclaredPlant(parse_declaration(CHAIN), {}, httpx.MockTransport(answer)))


@pytest.mark.parametrize(
    ("lag", "reason"),
    [
        (vector("-300"), "Sensor lag returned -300; waiting_events of w2 must be 0 to 1e+12."),
        (vector("1e30"), "Sensor lag returned 1e+30"),
        (refused(422, "many-to-many matching not allowed"), "many-to-many matching not allowed"),
        (refused(503, "query timed out in expression evaluation"), "timed out"),
        (httpx.ReadTimeout("late"), "did not respond within"),
        (vector([]), "that is not from Prometheus"),
        (vector("NaN"), ""),
    ],
    ids=["negative", "beyond-bounds", "promql-error", "too-late-there", "too-late-here", "list", "nan"],
)
def test_a_lag_that_cannot_be_had_leaves_every_other_measure_standing(lag, reason):
    with chain(lag=lag) as plant:
        topology = plant.get_topology()
        w1, w2 = topology.operators["w1"], topology.operators["w2"]
        assert (w1.parallelism, w1.measure("inputs"), w2.measure("utilisation")) == (2, 400.0, 0.5)
        assert w2.waiting is None
        assert [each.latency_seconds for each in topology.links] == [None, None]
        assert reason in (plant.get_sensor_statuses()["lag"].error or "")
        assert plant.get_sensor_statuses()["rate"].error is None


def test_a_share_in_percent_is_unknown_and_says_how_to_declare_it():
    with chain(busy=vector("85")) as plant:
        w2 = plant.get_topology().operators["w2"]
        assert (w2.waiting, w2.measure("utilisation"), w2.measure("service_seconds")) == (20.0, None, None)
        assert "times: 0.01" in plant.get_sensor_statuses()["busy"].error


def test_a_rate_of_almost_nothing_makes_no_measure_beyond_all_bounds():
    with chain(rate=vector("1e-300")) as plant:
        topology = plant.get_topology()
        assert [each.latency_seconds for each in topology.links] == [None, None]
        assert MeasuredTopology.from_document(topology.to_document()).operators["w2"].waiting == 20.0


@pytest.mark.parametrize("value", [-1, "many", True, [3], 1e30])
def test_a_measure_of_another_weir_that_nothing_can_use_is_left_out_and_named(value):
    task = {"inputs": value, "executions": 40.0}
    operators = {
        "src": {"kind": "source", "parallelism": 1, "failed": value},
        "w1": {"kind": "operator", "parallelism": 2, "waiting": value, "tasks": [task, {"inputs": 3.0}]},
    }
    links = [{"source": "src", "target": "w1", "latency_seconds": value}]
    document = {"plant": "main", "at": 5.0, "window_seconds": 10.0, "operators": operators, "links": links}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=document))
    with closing(RemotePlant(PlantClient("east", "http://east", transport=transport))) as plant:
        w1 = plant.get_topology().operators["w1"]
        assert (w1.waiting, w1.measure("inputs"), w1.measure("executions")) == (None, 3.0, 40.0)
        [section] = plant.list_sections()
        assert len(section.rows) == 4
        assert str(section.rows[1][0]).startswith("operators.w1.waiting: must be a number from 0 to 1e+18, not ")
        document["operators"], document["links"] = {"src": {"kind": "source", "parallelism": 1}}, []
        plant.get_topology()
        assert plant.list_sections() == ()


@pytest.mark.parametrize("tasks", [vector("-1"), vector("NaN"), vector("1e9"), refused(503, "timed out")])
def test_unknown_tasks_leave_the_rest_of_the_plant_standing_and_its_loops_holding(tasks):
    with chain(tasks=tasks) as plant:
        topology = plant.get_topology()
        w2 = topology.operators["w2"]
        assert w2.unknown_tasks and w2.waiting == 20.0 and w2.measure("utilisation") is None
        assert topology.operators["src"].measure("outputs") == 400.0
        with pytest.raises((InvalidPlantResponse, PlantUnavailable)):
            plant.set_parallelism({"w2": 3})
    status = PlantStatus(kind="declared", state="seen", topology=topology.to_document(), age_seconds=0.0)
    snapshot = replace_fields(NOTHING_SEEN, at=5.0, plants={"shop": status})
    _, measured = build_topology_inputs({"plant": "shop"}, snapshot, 5.0)
    assert measured.invalid == topology.operators["w1"].unknown_tasks


@pytest.mark.parametrize(
    "notes",
    [
        {"warnings": [INFO]},
        {"infos": [INFO]},
        {"warnings": [INFO, INFO], "infos": []},
        {"warnings": []},
        {"warnings": None},
    ],
)
def test_a_note_of_prometheus_is_no_warning(notes):
    with chain(lag=vector("5", **notes)) as plant:
        assert plant.get_topology().operators["w2"].waiting == 5.0
        assert plant.get_sensor_statuses()["lag"].error is None


@pytest.mark.parametrize(
    "warnings",
    [
        ["No StoreAPIs matched for this query"],
        [INFO, "receive series from Addr: 10.0.0.7:10901: context deadline exceeded"],
        "store-gateway: 1 of 3 instances did not answer",
        ["PromQL warning: encountered a mix of histograms and floats for aggregation (1:1)"],
    ],
)
def test_a_partial_answer_is_shown_as_such_and_nothing_relies_on_it(warnings):
    with chain(lag=vector("5", warnings=warnings), busy=vector("0.4", warnings=[])) as plant:
        w2 = plant.get_topology().operators["w2"]
        assert (w2.waiting, w2.measure("utilisation")) == (None, 0.4)
        lag = plant.get_sensor_statuses()["lag"]
        assert (lag.value, lag.known_value) == (5.0, None)
        assert "returned a partial result: " in lag.error
        assert "PromQL info" not in lag.error


def test_no_series_is_unknown_and_two_name_the_remedy():
    none = vector("5")
    none["data"]["result"] = []
    two = vector("5")
    two["data"]["result"] *= 2
    with chain(lag=none, busy=two) as plant:
        assert plant.get_topology().operators["w2"].waiting is None
        assert plant.get_sensor_statuses()["lag"].error is None
        assert "sum()" in plant.get_sensor_statuses()["busy"].error


HPA_LISTS = {"": ("a", "next-1"), "next-1": ("b", "next-2"), "next-2": ("c", "")}


def api_server(answer):
    address = PlantAddress(
        name="cluster",
        url="http://cluster",
        options={"namespace": "shop", "workloads": "a"},
        transport=httpx.MockTransport(answer),
    )
    return closing(ApiServer(address, "shop"))


def page_of(request):
    name, token = HPA_LISTS[request.url.params.get("continue", "")]
    metadata = {"continue": token, "remainingItemCount": 1} if token else {}
    return httpx.Response(200, json={"metadata": metadata, "items": [{"metadata": {"name": name}}]})


def test_a_list_of_kubernetes_is_read_to_its_last_page():
    with api_server(page_of) as server:
        found = server.get("autoscaling/v2", "horizontalpodautoscalers")
    assert [each["metadata"]["name"] for each in found["items"]] == ["a", "b", "c"]


@pytest.mark.parametrize("items", [[], None])
def test_a_list_without_an_end_is_refused(items):
    def answer(request):
        return httpx.Response(200, json={"metadata": {"continue": "again"}, "items": items})

    with api_server(answer) as server, pytest.raises(InvalidPlantResponse, match="more than 20 pages"):
        server.get("autoscaling/v2", "horizontalpodautoscalers")


# Workloads of which one can't be read


def workload(replicas):
    return {
        "metadata": {"name": "x", "creationTimestamp": "2026-11-20T03:12:00Z"},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas},
    }


DENIED = httpx.Response(403, json={"kind": "Status", "message": 'deployments.apps "score" is forbidden'})


def shop_of(bad, patched):
    """A plant of parse, which is good, and score, which answers this."""

    def answer(request):
        path = request.url.path
        if request.method == "PATCH":
            patched.append(path)
            return httpx.Response(200, json={})
        if path.endswith("/score"):
            return bad
        if path.endswith("/parse"):
            return httpx.Response(200, json=workload(2))
        return httpx.Response(200, json={"metadata": {}, "items": []})

    options = {"namespace": "shop", "workloads": "parse > score"}
    transport = httpx.MockTransport(answer)
    address = PlantAddress(name="cluster", url="http://cluster", options=options, transport=transport)
    return closing(KubernetesPlant(address))


def test_a_workload_that_we_may_not_read_leaves_the_others_seen_and_settable():
    patched = []
    with shop_of(DENIED, patched) as plant:
        assert plant.get_topology().operators["parse"].parallelism == 2
        assert "score" not in plant.get_topology().operators
        rows = {row[0]: row[-1] for row in plant.list_sections()[0].rows}
        assert rows["parse"] == "rolled out"
        assert "is forbidden" in str(rows["score"])
        plant.set_parallelism({"parse": 3})
        with pytest.raises(InvalidPlantResponse, match="is forbidden"):
            plant.set_parallelism({"parse": 4, "score": 3})
    assert patched == ["/apis/apps/v1/namespaces/shop/deployments/parse/scale"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (httpx.Response(200, json={"metadata": {}, "spec": {"replicas": "many"}}), "returned an invalid deployment"),
        (httpx.Response(500, json={"message": "etcdserver: request timed out"}), "timed out"),
        (httpx.Response(200, content=b"<html>"), "invalid or incomplete JSON"),
    ],
)
def test_half_of_a_plant_is_not_taken_for_all_of_it(bad, reason):
    with shop_of(bad, []) as plant, pytest.raises(InvalidPlantResponse, match=reason):
        plant.get_topology()


STATS = {"publish_details": {"rate": 0.0}}
JUST_DECLARED = {"name": "check", "vhost": "/", "state": "running", "consumers": 2}


def plant_of(queue):
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=queue))
    environment = {"WEIR_SECRET_RABBITMQ": "monitor:x"}
    return closing(DeclaredPlant(parse_declaration(EXAMPLES["rabbitmq"]), environment, transport))


@pytest.mark.parametrize(
    ("more", "rate", "waiting"),
    [
        ({}, None, None),
        ({"message_stats": [], "messages_ready": 0}, None, 0.0),
        ({"message_stats": {}, "messages_ready": 0}, None, 0.0),
        ({"message_stats": None, "messages_ready": None}, None, None),
        ({"message_stats": {"ack": 3}, "messages_ready": "unknown"}, None, None),
        ({"message_stats": STATS, "messages_ready": 7}, 0.0, 7.0),
    ],
    ids=["just-declared", "empty-list", "never-used", "null", "other-words", "counted"],
)
def test_what_a_queue_does_not_say_is_unknown(more, rate, waiting):
    with plant_of({**JUST_DECLARED, **more}) as plant:
        topology = plant.get_topology()
        check = topology.operators["check"]
        assert (check.parallelism, check.waiting) == (2, waiting)
        assert plant.get_sensor_statuses()["checked_in"].value == rate
        assert topology.operators["publishers"].measure("outputs") == rate
