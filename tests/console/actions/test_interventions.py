"""Pausing, limiting, revoking at an attached Celery app, from its page: audited, and undone."""

import pytest

from console.models import AuditEntry
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign import adapters, interventions
from workers.plants.models import RegisteredPlant

pytestmark = pytest.mark.django_db
PAUSE = {"kind": "pause", "subject": "celery", "value": "", "minutes": "15", "reason": "its database is away"}


@pytest.fixture
def far(stored_snapshot, control, monkeypatch):
    found = FakeCelery({"celery@one": 2})
    monkeypatch.setattr(adapters, "create_adapter", lambda row: found.plant())
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example")
    stored_snapshot["plants"] = {"shop": {"kind": "celery", "state": "unseen"}}
    return found


def test_an_operator_pauses_a_queue_for_some_minutes_and_undoes_it(browsers, far, control):
    answer = browsers["operator"].post("/plants/shop/interventions", PAUSE, headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.content
    assert far.paused == {("celery@one", "celery")}
    [found] = interventions.list_active(control, "shop")
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.target, entry.reason) == ("plant.intervene", "shop", "its database is away")
    assert found.by == entry.actor
    undo = {"kind": "pause", "subject": "celery", "reason": "it is back"}
    browsers["operator"].post("/plants/shop/interventions/undo", undo, headers={"accept": "application/json"})
    assert not far.paused
    assert AuditEntry.objects.latest("pk").action == "plant.undo"


def test_what_is_wrong_is_said_at_its_field_and_nothing_is_done(browsers, far, control):
    for wrong, field in (
        ({"subject": "nobody"}, "subject"),
        ({"minutes": "0"}, "minutes"),
        ({"kind": "delete"}, "kind"),
        ({"reason": ""}, "reason"),
    ):
        answer = browsers["operator"].post(
            "/plants/shop/interventions", PAUSE | wrong, headers={"accept": "application/json"}
        )
        assert answer.status_code == 422, wrong
        assert field in answer.json()["errors"]
    assert not far.paused
    assert not AuditEntry.objects.filter(action="plant.intervene").exists()


def entries():
    """What was done and what became of it, the newest last."""
    found = AuditEntry.objects.filter(action__contains="plant.").order_by("pk")
    return [(each.action, (each.after or {}).get("error", "")) for each in found]


def test_what_a_plant_may_have_done_that_fell_silent_in_its_midst_is_in_the_audit(browsers, far, control):
    answer = far.answer
    far.answer = lambda command, worker, **more: (
        None
        if command == "cancel_consumer" and far.paused.add((worker, "celery")) is None
        else answer(command, worker, **more)
    )
    said = browsers["operator"].post("/plants/shop/interventions", PAUSE, headers={"accept": "application/json"})
    assert said.status_code == 422 and "it stays active until you undo it" in str(said.json())
    assert far.paused
    assert [(action, "did not respond" in failed) for action, failed in entries()] == [
        ("plant.intervene", False),
        ("failed.plant.intervene", True),
    ]
    assert [each.subject for each in interventions.list_active(control, "shop")] == ["celery"]


def test_an_undo_that_fails_is_in_the_audit_and_its_page_says_why_and_that_it_is_tried_again(browsers, far, control):
    headers = {"accept": "application/json"}
    browsers["operator"].post("/plants/shop/interventions", PAUSE, headers=headers)
    far.silent = True
    undo = {"kind": "pause", "subject": "celery", "reason": "it is back"}
    said = browsers["operator"].post("/plants/shop/interventions/undo", undo, headers=headers)
    assert "no worker responds to remote control. Weir retries it every 10 s" in str(said.json())
    assert [action for action, _ in entries()] == ["plant.intervene", "plant.undo", "failed.plant.undo"]
    page = browsers["operator"].get("/plants/shop/").content.decode()
    assert "Undo failed" in page and "no worker responds to remote control" in page
