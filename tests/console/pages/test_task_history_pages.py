"""The task history on its pages and over the API: searched, exported, one task, and groups of failures."""

import csv
import io
import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from django.utils import timezone

from console.models import AuditEntry, Mark, SavedFilter
from tests.console.page_form import fetch, source_of
from tests.console.rows import an_alert
from tests.workers.task_history.samples import TRACEBACK, Clock, HeldLease, make_life
from workers.plants.models import RegisteredPlant
from workers.task_history.models import FailureGroup, TaskFeed, TaskGap
from workers.task_history.own_tasks import record_run
from workers.task_history.record import FAILED, RECEIVED, STARTED, SUCCEEDED, TaskRecord, TaskUpdate
from workers.task_history.recorder import TaskRecorder, record_finished

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]
MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def shop(db):
    """An attached app whose history began an hour ago; `record` stores changes."""
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://shop.example/0")
    began = time.time() - 3_600

    def record(*changes):
        recorder = TaskRecorder("shop", HeldLease(), Clock(time.time()))
        recorder.connect(changes[0].at)
        for change in changes:
            recorder.hear(change)
        recorder.touch(changes[-1].at)
        recorder.flush()
        TaskFeed.objects.filter(plant="shop").update(began_at=began)
        TaskGap.objects.all().delete()

    return record


def lives(count, at=None, first=0, **fields):
    """The events of some tasks, one a second; first: the number of the first one, which gives it its id."""
    at = time.time() - 600 if at is None else at
    return [change for number in range(count) for change in make_life(first + number, at + number, **fields)]


def shown(answer):
    return [row.task.args for row in answer.context["rows"] if row.task]


FILTERS = {
    "": 6,
    "query=customer3": 1,
    "query=state:failed": 2,
    "query=state:failed&plant=shop": 2,
    "state=failed": 2,
    "name=shop.pay": 4,
    "name=shop.*": 6,
    "queue=mail": 2,
    "worker=w1@shop": 6,
    "worker=w2@shop": 0,
    "query=since:5m": 0,
    "query=since:2h": 6,
    "from=2020-01-01T00:00": 6,
    "to=2020-01-01T00:00": 0,
    "query=refused": 2,
    'query="efuse"': 2,
    "plant=main": 0,
}
WRONG = {
    "query=%22open": "query",
    "state=broken": "state",
    "from=yesterday": "from",
    "to=2026-02-31T00:00": "to",
    "from=2026-05-02T00:00&to=2026-05-01T00:00": "to",
    "plant=nobody": "plant",
    "query=state:broken": "state",
    "before=nonsense": "before",
}


@pytest.fixture
def tasks(shop):
    shop(*lives(4), *lives(2, time.time() - 500, 10, name="shop.mail", queue="mail", error="SMTPError('refused')"))


@pytest.mark.parametrize("query", FILTERS)
def test_page_api_and_export_find_the_same_tasks(query, viewer, tasks):
    page = viewer.get(f"/task-history/?{query}")
    found = [row.task.id for row in page.context["rows"] if row.task]
    over_api = viewer.get(f"/api/v1/task-history?{query}").json()["tasks"]
    exported = viewer.get(f"/api/v1/task-history/export?format=json&{query}").getvalue().decode().splitlines()
    assert page.context["errors"] == {} and len(found) == FILTERS[query]
    assert found == [task["id"] for task in over_api] == [json.loads(line)["id"] for line in exported]


@pytest.mark.parametrize("query", WRONG)
def test_an_invalid_search_shows_nothing_and_names_the_field(query, viewer, tasks):
    context = viewer.get(f"/task-history/?{query}").context
    assert (list(context["errors"]), context["rows"]) == ([WRONG[query]], [])
    answer = viewer.get(f"/api/v1/task-history?{query}")
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [WRONG[query]])


def test_results_are_read_page_by_page_without_repetition(viewer, shop):
    shop(*lives(70))
    first = viewer.get("/task-history/?plant=shop&name=shop.pay")
    assert "Searched back to" in source_of(first)
    following = urlencode({"plant": "shop", "name": "shop.pay", "before": first.context["found"].next})
    second = viewer.get(f"/task-history/?{following}")
    assert [len(shown(page)) for page in (first, second)] == [50, 20]
    assert shown(first) + shown(second) == [f"({number},)" for number in reversed(range(70))]
    page = source_of(second)
    assert "End of the stored tasks" in page and "Newest" in page and second.context["live"] is False


