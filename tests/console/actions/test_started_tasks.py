"""Tasks that people start at a Celery app: once, as operators, with their arguments redacted in the audit log."""

import time
from urllib.parse import urlsplit

import orjson
import pytest

from console.models import AuditEntry
from queues import keys
from tests.console.page_form import form_of, source_of
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.task_history.record import FAILED, SUCCEEDED, TaskRecord
from workers.task_history.recorder import record_finished

pytestmark = pytest.mark.django_db
PAGE, API = "/plants/shop/start-task", "/api/v1/plants/shop/start-task"
FORM = {
    "task": "shop.work",
    "queue": "celery",
    "args": '[1, "x"]',
    "kwargs": '{"limit": 10, "password": "swordfish"}',
    "delay_seconds": "30",
    "reason": "orders are missing",
}
JSON = {"accept": "application/json"}


@pytest.fixture
def far(monkeypatch, stored_snapshot):
    app = FakeCelery({"celery@one": 2})
    monkeypatch.setattr(adapters, "create_adapter", lambda row: app.plant())
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example")
    stored_snapshot["plants"] = {"shop": {"kind": "celery", "state": "seen", "task_names": ["shop.work"]}}
    return app


def entries():
    return list(AuditEntry.objects.filter(action__contains="plant.start_task").order_by("pk"))


def test_an_operator_starts_a_task_from_the_form(browsers, far, control):
    answer = browsers["operator"].post(PAGE, FORM, headers=JSON)
    assert answer.status_code == 200, answer.content
    [sent] = far.sent
    assert (sent.name, sent.queue, sent.args, sent.delay_seconds) == ("shop.work", "celery", (1, "x"), 30.0)
    assert sent.kwargs == {"limit": 10, "password": "swordfish"} and sent.id in answer.json()["message"]
    [entry] = entries()
    assert (entry.target, entry.reason, entry.after["id"]) == ("shop", "orders are missing", sent.id)
    assert "swordfish" not in str(entry.after) and "'limit': 10" in entry.after["arguments"]


def test_the_arguments_of_a_plant_that_hides_them_are_in_no_audit_entry(browsers, far, control):
    RegisteredPlant.objects.update(options={"arguments": "hidden"})
    browsers["operator"].post(PAGE, FORM, headers=JSON)
    assert entries()[0].after["arguments"].endswith(" characters")


@pytest.mark.parametrize("key", ["header", "field"])
def test_a_form_that_is_sent_twice_starts_one_task(key, browsers, far, control):
    headers = {**JSON, "Idempotency-Key": "0123456789"} if key == "header" else JSON
    form = FORM if key == "header" else FORM | {"submission": "0123456789"}
    answers = [browsers["operator"].post(PAGE, form, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1]["Idempotent-Replay"] == "true" and len(far.sent) == 1 and len(entries()) == 1


def test_the_api_starts_a_task(browsers, far, control):
    body = {"task": "shop.mail", "queue": "celery", "kwargs": {"to": None}, "reason": "a test"}
    answer = browsers["operator"].post(API, body, content_type="application/json")
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"plant": "shop", "id": far.sent[0].id, "task": "shop.mail", "queue": "celery"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"task": "shop.wrok"}, "task"),
        ({"queue": "other"}, "queue"),
        ({"args": '{"a": 1}'}, "args"),
        ({"args": "[1"}, "args"),
        ({"args": "[NaN]"}, "args"),
        ({"args": "[" * 5_000}, "args"),
        ({"args": f'["{"x" * 70_000}"]'}, "args"),
        ({"kwargs": "[1]"}, "kwargs"),
        ({"delay_seconds": "-1"}, "delay_seconds"),
        ({"delay_seconds": "3601"}, "delay_seconds"),
        ({"reason": ""}, "reason"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_sent(wrong, field, browsers, far, control):
    answer = browsers["operator"].post(PAGE, FORM | wrong, headers=JSON)
    assert answer.status_code == 422 and list(answer.json()["errors"]) == [field], answer.content
    assert far.sent == [] and entries() == []


def test_a_viewer_and_a_user_with_a_queue_limit_start_nothing(browsers, far, control):
    assert browsers["viewer"].post(PAGE, FORM, headers=JSON).status_code == 403
    assert "Start a task" not in browsers["viewer"].get("/plants/shop/").content.decode()
    assert far.sent == []


def test_a_task_whose_arrival_is_unknown_is_in_the_audit_log_with_its_id(browsers, far, control):
    def fail(request):
        raise PlantUnavailable(f"shop can't be reached. The task may have been sent: look for its ID {request.id}.")

    far.receive = fail
    answer = browsers["operator"].post(PAGE, FORM, headers=JSON)
    assert answer.status_code == 422
    attempt, failure = entries()
    assert failure.action == "failed.plant.start_task" and attempt.after["id"] in str(answer.json())


def test_other_plants_have_no_tasks_to_start(browsers, far, control):
    RegisteredPlant.objects.create(name="flow", kind="flink", url="http://10.0.0.7:8081")
    answer = browsers["operator"].post("/plants/flow/start-task", FORM, headers=JSON)
    assert answer.status_code == 422 and "no tasks that Weir can start" in str(answer.json())


def stored(**more):
    known = {"name": "shop.work", "queue": "celery", "args": "(4711, 'x')", "kwargs": "{'limit': 10}"}
    known |= {"id": "old", "state": SUCCEEDED, "at": time.time(), "are_exact": True}
    task = TaskRecord(**(known | more))
    record_finished("shop", [task])


def seen_topology(stored_snapshot, control):
    """The app is observed, so that its page has its forms."""
    topology = FakeCelery({"celery@one": 2}).plant().get_topology().to_document()
    stored_snapshot["plants"]["shop"]["topology"] = topology
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))


@pytest.mark.parametrize("state", [SUCCEEDED, FAILED])
def test_a_stored_task_is_started_again_with_its_arguments_from_its_page(
    state, browsers, far, control, stored_snapshot
):
    seen_topology(stored_snapshot, control)
    stored(state=state)
    task_page = browsers["operator"].get("/task-history/task/", {"plant": "shop", "id": "old"})
    address = task_page.context["start_url"]
    assert "4711" not in address and urlsplit(address).path == "/plants/shop/"
    form = form_of(browsers["operator"].get(address), PAGE)
    assert (form["task"], form["queue"]) == ("shop.work", "celery")
    answer = browsers["operator"].post(PAGE, form | {"reason": "once more"}, headers=JSON)
    assert answer.status_code == 200, answer.content
    [sent] = far.sent
    assert (sent.args, sent.kwargs) == ((4711, "x"), {"limit": 10}) and sent.id != "old"


@pytest.mark.parametrize("unknown", [{"are_exact": False}, {"args": "(<object>,)"}, {"kwargs": "{1: 2}"}])
def test_arguments_that_are_not_known_exactly_are_not_filled_in(unknown, browsers, far, control, stored_snapshot):
    seen_topology(stored_snapshot, control)
    stored(**unknown)
    page = browsers["operator"].get("/plants/shop/", {"again": "old"})
    again = page.context["start_again"]
    assert (again.task, again.args, again.kwargs, again.are_known) == ("shop.work", "", "", False)
    assert "not known exactly" in source_of(page)


def test_a_viewer_and_an_unknown_task_have_no_form_to_start_it_again(browsers, far, control):
    stored()
    page = browsers["viewer"].get("/task-history/task/", {"plant": "shop", "id": "old"})
    assert page.context["start_url"] == ""
    assert browsers["operator"].get("/plants/shop/", {"again": "new"}).context["start_again"] is None
