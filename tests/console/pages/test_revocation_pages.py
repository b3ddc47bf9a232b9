"""Groups of tasks on the page and over the API: previewed, revoked together once, and audited."""

import time

import pytest

from console.actions import group_revocations
from console.models import AuditEntry
from tests.console.page_form import audited, fetch, form_of, refused, source_of
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant
from workers.task_history.record import FAILED, RECEIVED, STARTED, TaskRecord
from workers.task_history.recorder import record_finished

pytestmark = pytest.mark.django_db
PAGE, ACT = "/plants/shop/revoke/", "/plants/shop/revoke/act"
GROUP = 'root:"parent"'
REASON = {"reason": "the file was wrong"}


def store(count, state, first=0, at=None, **more):
    at = time.time() - 60 if at is None else at
    record_finished(
        "shop",
        [
            TaskRecord(id=f"{state}-{first + number}", state=state, at=at, name="shop.pay", root="parent", **more)
            for number in range(count)
        ],
    )


@pytest.fixture
def far(monkeypatch, stored_snapshot):
    """A Celery app with two workers, and a group of tasks: 3 wait, 1 runs, 2 have failed."""
    app = FakeCelery({"celery@one": 2, "celery@two": 2})
    monkeypatch.setattr(adapters, "create_adapter", lambda row: app.plant())
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example")
    store(3, RECEIVED)
    store(1, STARTED)
    store(2, FAILED)
    store(1, RECEIVED, first=10, parent="other")
    return app


def revoked(app, worker="celery@one"):
    return sorted(task for name, tasks, _ in app.revoked if name == worker for task in tasks)


def test_the_preview_counts_the_unfinished_tasks_of_a_group_and_revokes_none(operator, far):
    page = operator.get(PAGE, {"q": GROUP})
    preview = page.context["preview"]
    assert (preview.tasks, preview.states) == (5, {"received": 4, "started": 1})
    assert "Revoke 5 tasks" in source_of(page) and far.revoked == [] and audited() == []


def test_a_group_is_revoked_as_previewed(operator, far):
    form = form_of(operator.get(PAGE, {"q": GROUP}), ACT)
    store(1, RECEIVED, first=20, at=time.time() + 5)
    answer = fetch(operator, ACT, form | REASON)
    assert answer.status_code == 200, answer.content
    expected = ["received-0", "received-1", "received-10", "received-2", "started-0"]
    assert revoked(far) == revoked(far, "celery@two") == expected
    assert not any(terminate for *_, terminate in far.revoked)
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.target, entry.reason) == ("plant.revoke_tasks", "shop", REASON["reason"])
    assert entry.after == {"query": GROUP, "tasks": 5, "terminate": False}


def test_running_tasks_are_ended_if_that_is_chosen(operator, far):
    fetch(operator, ACT, {"q": GROUP, "at": str(time.time()), "terminate": "1", **REASON})
    assert all(terminate for *_, terminate in far.revoked) and far.revoked


def test_a_worker_that_does_not_confirm_is_named(operator, far):
    far.late = {"revoke": {"celery@two"}}
    answer = fetch(operator, ACT, {"q": GROUP, "at": str(time.time()), **REASON})
    assert refused(answer) == ["plant"] and "celery@two did not respond" in str(answer.json())
    assert AuditEntry.objects.filter(action="failed.plant.revoke_tasks").exists()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"q": ""}, "q"),
        ({"q": "state:failed"}, "query"),
        ({"q": "name:shop.mail"}, "query"),
        ({"q": "state:lost"}, "state"),
        ({"at": "0"}, "at"),
        ({"at": "soon"}, "at"),
        ({"reason": ""}, "reason"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_revoked(operator, far, wrong, field):
    assert refused(fetch(operator, ACT, {"q": GROUP, "at": str(time.time()), **REASON, **wrong})) == [field]
    assert far.revoked == [] and audited() == []


def test_more_tasks_than_one_action_may_revoke_are_refused(operator, far, monkeypatch):
    monkeypatch.setattr(group_revocations, "MAX_TASKS", 4)
    assert "The search matches more" in source_of(operator.get(PAGE, {"q": GROUP}))
    assert refused(fetch(operator, ACT, {"q": GROUP, "at": str(time.time()), **REASON})) == ["query"]


def test_the_api_previews_and_revokes(operator, far):
    def post(path, **body):
        return operator.post(f"/api/v1/plants/shop/revoke{path}", body, content_type="application/json").json()

    preview = post("/preview", query=GROUP)
    assert preview["tasks"] == 5
    done = post("", query=GROUP, at=preview["at"], **REASON)
    assert done == {"plant": "shop", "query": GROUP, "tasks": 5, "terminated": False}


def test_a_viewer_revokes_nothing_and_is_offered_nothing(viewer, operator, far):
    assert viewer.get(PAGE).status_code == 403
    assert fetch(viewer, ACT, {"q": GROUP, "at": str(time.time()), **REASON}).status_code == 403
    search = "/task-history/?plant=shop&query=name:shop.pay"
    assert viewer.get(search).context["revoke_url"] == "" and operator.get(search).context["revoke_url"]


def test_the_page_of_a_task_leads_to_its_group(operator, far):
    page = operator.get("/task-history/task/", {"plant": "shop", "id": "started-0"})
    assert operator.get(page.context["revoke_url"]).context["preview"].tasks == 5


def test_a_plant_without_tasks_has_no_page(operator, stored_snapshot):
    RegisteredPlant.objects.create(name="flow", kind="flink", url="http://10.0.0.7:8081")
    assert operator.get("/plants/flow/revoke/").status_code == 404
    body = {"query": GROUP}
    answer = operator.post("/api/v1/plants/flow/revoke/preview", body, content_type="application/json")
    assert answer.status_code == 422 and "no tasks that Weir can revoke" in str(answer.json())
