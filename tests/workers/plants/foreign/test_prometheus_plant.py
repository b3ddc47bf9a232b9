"""Prometheus as a plant: its jobs are requested by PromQL, and its list of targets only for the page."""

import httpx
import pytest

from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.prometheus import ADAPTER, MAX_DOWN, MAX_JOBS
from workers.plants.plant import InvalidPlantResponse

JOBS = {"shop": (2, 3), "node": (5, 5), None: (0, 1)}


class FarPrometheus:
    """A fake server. jobs: name → (targets that are up, all targets); targets: its answer about them."""

    def __init__(self, jobs):
        self.jobs, self.targets, self.asked = jobs, httpx.Response(403, json={"error": "denied"}), []
        self.given_up_after = set()  # its note about a query

    def answer(self, request):
        self.asked.append(request.url.path)
        if request.url.path.endswith("/targets"):
            return self.targets
        self.given_up_after.add(request.url.params["timeout"])
        place = 0 if request.url.params["query"] == "sum by (job) (up)" else 1
        assert request.url.params["query"] in ("sum by (job) (up)", "count by (job) (up)")
        result = [
            {"metric": {"job": name} if name else {}, "value": [5.0, str(counts[place])]}
            for name, counts in self.jobs.items()
        ]
        document = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return httpx.Response(200, json=document)

    def plant(self):
        transport = httpx.MockTransport(self.answer)
        return ADAPTER.make(PlantAddress(name="metrics", url="http://prometheus:9090", transport=transport))


def test_its_jobs_are_seen_with_the_targets_that_are_up_and_no_list_of_targets_is_asked_for():
    far = FarPrometheus(JOBS)
    operators = far.plant().get_topology().operators
    assert {name: (each.parallelism, each.maximum) for name, each in operators.items()} == {
        "node": (5, 5),
        "none": (0, 1),
        "shop": (2, 3),
    }
    assert set(far.asked) == {"/api/v1/query"}
    assert all(each.fixed for each in operators.values())


def test_a_query_is_not_given_up_before_its_answer_may_come(monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "7.5")
    far = FarPrometheus(JOBS)
    far.plant().get_topology()
    assert far.given_up_after == {"7500ms"}


def test_a_server_that_keeps_its_targets_to_itself_is_seen_all_the_same():
    plant = FarPrometheus(JOBS).plant()
    with pytest.raises(InvalidPlantResponse, match="denied"):  # which the watch of a plant ignores
        plant.list_sections()
    assert len(plant.get_topology().operators) == 3


def test_targets_that_are_down_are_listed_with_their_last_error():
    far = FarPrometheus(JOBS)
    targets = [
        {"labels": {"job": "shop"}, "health": "up"},
        {"labels": {"job": "shop"}, "health": "down", "scrapeUrl": "http://shop:1", "lastError": "refused"},
    ]
    far.targets = httpx.Response(200, json={"status": "success", "data": {"activeTargets": targets}})
    [down] = far.plant().list_sections()
    assert (down.about, down.rows) == ("1 of 2", [["shop", "http://shop:1", "refused"]])


def test_of_targets_that_are_down_no_login_is_shown():
    far = FarPrometheus(JOBS)
    url = "http://me:hun%40ter2@auth-shop:9115/probe?module=http_2xx&api_token=hunter2&target=https%3A%2F%2Fx"
    error = f'Get "{url}": dial tcp: connection refused'
    targets = [{"labels": {"job": "shop"}, "health": "down", "scrapeUrl": url, "lastError": error}]
    far.targets = httpx.Response(200, json={"status": "success", "data": {"activeTargets": targets}})
    [[_, address, said]] = far.plant().list_sections()[0].rows
    shown = "http://me:•••@auth-shop:9115/probe?module=http_2xx&api_token=•••&target=https%3A%2F%2Fx"
    assert (address, said) == (shown, f'Get "{shown}": dial tcp: connection refused')


def test_of_very_many_jobs_the_first_are_seen_and_the_others_named():
    plant = FarPrometheus({f"job{number:04}": (1, 1) for number in range(2_000)}).plant()
    assert len(plant.get_topology().operators) == MAX_JOBS
    [others] = plant.list_sections()
    assert others.about == "1900 jobs; only the first 100 by name are operators"
    assert others.rows[0] == ["job0100"] and len(others.rows) == MAX_DOWN


@pytest.mark.parametrize(
    "data", [None, 5, {"resultType": "scalar", "result": [5.0, "1"]}, {"resultType": "vector", "result": [{}]}]
)
def test_what_is_no_vector_is_said_to_be_none(data):
    far = FarPrometheus(JOBS)
    far.answer = lambda request: httpx.Response(200, json={"status": "success", "data": data})
    with pytest.raises(InvalidPlantResponse):
        far.plant().get_topology()


def test_a_target_that_says_what_is_no_number_of_targets_is_down():
    operators = FarPrometheus({"odd": ("NaN", "NaN"), "more": (9, 2), "less": (-1, 2)}).plant().get_topology()
    found = {name: (each.parallelism, each.maximum) for name, each in operators.operators.items()}
    assert found == {"less": (0, 2), "more": (2, 2), "odd": (0, 0)}
