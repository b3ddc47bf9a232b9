"""RabbitMQ's management plugin knows no rate of a queue until messages have passed: unknown, never 0."""

from contextlib import suppress

import httpx
import pytest

from tests.workers.plants.foreign.declared.examples import DeclaredRig
from workers.plants.plant import InvalidPlantResponse

READY = {"messages_ready": 24, "consumers": 2}
WITHOUT_RATES = {
    "just declared": {"name": "check", "consumers": 2},  # without even its length
    "an empty list of statistics": {**READY, "message_stats": []},
    "never used": READY,
    "statistics of others": {**READY, "message_stats": {"ack": 7, "ack_details": {"rate": 1.0}}},
    "details without a rate": {**READY, "message_stats": {"publish_details": {}}},
    "a rate of null": {**READY, "message_stats": {"publish_details": {"rate": None}}},
    "a rate that is no number": {**READY, "message_stats": {"publish_details": {"rate": "NaN"}}},
}


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return DeclaredRig("rabbitmq", tmp_path, monkeypatch)


@pytest.mark.parametrize("state", WITHOUT_RATES)
def test_what_a_queue_does_not_say_is_unknown_and_hides_nothing_else(rig, state, monkeypatch):
    said = rig.document

    def document(host, path):
        return WITHOUT_RATES[state] if path.endswith("/check") else said(host, path)

    monkeypatch.setattr(rig, "document", document)
    topology = rig.plant.get_topology()
    sensors = rig.plant.get_sensor_statuses()
    assert sensors["checked_in"].value is None
    assert sensors["ship_ready"].value == 24
    assert sensors["check_ready"].value == WITHOUT_RATES[state].get("messages_ready")
    assert set(topology.operators) == {"publishers", "check", "ship"}


def test_a_rate_is_known_as_soon_as_the_queue_says_one(rig, monkeypatch):
    said, rates = rig.document, [[], {"publish_details": {"rate": 0.0}}, {"publish_details": {"rate": 12.0}}]
    seen = []
    for each in rates:
        monkeypatch.setattr(rig, "document", lambda *place, now=each: {**said(*place), "message_stats": now})
        rig.plant.get_topology()
        seen.append(rig.plant.get_sensor_statuses()["checked_in"].value)
    assert seen == [None, 0.0, 12.0]


@pytest.mark.parametrize("refused", [401, 404, 503])
def test_a_queue_that_can_not_be_asked_leaves_the_other_known(rig, refused):
    def error(request):
        if request.url.path.endswith("/check"):
            return httpx.Response(refused, text="no")
        return httpx.Response(200, json=rig.document(request.url.host, request.url.path))

    rig.error = error
    with suppress(InvalidPlantResponse):  # how many consumers there are is not known, which loops need
        rig.plant.get_topology()
    sensors = rig.plant.get_sensor_statuses()
    assert sensors["check_ready"].value is None and str(refused) in sensors["check_ready"].error
    assert sensors["ship_ready"].value == 24