def test_a_gap_is_shown_between_the_tasks_around_it(viewer, shop):
    at = time.time() - 1_000
    shop(*make_life(1, at), *make_life(2, at + 300))
    TaskGap.objects.create(plant="shop", since=at + 100, until=at + 200, reason="Weir was not listening")
    rows = viewer.get("/task-history/?plant=shop").context["rows"]
    assert [row.task.args if row.task else row.gap.reason for row in rows] == [
        "(2,)", "Weir was not listening", "(1,)",
    ]  # fmt: skip
    page = source_of(viewer.get("/task-history/?plant=shop"))
    assert "Events missing" in page
    (gap,) = viewer.get("/api/v1/task-history?plant=shop").json()["gaps"]
    assert gap["reason"] == "Weir was not listening"


def test_texts_of_tasks_are_never_markup(viewer, shop):
    texts = {"name": MARKUP, "args": MARKUP, "queue": MARKUP, "error": MARKUP, "traceback": MARKUP, "worker": MARKUP}
    shop(*make_life(1, time.time() - 60, **texts))
    (row,) = viewer.get("/task-history/").context["rows"]
    for address in ("/task-history/", row.url, "/task-history/failures/"):
        answer = viewer.get(address)
        assert answer.status_code == 200 and MARKUP not in answer.text
        assert "&lt;script&gt;alert(1)" in answer.text


def test_an_export_is_recorded_and_has_a_traceback(viewer, shop):
    shop(*make_life(1, time.time() - 60, error="KeyError('order')", traceback=TRACEBACK))
    text = viewer.get("/api/v1/task-history/export?state=failed").getvalue().decode()
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["error"] == "KeyError('order')" and row["traceback"] == TRACEBACK
    assert AuditEntry.objects.filter(action="export.task_history").exists()


def test_a_search_is_saved_and_opened_again(browsers, tasks):
    posted = {"page": "task-history", "name": "failed mails", "query": "query=state:failed&before=x"}
    assert fetch(browsers["viewer"], "/filters/save", posted).json()["ok"]
    assert SavedFilter.objects.get().query == "query=state%3Afailed"
    assert "failed mails" in source_of(browsers["viewer"].get("/task-history/"))


def test_the_page_of_a_failed_task_shows_its_life_error_and_group(viewer, shop):
    shop(*make_life(1, time.time() - 60, error="KeyError('order')", traceback=TRACEBACK))
    (row,) = viewer.get("/task-history/").context["rows"]
    answer = viewer.get(row.url)
    page = source_of(answer)
    for text in ("shop.pay", "KeyError(&#x27;order&#x27;)", "(1,)", "w1@shop", "1 failure of this kind", "0.2 s"):
        assert text in page, text
    assert [step.label for step in answer.context["steps"]] == ["Received", "Started", "Failed"]
    over_api = viewer.get(f"/api/v1/task-history/shop/{row.task.id}").json()
    assert over_api["traceback"] == TRACEBACK and over_api["wait_seconds"] == pytest.approx(0.1, abs=0.01)


def test_an_unknown_task_is_not_found(viewer, shop):
    assert viewer.get("/task-history/task/?plant=shop&id=nothing").status_code == 404
    assert viewer.get("/task-history/task/").status_code == 404
    assert viewer.get("/api/v1/task-history/shop/nothing").status_code == 404


def test_a_run_is_compared_with_the_usual_runs_of_its_name(viewer, shop):
    shop(*lives(20))
    slow = str(uuid.uuid4())
    at = time.time() - 60
    shop(
        TaskUpdate(id=slow, state=RECEIVED, at=at, time=at, name="shop.pay", worker="w1@shop"),
        TaskUpdate(id=slow, state=STARTED, at=at, time=at, worker="w1@shop"),
        TaskUpdate(id=slow, state=SUCCEEDED, at=at + 4, time=at + 4, worker="w1@shop", run_seconds=4.0),
    )
    run = viewer.get(f"/task-history/task/?plant=shop&id={slow}").context["run"]
    assert run.is_slow and run.usual.p50_seconds == pytest.approx(0.2) and run.times == pytest.approx(20)
    assert run.usual.runs == 21 and run.p50_share <= run.p95_share < run.share < 1
    (quick,) = viewer.get("/task-history/?query=customer3").context["rows"]
    assert not viewer.get(quick.url).context["run"].is_slow


def family_of(root, parent, child, at):
    """A chain of three tasks, and a sibling of the second."""
    sibling = str(uuid.uuid4())
    yield TaskUpdate(id=root, state=RECEIVED, at=at, time=at, name="shop.order", worker="w", root=root)
    yield TaskUpdate(id=parent, state=RECEIVED, at=at + 1, time=at + 1, name="shop.pay", parent=root, root=root)
    yield TaskUpdate(id=sibling, state=RECEIVED, at=at + 1, time=at + 1, name="shop.pack", parent=root, root=root)
    yield TaskUpdate(id=child, state=RECEIVED, at=at + 2, time=at + 2, name="shop.mail", parent=parent, root=root)


