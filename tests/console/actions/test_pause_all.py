"""All queues or all schedules paused at once, with an end and a reason, and exactly those resumed."""

import orjson
import pytest
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from console.accounts.access import build_user_actor
from console.actions.queues import pause_all, stops
from console.models import AuditEntry
from queues import keys, pausing
from queues.models import Queue
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.batch import task_definitions
from workers.models import Task
from workers.plants.foreign import adapters, interventions
from workers.plants.models import RegisteredPlant
from workers.steering.overrides import Expiry

pytestmark = pytest.mark.django_db
JSON = {"accept": "application/json"}
PAUSE, RESUME = {"minutes": "30", "reason": "a migration"}, {"reason": "it is done"}
ONE, TWO = "celery@one", "celery@two"


@pytest.fixture
def queues(db):
    for name in ("alert", "orders", "mail"):
        Queue.objects.create(name=name, kind="jobs")


def paused(control):
    return set(pausing.load_pauses(control, ["alert", "orders", "mail"], pausing.CONSUMPTION))


def pause_one(people, control, queue, minutes):
    stops.pause_queue(
        pause_actor(people), queue, pausing.CONSUMPTION, reason="its own", now=timezone.now(),
        expiry=Expiry(minutes=minutes), control=control,
    )  # fmt: skip


def pause_actor(people):
    return build_user_actor(people["administrator"])


def post(browser, path, body):
    answer = browser.post(path, body, headers=JSON)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_all_queues_of_the_plant_are_paused_until_an_end_and_resumed(browsers, queues, control, stored_snapshot):
    browser = browsers["operator"]
    post(browser, "/plants/main/pause-queues", PAUSE)
    assert paused(control) == {"alert", "orders", "mail"}
    pause = pause_all.find_pause(control, "main")
    assert pause.until == pytest.approx(timezone.now().timestamp() + 1_800, abs=60)
    entry = AuditEntry.objects.get(action="queue.pause_all")
    assert (entry.reason, entry.after["queues"]) == ("a migration", ["alert", "mail", "orders"])
    assert "Resume all queues" in browser.get("/plants/main/").content.decode()
    post(browser, "/plants/main/resume-queues", RESUME)
    assert paused(control) == set() and pause_all.find_pause(control, "main") is None
    assert AuditEntry.objects.get(action="queue.resume_all").reason == "it is done"


def test_pauses_that_others_have_for_longer_stay(browsers, people, queues, control, stored_snapshot):
    pause_one(people, control, "alert", 120)
    post(browsers["operator"], "/plants/main/pause-queues", PAUSE)
    assert pause_all.find_pause(control, "main").queues == ["mail", "orders"]
    post(browsers["operator"], "/plants/main/resume-queues", RESUME)
    assert paused(control) == {"alert"}


def test_a_pause_that_was_extended_since_is_not_ended(browsers, people, queues, control, stored_snapshot):
    post(browsers["operator"], "/plants/main/pause-queues", PAUSE)
    pause_one(people, control, "orders", 90)
    post(browsers["operator"], "/plants/main/resume-queues", RESUME)
    assert paused(control) == {"orders"}


@pytest.mark.parametrize("wrong", [{"reason": ""}, {"minutes": "0"}, {"minutes": ""}, {"minutes": "x"}])
def test_a_pause_needs_an_end_and_a_reason(wrong, browsers, queues, control, stored_snapshot):
    answer = browsers["operator"].post("/plants/main/pause-queues", PAUSE | wrong, headers=JSON)
    assert answer.status_code == 422 and list(answer.json()["errors"]) == list(wrong)
    assert paused(control) == set()


def test_nothing_is_resumed_that_was_not_paused_together(browsers, people, queues, control, stored_snapshot):
    pause_one(people, control, "alert", 120)
    answer = browsers["operator"].post("/plants/main/resume-queues", RESUME, headers=JSON)
    assert answer.status_code == 422 and paused(control) == {"alert"}


def test_a_viewer_pauses_nothing(browsers, queues, control, stored_snapshot):
    for path in ("/plants/main/pause-queues", "/plants/main/resume-queues", "/schedules/pause", "/schedules/resume"):
        assert browsers["viewer"].post(path, PAUSE, headers=JSON).status_code == 403
    assert paused(control) == set()


