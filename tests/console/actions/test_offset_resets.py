"""Resets of a consumer group's offsets: planned, proposed, approved, audited, and undone. The broker is Tansu."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.models import AuditEntry
from tests.console.page_form import fetch, form_of, source_of
from tests.workers.plants.foreign.kafka.broker import tansu
from workers.plants.foreign.kafka import reset_plans
from workers.plants.foreign.kafka.kafka_plant import KafkaPlant
from workers.plants.models import OffsetResetPlan, RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db

PAGE = "/plants/events/offsets/"
BILLING = {"group": "billing", "target": "earliest"}
REASON = {"reason": "billing lost a day"}


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


def propose(ask, body=BILLING):
    plan = ask("offsets/plan", body).json()
    proposed = ask("offsets", {**body, "hash": plan["hash"], **REASON})
    assert proposed.status_code == 200, proposed.content
    return proposed.json()


def approve(ask, reset, **more):
    return ask(f"offsets/{reset['id']}/approve", {"hash": reset["hash"], "reason": "agreed", **more})


def committed(ask):
    return [row["now"] for row in ask("offsets/plan", BILLING).json()["partitions"]]


def test_an_approved_reset_is_executed_audited_and_undone(plant, ask, control):
    reset = propose(ask)
    assert (reset["state"], reset["skipped"], reset["again"], reset["undo"]) == ("proposed", 0, 4, "orders/0=4")
    assert not AuditEntry.objects.filter(action="plant.offsets").exists() and committed(ask) == [4]
    done = approve(ask, reset)
    assert done.status_code == 200, done.content
    assert (done.json()["state"], committed(ask)) == ("done", [0])
    entry = AuditEntry.objects.get(action="plant.offsets")
    assert (entry.target, entry.reason) == ("events", "agreed")
    assert (entry.before["target"], entry.after["again"]) == ("orders/0=4", 4)
    undo = propose(ask, {"group": "billing", "target": reset["undo"]})
    assert approve(ask, undo).status_code == 200 and committed(ask) == [4]
    assert AuditEntry.objects.filter(action__in=["offsets.propose", "offsets.approve"]).count() == 4


def test_a_reset_of_offsets_that_have_changed_is_refused_and_changes_nothing(plant, ask, broker, control):
    plan, reset = ask("offsets/plan", BILLING).json(), propose(ask)
    broker.commit("billing", "orders", 7)
    refused = ask("offsets", {**BILLING, "hash": plan["hash"], **REASON})
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["hash"])
    refused = approve(ask, reset)
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["plan"])
    assert committed(ask) == [7]


def test_a_reset_to_the_end_is_executed_as_planned_although_events_were_added(plant, ask, broker, control):
    reset = propose(ask, {"group": "billing", "target": "latest"})
    then = reset["partitions"][0]["then"]
    broker.publish("orders", 1)
    assert approve(ask, reset).json()["state"] == "done" and committed(ask) == [then]


def test_a_second_person_approves_where_a_setting_requires_it(plant, ask, people, control):
    plant_settings.change("approvals.operator", 2, people["administrator"], timezone.now())
    reset = propose(ask)
    first = approve(ask, reset).json()
    assert (first["state"], committed(ask)) == ("proposed", [4])
    assert "Another user has to approve it" in first["note"]
    again = approve(ask, reset)
    assert (again.status_code, list(again.json()["errors"])) == (422, ["plan"])
    second = ask(f"offsets/{reset['id']}/approve", {"hash": reset["hash"], **REASON}, role="administrator")
    assert (second.json()["state"], committed(ask)) == ("done", [0])


def test_another_hash_is_refused(plant, ask, control):
    refused = approve(ask, propose(ask), hash="0" * 64)
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["hash"])


def test_a_reset_whose_execution_fails_is_listed_with_the_reason(plant, ask, control, monkeypatch):
    def fail(plant, plan):
        raise PlantUnavailable("events can't be reached (timed out).")

    reset = propose(ask)
    monkeypatch.setattr(KafkaPlant, "execute_offset_reset", fail)
    assert approve(ask, reset).status_code >= 400
    row = OffsetResetPlan.objects.get()
    assert (row.state, row.note) == ("failed", "events can't be reached (timed out).")
    assert AuditEntry.objects.filter(action="failed.plant.offsets").exists()


def test_a_rejected_reset_and_one_of_another_plant_can_not_be_approved(plant, ask, control):
    reset = propose(ask)
    assert ask(f"offsets/{reset['id']}/approve", {"hash": reset["hash"], **REASON}, plant="shop").status_code == 404
    assert ask(f"offsets/{reset['id']}/reject", REASON).json()["state"] == "rejected"
    assert approve(ask, reset).status_code == 422 and committed(ask) == [4]


def test_what_nobody_approves_expires_and_an_interrupted_execution_has_an_unknown_result(plant, ask, control):
    first, second = propose(ask), propose(ask)
    now = timezone.now()
    approval = [{"by": "operator", "reason": "agreed", "at": now.timestamp()}]
    OffsetResetPlan.objects.filter(pk=second["id"]).update(state="approved", approvals=approval)
    reset_plans.tidy(now)
    assert set(OffsetResetPlan.objects.values_list("state", flat=True)) == {"proposed", "approved"}
    reset_plans.tidy(now + timedelta(days=1))
    assert OffsetResetPlan.objects.get(pk=first["id"]).state == "expired"
    assert OffsetResetPlan.objects.get(pk=second["id"]).state == "failed"
    reset_plans.tidy(now + timedelta(days=92))
    assert not OffsetResetPlan.objects.exists()


@pytest.mark.parametrize(("name", "field"), [("shop", "plant"), ("nowhere", "plant")])
def test_only_a_kafka_cluster_has_offsets(plant, ask, operator, control, name, field):
    refused = ask("offsets/plan", BILLING, plant=name)
    assert (refused.status_code, list(refused.json()["errors"])) == (422, [field])
    assert operator.get(f"/plants/{name}/offsets/").status_code == 404


def test_who_may_not_scale_plants_may_not_reset_offsets(plant, ask, viewer, control):
    assert ask("offsets/plan", BILLING, role="viewer").status_code == 403
    page = viewer.get(PAGE, BILLING)
    assert page.status_code == 200 and page.context["plan"] is None


def test_a_reset_is_planned_proposed_and_approved_on_its_page(plant, operator, ask, control):
    shown = operator.get(PAGE, BILLING)
    assert (shown.context["plan"].skipped, shown.context["plan"].again) == (0, 4)
    form = form_of(shown, f"{PAGE}propose")
    assert fetch(operator, f"{PAGE}propose", form | REASON).status_code == 200
    reset = OffsetResetPlan.objects.get()
    form = form_of(operator.get(PAGE), f"{PAGE}{reset.pk}/approve")
    answer = fetch(operator, f"{PAGE}{reset.pk}/approve", form | REASON)
    assert "The offsets of billing were reset." in answer.json()["message"]
    assert committed(ask) == [0] and "Undo: orders/0=4" in source_of(operator.get(PAGE))


def test_a_plan_that_is_refused_is_named_on_the_page(plant, operator, control):
    page = operator.get(PAGE, {"group": "billing", "target": "yesterday"})
    assert "must be earliest, latest, a time" in source_of(page)


def test_a_reset_is_rejected_on_its_page(plant, operator, ask, control):
    reset = propose(ask)
    assert fetch(operator, f"{PAGE}{reset['id']}/reject", REASON).status_code == 200
    assert OffsetResetPlan.objects.get().state == "rejected" and committed(ask) == [4]
