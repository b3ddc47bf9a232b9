"""Resets of a consumer group's offsets: planned and approved over the API, audited, undone. The broker is Tansu."""

import pytest

from console.models import AuditEntry
from tests.workers.plants.foreign.kafka.broker import tansu
from workers.plants.models import RegisteredPlant

pytestmark = pytest.mark.django_db

BILLING = {"group": "billing", "target": "earliest"}


@pytest.fixture(scope="module")
def broker():
    with tansu() as running:
        running.create("orders")
        running.publish("orders", 10)
        yield running


@pytest.fixture
def plant(broker):
    broker.commit("billing", "orders", 4)
    RegisteredPlant.objects.create(name="shop", kind="flink", url="http://127.0.0.1:1")
    return RegisteredPlant.objects.create(name="events", kind="kafka", url=broker.url, options={"groups": "billing"})


@pytest.fixture
def ask(browsers, secrets):
    def ask(address, body, role="operator", plant="events"):
        headers = {"authorization": f"Bearer {secrets[role]}"}
        path = f"/api/v1/plants/{plant}/{address}"
        return browsers["anonymous"].post(path, body, content_type="application/json", headers=headers)

    return ask


def test_an_approved_plan_is_executed_audited_and_undone(plant, ask, control):
    plan = ask("offsets/plan", BILLING).json()
    assert (plan["skipped"], plan["again"], plan["undo"]) == (0, 4, "orders/0=4")
    assert not AuditEntry.objects.filter(action="plant.offsets").exists()
    done = ask("offsets", {**BILLING, "digest": plan["digest"], "reason": "billing lost a day"})
    assert done.status_code == 200, done.content
    entry = AuditEntry.objects.get(action="plant.offsets")
    assert (entry.target, entry.reason) == ("events", "billing lost a day")
    assert (entry.before["target"], entry.after["again"]) == ("orders/0=4", 4)
    back = {"group": "billing", "target": plan["undo"]}
    undo = ask("offsets/plan", back).json()
    assert [row["now"] for row in undo["partitions"]] == [0]
    assert ask("offsets", {**back, "digest": undo["digest"], "reason": "undo"}).status_code == 200
    assert [row["now"] for row in ask("offsets/plan", BILLING).json()["partitions"]] == [4]


def test_a_plan_whose_offsets_have_changed_is_refused_and_changes_nothing(plant, ask, broker, control):
    plan = ask("offsets/plan", BILLING).json()
    broker.commit("billing", "orders", 7)
    refused = ask("offsets", {**BILLING, "digest": plan["digest"], "reason": "billing lost a day"})
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["digest"])
    assert [row["now"] for row in ask("offsets/plan", BILLING).json()["partitions"]] == [7]


@pytest.mark.parametrize(("name", "field"), [("shop", "plant"), ("nowhere", "plant")])
def test_only_a_kafka_cluster_has_offsets(plant, ask, control, name, field):
    refused = ask("offsets/plan", BILLING, plant=name)
    assert (refused.status_code, list(refused.json()["errors"])) == (422, [field])


def test_who_may_not_scale_plants_may_not_reset_offsets(plant, ask, control):
    assert ask("offsets/plan", BILLING, role="viewer").status_code == 403
