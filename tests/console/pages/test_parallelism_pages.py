"""Pages of loops of parallelism: tasks by operator, forecast, who decides, and tasks set by hand."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.models import AuditEntry
from tests.console.page_form import form_of, source_of
from tests.console.rows import held as hold_value
from tests.workers.control.task_plant import SECONDS, TaskPlant
from workers.history import metric_history
from workers.models import Loop, Override
from workers.steering import overrides

pytestmark = pytest.mark.django_db


@pytest.fixture
def plant(control):
    made = TaskPlant(control, timezone.now() - timedelta(seconds=3 * SECONDS))
    for _ in range(3):
        made.tick()
    return made


def loop_of(law):
    return Loop.objects.filter(law=law).order_by("name").first()


def page_of(client, loop):
    return source_of(client.get(f"/loops/{loop.pk}/"))


@pytest.mark.parametrize("law", ["parallelism_joint", "parallelism_queueing", "parallelism_forecast"])
def test_the_page_shows_tasks_paths_forecast_and_who_decides(browsers, plant, law, monkeypatch):
    reads, read = [], metric_history.read_columns
    monkeypatch.setattr(metric_history, "read_columns", lambda *said, **more: reads.append(1) or read(*said, **more))
    page = page_of(browsers["viewer"], loop_of(law))
    assert len(reads) == 1  # the hour of its cost includes the past of its forecast
    for said in ("Tasks by operator", "Latency by path", "Forecast", "Task control", "in control"):
        assert said in page
    assert 'class="spread"' in page and "task-hours in the last" in page
    assert "replicas" not in page.split("Tasks by operator")[1].split("Latency by path")[0]
    assert "Set tasks</button>" not in page


@pytest.mark.thorough
def test_a_rescale_shows_what_was_expected_what_came_and_its_verdict(browsers, plant):
    loop = loop_of("parallelism_joint")
    entry = loop.entries.filter(acted=True).order_by("-pk").first()
    assert entry is not None and entry.applied
    for _ in range(14):
        plant.tick()
    entry.refresh_from_db()
    page = page_of(browsers["viewer"], loop)
    changed = next(iter(set(entry.action["tasks"].items()) - set(entry.terms["tasks_before"].items())))
    before = entry.terms["tasks_before"][changed[0]]
    assert f"{before} → {changed[1]}" in page
    assert entry.verdict in ("effective", "ineffective") and entry.verdict in page


def test_tasks_set_by_hand_hold_for_their_time_are_audited_and_the_law_plans_around_them(browsers, plant):
    loop = loop_of("parallelism_joint")
    posted = {"tasks-performance/hosts": "7", "tasks-performance/sites": "", "reason": "load test", "minutes": "10"}
    assert browsers["viewer"].post(f"/loops/{loop.pk}/tasks", posted).status_code == 403
    answer = browsers["operator"].post(f"/loops/{loop.pk}/tasks", posted, headers={"Accept": "application/json"})
    assert answer.status_code in (200, 201), answer.content
    override = Override.objects.get(name="tasks_of")
    assert override.value == {"performance/hosts": 7} and override.expires_at is not None
    assert AuditEntry.objects.filter(action="override.set").latest("pk").reason == "load test"
    assert plant.tick().pipeline.applications["performance"].operators["hosts"].parallelism == 7
    page = page_of(browsers["operator"], loop)
    assert "User: 7" in page and "et by a user: performance/hosts" in page


def test_tasks_that_a_colleague_has_set_meanwhile_stay_set(browsers, plant, people):
    loop = loop_of("parallelism_joint")
    address = f"/loops/{loop.pk}/tasks"
    form = form_of(browsers["operator"].get(f"/loops/{loop.pk}/"), address)
    hold_value(people["administrator"], "tasks_of", {"performance/hosts": 7}, loop=loop)
    posted = {**form, "tasks-performance/sites": "2", "reason": "a test"}
    assert browsers["operator"].post(address, posted).status_code == 302
    (held,) = overrides.list_active(timezone.now())
    assert held.value == {"performance/hosts": 7, "performance/sites": 2}


def by_hand(browser, loop, tasks, minutes):
    posted = {f"tasks-performance/{name}": str(count) for name, count in tasks.items()}
    posted |= {"reason": "load test", "minutes": str(minutes)}
    return browser.post(f"/loops/{loop.pk}/tasks", posted, headers={"Accept": "application/json"})


def test_tasks_set_for_a_short_time_do_not_cut_short_those_that_somebody_set_of_others(browsers, plant):
    loop = loop_of("parallelism_joint")
    assert by_hand(browsers["administrator"], loop, {"sites": 2}, 480).status_code == 200
    answer = by_hand(browsers["operator"], loop, {"hosts": 3}, 10)
    (said,) = answer.json()["errors"]["minutes"]
    assert (
        answer.status_code == 422 and "the manual tasks of sites are set until" in said and "by administrator" in said
    )
    assert Override.objects.get(ended_at=None).value == {"performance/sites": 2}


def test_the_form_of_tasks_offers_no_value_that_has_ended(browsers, plant):
    loop = loop_of("parallelism_joint")
    by_hand(browsers["operator"], loop, {"hosts": 7}, 10)
    plant.tick()
    assert 'value="7" placeholder' in page_of(browsers["operator"], loop)
    Override.objects.update(expires_at=timezone.now())
    assert 'value="7" placeholder' not in page_of(browsers["operator"], loop)


@pytest.mark.parametrize(("typed", "why"), [("0", "whole number from 1"), ("many", "number")])
def test_tasks_that_are_none_are_refused_by_name_and_change_nothing(browsers, plant, typed, why):
    loop = loop_of("parallelism_joint")
    posted = {"tasks-performance/hosts": typed, "reason": "x", "minutes": "10"}
    answer = browsers["operator"].post(f"/loops/{loop.pk}/tasks", posted)
    assert answer.status_code == 422 and why in answer.content.decode()
    assert not Override.objects.exists()


def test_a_person_who_puts_another_law_on_auto_makes_it_the_owner(browsers, plant):
    queueing = loop_of("parallelism_queueing")
    Loop.objects.filter(pk=queueing.pk).update(mode=Loop.Mode.AUTO)
    plant.snapshot()
    plant.tick()
    joint = loop_of("parallelism_joint")
    assert "already controls the tasks" in joint.entries.latest("pk").reason
    page = page_of(browsers["viewer"], joint)
    assert page.index('class="steers"') < page.index("Parallelism queueing</a>")


def test_without_a_snapshot_or_a_control_server_the_page_still_comes(browsers, plant, settings):
    loop = loop_of("parallelism_joint")
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    page = page_of(browsers["viewer"], loop)
    assert "No operators yet" in page and "Task control" in page