@pytest.fixture
def far(monkeypatch, stored_snapshot, control):
    app = FakeCelery({ONE: 2, TWO: 2}, ("celery", "mail"))
    monkeypatch.setattr(adapters, "create_adapter", lambda row: app.plant())
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example")
    seen = {"kind": "celery", "state": "seen", "queue_names": ["celery", "mail", "unused"]}
    stored_snapshot["plants"] = {"shop": seen}
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    return app


def everything():
    return {(worker, queue) for worker in (ONE, TWO) for queue in ("celery", "mail")}


def test_all_queues_of_a_celery_app_are_paused_and_resumed(browsers, far, control):
    body = {"minutes": 30, "reason": "a migration"}
    address = "/api/v1/plants/shop/pause-queues"
    answer = browsers["operator"].post(address, body, content_type="application/json")
    assert answer.status_code == 200 and answer.json()["queues"] == ["celery", "mail"], answer.content
    assert far.paused == everything()
    assert {each.subject for each in interventions.list_active(control, "shop")} == {"celery", "mail"}
    answer = browsers["operator"].post(
        "/api/v1/plants/shop/resume-queues", {"reason": "done"}, content_type="application/json"
    )
    assert answer.json() == {"plant": "shop", "queues": ["celery", "mail"], "until": None}
    assert far.paused == set() and interventions.list_active(control, "shop") == []


def test_a_queue_of_an_app_that_was_paused_for_longer_stays_paused(browsers, far, control):
    longer = {"kind": "pause", "subject": "mail", "minutes": "60", "reason": "its own"}
    post(browsers["operator"], "/plants/shop/interventions", longer)
    post(browsers["operator"], "/plants/shop/pause-queues", PAUSE)
    assert far.paused == everything()
    post(browsers["operator"], "/plants/shop/resume-queues", RESUME)
    assert far.paused == {(ONE, "mail"), (TWO, "mail")}


def test_an_app_that_does_not_answer_is_named_and_its_failure_is_in_the_audit_log(browsers, far, control):
    far.silent = True
    answer = browsers["operator"].post("/plants/shop/pause-queues", PAUSE, headers=JSON)
    assert answer.status_code == 422 and "celery: shop: no worker responds" in str(answer.json())
    assert AuditEntry.objects.filter(action="failed.queue.pause_all").count() == 1


def test_a_plant_without_such_an_intervention_has_no_pause(browsers, far, control):
    RegisteredPlant.objects.create(name="flow", kind="flink", url="http://10.0.0.7:8081")
    assert browsers["operator"].post("/plants/flow/pause-queues", PAUSE, headers=JSON).status_code == 422


@pytest.fixture
def tasks(db):
    Task.objects.all().delete()
    for name, enabled, seconds in (("clean", True, 60), ("off", False, 60), ("by-hand", True, None)):
        task_definitions.define(name, "retention", every_seconds=seconds, enabled=enabled)


def scheduled():
    return {
        row.name.removeprefix("task: ") for row in PeriodicTask.objects.filter(name__startswith="task: ", enabled=True)
    }


def test_all_schedules_are_paused_and_exactly_those_are_resumed(browsers, tasks, control, stored_snapshot):
    post(browsers["operator"], "/schedules/pause", {"reason": "a migration"})
    assert scheduled() == set() and Task.objects.get(name="clean").enabled
    assert AuditEntry.objects.get(action="task.pause_all").after == {"tasks": ["clean"]}
    page = browsers["operator"].get("/tasks/").content.decode()
    assert "Paused schedules: 1" in page and "Resume schedules" in page
    answer = browsers["operator"].post("/api/v1/schedules/resume", {"reason": "done"}, content_type="application/json")
    assert answer.json() == {"tasks": ["clean"]} and scheduled() == {"clean"}


def test_a_task_that_is_changed_while_schedules_are_paused_stays_paused(browsers, tasks, control, stored_snapshot):
    post(browsers["operator"], "/schedules/pause", {"reason": "a migration"})
    task_definitions.define("clean", "retention", every_seconds=120)
    assert scheduled() == set()
    task_definitions.define("clean", "retention", every_seconds=120, enabled=False)
    post(browsers["operator"], "/schedules/resume", RESUME)
    assert scheduled() == set()  # a person has disabled it meanwhile


def test_schedules_that_are_paused_are_not_paused_again(browsers, tasks, control, stored_snapshot):
    post(browsers["operator"], "/schedules/pause", {"reason": "a migration"})
    answer = browsers["operator"].post("/schedules/pause", {"reason": "again"}, headers=JSON)
    assert answer.status_code == 422 and "schedules" in answer.json()["errors"]