def test_the_page_of_a_task_shows_its_place_in_a_chain(viewer, shop):
    root, middle, child = (str(uuid.uuid4()) for _ in range(3))
    shop(*family_of(root, middle, child, time.time() - 60))
    answer = viewer.get(f"/task-history/task/?plant=shop&id={middle}")
    assert [(row.relation, row.task.name) for row in answer.context["relatives"]] == [
        ("Parent", "shop.order"), ("Child", "shop.mail"), ("Sibling", "shop.pack"),
    ]  # fmt: skip
    drawing = answer.context["drawing"]
    assert [box.label for box in drawing.boxes if box.is_shown] == ["shop.pay"]
    assert len(drawing.boxes) == 4 and len(drawing.lines) == 3
    grandchild = viewer.get(f"/api/v1/task-history/shop/{child}").json()["family"]
    assert (grandchild["root"]["id"], grandchild["parent"]["id"]) == (root, middle)


def test_a_task_whose_end_was_missed_names_the_gap(viewer, shop):
    at = time.time() - 600
    lost = str(uuid.uuid4())
    shop(TaskUpdate(id=lost, state=STARTED, at=at, time=at, name="shop.pay", worker="w1@shop"))
    TaskGap.objects.create(plant="shop", since=at + 10, until=at + 20, reason="Weir was not listening")
    page = source_of(viewer.get(f"/task-history/task/?plant=shop&id={lost}"))
    assert "End not seen." in page and "Weir was not listening" in page
    assert viewer.get(f"/api/v1/task-history/shop/{lost}").json()["gap"]["reason"] == "Weir was not listening"


def test_the_page_of_a_failed_task_shows_what_changed_around_it(viewer, shop, people):
    at = time.time() - 1_200
    shop(*make_life(1, at, error="KeyError('order')"))
    failed = datetime.fromtimestamp(at, UTC)
    Mark.objects.create(kind="deploy", title="shop 1.42", at=failed - timedelta(minutes=3), author="ci")
    Mark.objects.create(kind="deploy", title="shop 1.41", at=failed - timedelta(minutes=40), author="ci")
    an_alert(title="Queue pay falls behind", fired_at=failed + timedelta(minutes=2), labels={"queue": "pay"})
    (row,) = viewer.get("/task-history/").context["rows"]
    nearby = viewer.get(row.url).context["nearby"]
    assert ["1.42" in nearby[0].words, "Queue pay falls behind" in nearby[1].words] == [True, True]
    assert nearby[0].offset_seconds == pytest.approx(-180, abs=2) and len(nearby) == 2


def test_failures_are_grouped_and_new_ones_name_the_deploy(viewer, shop):
    now = time.time()
    shop(*lives(3, now - 1_800, error="KeyError('order')", traceback=TRACEBACK))
    Mark.objects.create(kind="deploy", title="shop 1.42", at=timezone.now() - timedelta(minutes=20), author="ci")
    shop(*lives(2, now - 600, 10, name="shop.mail", queue="mail", error="SMTPError('refused')"))
    groups = viewer.get("/task-history/failures/?plant=shop").context["groups"]
    assert [(row.group.name, row.group.count, row.deploy and row.deploy.title) for row in groups] == [
        ("shop.mail", 2, "shop 1.42"), ("shop.pay", 3, None),
    ]  # fmt: skip
    assert len(shown(viewer.get(groups[1].tasks_url))) == 3
    assert viewer.get(groups[0].last_task_url).context["task"].name == "shop.mail"
    new = viewer.get("/task-history/failures/?new=1").context["groups"]
    assert [row.group.name for row in new] == ["shop.mail"]
    over_api = viewer.get("/api/v1/task-history/failures?plant=shop").json()["groups"]
    assert [row["new_since"] and row["new_since"]["title"] for row in over_api] == ["shop 1.42", None]
    assert sum(over_api[1]["per_hour"]) == 3


def test_nothing_is_new_since_a_deploy_before_the_history_began(viewer, shop):
    Mark.objects.create(kind="deploy", title="shop 1.40", at=timezone.now() - timedelta(days=2), author="ci")
    shop(*lives(1, time.time() - 60, error="KeyError('order')"))
    assert [row.deploy for row in viewer.get("/task-history/failures/").context["groups"]] == [None]


