"""Queueing networks against textbook answers, and against each other."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from controllers.concurrency.throughput_curve import compute_station_throughput
from controllers.design.queueing_models import Station, answer, compute_throughput, solve_closed
from tests.shared_data import DATA

REFERENCE = DATA / "reference" / "queueing.json"


def close(found, wanted, tolerance):
    assert found == pytest.approx(wanted, abs=tolerance * max(1.0, abs(wanted)))


def named(services, visits, servers):
    return [
        {"name": str(at), "service_seconds": service, "visits": visit, "servers": max(0, number)}
        for at, (service, visit, number) in enumerate(zip(services, visits, servers, strict=True))
    ]


def reference(name):
    if not REFERENCE.exists():
        pytest.skip("the reference answers are not here")
    return next(case for case in json.loads(REFERENCE.read_text())["cases"] if case["id"] == name)


@pytest.mark.parametrize("name", ["jain-p577", "bolch-8.3"])
def test_closed_networks_of_the_textbooks(name):
    case = reference(name)
    given, expected = case["input"], case["expected"]
    stations = named(given["S"], given["V"], given.get("m", [1] * len(given["S"])))
    found = answer({"stations": stations, "customers": given["N"], "think_seconds": given.get("Z", 0)})
    for key, field in (("R", "residence_seconds"), ("Q", "queue_length"), ("U", "utilisation")):
        for at, wanted in enumerate(expected.get(key, [])):
            close(found["stations"][str(at)][field], wanted, case["tol"])


def test_the_repairman_model_of_the_textbooks():
    case = reference("repairman-kolkmeyer-1")
    machine = {"name": "a", "servers": 1, "service_seconds": 2}
    there = answer({"stations": [machine], "customers": 6, "think_seconds": 20})["stations"]["a"]
    close(there["empty_probability"], case["expected"]["P0"], case["tol"])
    close(there["queue_length"], case["expected"]["L"], case["tol"])
    close(there["residence_seconds"], case["expected"]["W"], case["tol"])


some_stations = st.lists(st.tuples(st.integers(0, 12), st.floats(0.001, 10), st.floats(0.1, 5)), min_size=1, max_size=4)


@settings(max_examples=40)
@given(some_stations, st.integers(1, 60), st.floats(0, 20))
def test_customers_are_somewhere_and_no_server_is_used_more_than_wholly(rows, customers, think):
    stations = [Station(str(at), *row) for at, row in enumerate(rows)]
    found = solve_closed(stations, customers, think)
    there = sum(each.queue_length for each in found.stations.values())
    thinking = found.throughput_per_second * think
    assert there + thinking == pytest.approx(customers, rel=1e-8)
    for station in stations:
        if station.servers:
            assert found.stations[station.name].utilisation <= 1 + 1e-9
    assert compute_throughput(stations, customers, think)[-1] == pytest.approx(found.throughput_per_second, rel=1e-9)


def test_many_customers_at_many_servers_do_not_drift():
    # A station of 8 servers with a delay is the machine repairman, whose balance equations are exact.
    for customers in (50, 200, 1000):
        network = solve_closed([Station("a", 8, 1.0)], customers, 10.0)
        assert network.throughput_per_second == pytest.approx(
            compute_station_throughput(customers, 8, 8.0, 11.0), rel=1e-9
        )
    assert solve_closed([Station("a", 8, 1.0)], 1000, 10.0).throughput_per_second == pytest.approx(8.0, rel=1e-9)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"stations": [], "customers": 1}, "stations"),
        ({"stations": [{"name": "a", "service_seconds": 1}], "customers": -1}, "customers"),
        ({"stations": [{"name": "a"}], "customers": 3}, "stations"),
        ({"stations": [{"name": "a"}, {"name": "a"}], "customers": 3}, "stations[1].name"),
    ],
)
def test_a_network_without_sense_is_refused_by_name(document, field):
    with pytest.raises(BadInput) as refused:
        answer(document)
    assert refused.value.field == field