def test_a_deploy_of_another_plant_makes_nothing_new(viewer, shop):
    at = timezone.now() - timedelta(minutes=20)
    Mark.objects.create(kind="deploy", title="mail 7", at=at, author="ci", parts=["plant/mail"])
    shop(*lives(1, time.time() - 60, error="KeyError('order')"))
    assert [row.deploy for row in viewer.get("/task-history/failures/").context["groups"]] == [None]


def dead_letter_of(queue):
    at = time.time() - 30
    return TaskRecord(
        id=f"{queue}/7-0", state=FAILED, at=at, name=f"handle {queue}", queue=queue, ended=at, failure="f1",
        kwargs="{'card': 'carrot'}", error="ValueError('bad')",
    )  # fmt: skip


@pytest.fixture
def dead_letters(db):
    record_finished("main", [dead_letter_of("alert")])
    now = timezone.now()
    record_run("main", 7, "retention", "done", {"days": 30}, "", now, now, now)


def test_dead_letters_of_this_plant_are_shown_with_their_events_to_operators(operator, dead_letters):
    assert [row.task.name for row in operator.get("/task-history/?query=carrot").context["rows"]] == ["handle alert"]
    assert "carrot" in source_of(operator.get("/task-history/task/?plant=main&id=alert/7-0"))
    assert operator.get("/api/v1/task-history/main/alert/7-0").json()["kwargs"] == "{'card': 'carrot'}"


def test_viewers_see_dead_letters_without_their_events_and_do_not_search_them(viewer, dead_letters):
    rows = viewer.get("/task-history/").context["rows"]
    assert {row.task.name: row.task.kwargs for row in rows} == {"handle alert": "", "retention": "{'days': 30}"}
    searched = viewer.get("/task-history/?query=carrot")
    assert searched.context["rows"] == []
    assert "events that you may not view" in source_of(searched)
    page = source_of(viewer.get("/task-history/task/?plant=main&id=alert/7-0"))
    assert "carrot" not in page and "which you may not view" in page
    assert "carrot" not in viewer.get("/api/v1/task-history/main/alert/7-0").text
    assert b"carrot" not in viewer.get("/api/v1/task-history/export").getvalue()
    answer = viewer.get("/api/v1/task-history?plant=main&query=carrot")
    assert list(answer.json()["errors"]) == ["query"]


def test_the_page_of_a_plant_links_its_last_tasks_to_the_history(viewer, shop, stored_snapshot, control):
    shop(*make_life(1, time.time() - 60))
    assert "/task-history/?plant=shop" in source_of(viewer.get("/plants/shop/"))
    RegisteredPlant.objects.create(name="east", kind="weir", url="http://east.example/control/main/v1")
    assert "/task-history/?plant=east" not in source_of(viewer.get("/plants/east/"))


def test_the_alert_of_a_new_failure_links_to_the_failures_of_its_plant(viewer, shop):
    alert = an_alert(condition="failure_group_new", rule_name="failure-group-new", labels={"plant": "shop"})
    assert "/task-history/failures/?plant=shop" in source_of(viewer.get(f"/alerts/{alert.pk}/"))


def test_an_id_in_the_palette_leads_to_its_task(viewer, shop):
    task_id = str(uuid.uuid4())
    results = viewer.get("/api/v1/palette", {"text": task_id})
    assert f"/task-history/?query=id%3A{task_id}" in results.text


def test_groups_of_a_name_can_be_listed(viewer, shop):
    shop(*lives(1, time.time() - 60, error="KeyError('order')"))
    assert FailureGroup.objects.count() == 1
    assert viewer.get("/task-history/failures/?name=shop.mail").context["groups"] == []
    assert list(viewer.get("/task-history/failures/?plant=nobody").context["errors"]) == ["plant"]


def test_operators_can_retry_what_they_found(browsers, shop):
    shop(*lives(1, time.time() - 60, error="KeyError('order')"))
    found = browsers["operator"].get("/task-history/?plant=shop&query=order&state=failed").context
    assert found["retry_url"] == "/retries/?" + urlencode({"plant": "shop", "q": 'order state:"failed"'})
    (group,) = browsers["operator"].get("/task-history/failures/").context["groups"]
    assert group.retry_url == "/retries/?" + urlencode({"plant": "shop", "q": f"failure:{group.group.fingerprint}"})
    assert "Retry task" in source_of(browsers["operator"].get(group.last_task_url))
    assert browsers["viewer"].get("/task-history/?plant=shop&state=failed").context["retry_url"] == ""
    assert browsers["operator"].get("/task-history/?state=failed").context["retry_url"] == ""
