"""Batch tasks on pages and over the API: run, cancelled, resumed, changed; refused with the reason."""

import json
from datetime import UTC, datetime, time, timedelta

import pytest
from django.test import Client

from console.models import AuditEntry
from console.templatetags.live import durations, lasting
from tests.console.page_form import fetch, form_of, refused
from workers.batch import runs, task_definitions, task_managers
from workers.batch import worker as batch_worker
from workers.models import Run, Task
from workers.snapshot.control_record import control_record

pytestmark = pytest.mark.django_db
NUMBERED = "python:tests.workers.batch.job_samples.NUMBERED"
REASON = {"reason": "a test of the page"}
SCHEDULE = {"when": "interval", "interval": "10", "unit": "minutes", "parallel": "2", "enabled": "1"}


@pytest.fixture(autouse=True)
def plant(control, tmp_path, settings):
    settings.WEIR_DATA = tmp_path
    task_definitions.define("parts", NUMBERED, parameters={"chunks": 2})
    return control


def begun(operator, **parameters):
    posted = {f"set-{name}": value for name, value in parameters.items()}
    answer = fetch(operator, "/tasks/parts/run", {**posted, **REASON})
    assert answer.status_code == 200, answer.content
    return Run.objects.get(pk=answer.json()["run"])


def worked(run, control, data):
    """The run with all its work done, by a manager and a worker in this process."""

    def now():
        return datetime.now(UTC)

    def work(number, worker, role, is_requested):
        batch_worker.work_at(number, worker, control, data, now)

    while run.state in runs.OPEN:
        run = task_managers.manage_run(run, control, now(), work)
    return run


def test_a_task_is_shown_with_its_schedule_in_words_and_its_next_run(operator):
    fetch(operator, "/tasks/parts/change", {**SCHEDULE, "done_by": "06:00", **REASON})
    shown = next(task for task in operator.get("/tasks/").context["tasks"] if task.name == "parts")
    assert (shown.schedule, shown.deadline) == ("every 10 minutes", "06:00")
    ahead = datetime.fromisoformat(shown.next_at) - datetime.now(UTC)
    assert timedelta(0) < ahead <= timedelta(minutes=10)


def test_run_now_opens_a_run_with_the_parameters_that_were_typed(operator, plant, tmp_path):
    run = begun(operator, chunks="5")
    assert (run.parameters["chunks"], run.chunks_total, run.owner.get_username()) == (5, 5, "operator")
    entry = AuditEntry.objects.get(action="task.run")
    assert (entry.actor, entry.target, entry.after["run"]) == ("operator", "parts", run.pk)
    command = operator.get(f"/runs/{run.pk}/").context["run"].command
    assert command == "manage.py job run parts --set chunks=5"
    done = worked(run, plant, tmp_path)
    page = operator.get(f"/runs/{run.pk}/")
    assert page.context["run"].state == done.state == "done"
    assert [chunk.state for chunk in page.context["chunks"]] == ["done"] * 5
    trend = operator.get("/tasks/parts/").context["task"].trend
    assert [each.run for each in trend] == [run.pk] and f"/runs/{run.pk}/" in durations(trend, linked=True)


def test_a_parameter_that_is_cleared_for_a_run_is_the_jobs_default_and_not_the_tasks_own(operator):
    form = form_of(operator.get("/tasks/parts/"), "/tasks/parts/run")
    assert form["set-chunks"] == "2"
    answer = fetch(operator, "/tasks/parts/run", {**form, "set-chunks": "", **REASON})
    assert Run.objects.get(pk=answer.json()["run"]).parameters["chunks"] == 3


def test_a_parameter_that_was_empty_when_the_page_was_opened_is_the_tasks_own(operator):
    form = form_of(operator.get("/tasks/parts/"), "/tasks/parts/run")
    assert form["set-fault"] == ""
    Task.objects.filter(name="parts").update(parameters={"fault": "refused"})
    answer = fetch(operator, "/tasks/parts/run", {**form, **REASON})
    assert Run.objects.get(pk=answer.json()["run"]).parameters["fault"] == "refused"


def test_a_form_that_was_opened_before_another_change_is_refused_and_switches_nothing_on(operator):
    form = form_of(operator.get("/tasks/parts/"), "/tasks/parts/change") | SCHEDULE
    off = {name: value for name, value in {**form, **REASON}.items() if name != "enabled"}
    assert fetch(operator, "/tasks/parts/change", off).status_code == 200
    assert refused(fetch(operator, "/tasks/parts/change", {**form, **REASON})) == ["digest"]
    assert not Task.objects.get(name="parts").enabled
    newer = form_of(operator.get("/tasks/parts/"), "/tasks/parts/change") | SCHEDULE
    assert fetch(operator, "/tasks/parts/change", {**newer, **REASON}).status_code == 200


@pytest.mark.parametrize(
    ("deadline", "stored"),
    [("06:00Z", time(6)), ("06:00+00:00", time(6)), ("06:00", time(6)), (3600, time(1)), (None, None)],
)
def test_a_deadline_over_the_api_is_a_time_in_utc(deadline, stored, browsers):
    body = {"job": NUMBERED, "deadline": deadline, **REASON}
    for address, name in (("tasks/parts", "parts"), ("tasks", "more")):
        more = {"name": "more"} if address == "tasks" else {}
        answer = browsers["administrator"].post(f"/api/v1/{address}", {**body, **more}, content_type="application/json")
        assert answer.status_code == 200, answer.content
        assert Task.objects.get(name=name).deadline == stored


def test_a_deadline_of_another_zone_is_refused_and_not_taken_as_utc(browsers, operator):
    body = {"job": NUMBERED, "deadline": "06:00+02:00", **REASON}
    answer = browsers["administrator"].post("/api/v1/tasks/parts", body, content_type="application/json")
    assert refused(answer) == ["deadline"]
    posted = {**SCHEDULE, "done_by": "06:00+02:00", **REASON}
    assert refused(fetch(operator, "/tasks/parts/change", posted)) == ["done_by"]
    assert Task.objects.get(name="parts").deadline is None


def test_the_api_refuses_a_change_of_a_task_as_it_was_before_another(secrets):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}

    def post(body):
        text = json.dumps({"job": NUMBERED, **body, **REASON})
        return Client().post("/api/v1/tasks/parts", text, content_type="application/json", **headers)

    digest = Client().get("/api/v1/tasks/parts", **headers).json()["digest"]
    assert post({"parallel": 2, "digest": digest}).status_code == 200
    assert refused(post({"parallel": 3, "digest": digest})) == ["digest"]
    assert post({"parallel": 3}).status_code == 200, "who names none overwrites what there is"


def test_a_run_is_cancelled_once_resumed_once_and_each_is_audited(operator):
    run = begun(operator)
    assert fetch(operator, f"/runs/{run.pk}/cancel", REASON).status_code == 200
    again = fetch(operator, f"/runs/{run.pk}/cancel", REASON)
    assert refused(again) == ["run"]
    assert "Only a queued or running run can be canceled" in again.json()["errors"]["run"][0]
    assert fetch(operator, f"/runs/{run.pk}/resume", REASON).status_code == 200
    assert refused(fetch(operator, f"/runs/{run.pk}/resume", REASON)) == ["run"]
    audited = AuditEntry.objects.order_by("pk").values_list("action", "target", "after")
    assert list(audited)[1:] == [
        ("task.cancel", f"run {run.pk} of parts", {"state": "cancelled"}),
        ("task.resume", f"run {run.pk} of parts", {"state": "queued"}),
    ]


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"interval": "0"}, "interval"),
        ({"interval": "9999", "unit": "days"}, "interval"),
        ({"unit": "fortnights"}, "unit"),
        ({"when": "never"}, "when"),
        ({"when": "calendar", "crontab": "61 * * * *"}, "crontab"),
        ({"when": "calendar", "crontab": "0 0 31 2 *"}, "crontab"),
        ({"done_by": "26:00"}, "done_by"),
        ({"parallel": "0"}, "parallel"),
        ({"requirement": "GPU!"}, "requirements"),
        ({"set-chunks": "many"}, "set-chunks"),
        ({"reason": " "}, "reason"),
    ],
)
def test_a_change_that_cannot_be_is_refused_at_its_field_and_changes_nothing(posted, field, operator):
    before = Task.objects.values().get(name="parts")
    answer = fetch(operator, "/tasks/parts/change", {**SCHEDULE, **REASON, **posted})
    assert refused(answer) == [field]
    assert Task.objects.values().get(name="parts") == before
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"deadline": "2020-01-01T00:00"}, "deadline"),
        ({"deadline": "soon"}, "deadline"),
        ({"set-chunks": "-1"}, "set-chunks"),
        ({"set-colour": "red"}, "set-colour"),
        ({"reason": ""}, "reason"),
    ],
)
def test_a_run_that_cannot_be_is_refused_at_its_field_and_nothing_typed_is_lost(posted, field, operator):
    given = {"set-chunks": "7", **REASON, **posted}
    assert refused(fetch(operator, "/tasks/parts/run", given)) == [field]
    page = operator.post("/tasks/parts/run", given)  # a form without scripts
    assert page.status_code == 422 and not Run.objects.exists()
    text = page.content.decode()
    for name in ("deadline", "set-chunks", "reason"):
        if given.get(name):
            assert f'value="{given[name]}"' in text, name


def test_a_run_that_is_refused_without_scripts_leaves_the_form_of_the_schedule_as_the_task_is(operator):
    given = {**SCHEDULE, "set-chunks": "2", **REASON}
    assert fetch(operator, "/tasks/parts/change", given).status_code == 200
    refusal = operator.post("/tasks/parts/run", {"set-chunks": "7", "reason": ""})
    assert refusal.status_code == 422 and refusal.context["form"].when == "interval"
    opened = operator.get("/tasks/parts/")
    assert refusal.context["form"] == opened.context["form"]
    shown = form_of(refusal, "/tasks/parts/change")
    assert shown["set-chunks"] == form_of(opened, "/tasks/parts/change")["set-chunks"] == "2"
    assert form_of(refusal, "/tasks/parts/run")["set-chunks"] == "7"


@pytest.mark.parametrize("job", ["python:no.such.module.JOB", "python:json.dumps", "python:", "sweep"])
def test_a_task_whose_job_does_not_import_is_refused(job, browsers):
    posted = {**SCHEDULE, **REASON, "name": "mine", "job": job}
    assert refused(fetch(browsers["administrator"], "/tasks/define", posted)) == ["job"]
    assert not Task.objects.filter(name="mine").exists()


def test_an_administrator_makes_a_task_once(browsers):
    posted = {**SCHEDULE, **REASON, "name": "mine", "job": NUMBERED}
    assert fetch(browsers["administrator"], "/tasks/define", posted).json()["go"] == "/tasks/mine/"
    made = Task.objects.get(name="mine")
    assert made.parallel == 2 and made.periodic.interval.every == 600
    assert refused(fetch(browsers["administrator"], "/tasks/define", posted)) == ["name"]


def test_an_operator_may_change_a_task_but_not_its_job(browsers, secrets):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}
    body = {"job": "python:tests.workers.batch.job_samples.UNKNOWN", **REASON}

    def post(body):
        address, kind = "/api/v1/tasks/parts", "application/json"
        return Client().post(address, json.dumps(body), content_type=kind, **headers).status_code

    assert post(body) == 403
    assert post({**body, "job": NUMBERED, "interval_seconds": 60}) == 200
    assert Task.objects.get(name="parts").job == NUMBERED


def test_the_page_of_a_task_whose_job_has_gone_says_so(operator):
    Task.objects.filter(name="parts").update(job="python:no.such.JOB")
    page = operator.get("/tasks/parts/")
    assert page.status_code == 200 and "cannot be imported" in page.content.decode()
    assert refused(fetch(operator, "/tasks/parts/run", REASON)) == ["job"]


def test_a_task_that_is_switched_off_has_no_next_run(operator):
    posted = {name: value for name, value in SCHEDULE.items() if name != "enabled"}
    fetch(operator, "/tasks/parts/change", {**posted, **REASON})
    task = Task.objects.get(name="parts")
    assert not task.enabled and not task.periodic.enabled
    assert operator.get("/tasks/parts/").context["task"].next_at is None


def test_the_api_runs_shows_cancels_and_resumes(secrets):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}

    def post(address, body):
        kind = "application/json"
        return Client().post(f"/api/v1/{address}", json.dumps(body), content_type=kind, **headers)

    run = post("tasks/parts/run", {"parameters": {"chunks": 3}, **REASON}).json()
    assert (run["state"], run["chunks_total"], run["parameters"]["chunks"]) == ("queued", 3, 3)
    shown = Client().get(f"/api/v1/runs/{run['run']}", **headers).json()
    assert [chunk["identifier"] for chunk in shown["chunks"]] == ["part-0", "part-1", "part-2"]
    assert post(f"runs/{run['run']}/cancel", REASON).json()["state"] == "cancelled"
    assert post(f"runs/{run['run']}/cancel", REASON).status_code == 422
    assert post(f"runs/{run['run']}/resume", REASON).json()["state"] == "queued"
    past = {"deadline_at": "2020-01-01T00:00:00Z", **REASON}
    assert list(post("tasks/parts/run", past).json()["errors"]) == ["deadline"]
    assert post("tasks/absent/run", REASON).status_code == 404
    listed = Client().get("/api/v1/runs?task=parts&state=queued", **headers).json()["runs"]
    assert [each["run"] for each in listed] == [run["run"]]


def test_the_snapshot_shows_open_runs_and_for_a_while_those_that_ended(operator, plant, tmp_path):
    run = begun(operator, chunks="4")
    queued = control_record(datetime.now(UTC)).runs[str(run.pk)]
    assert (queued.task, queued.state, queued.chunks_total) == ("parts", "queued", 4)
    worked(run, plant, tmp_path)
    ended = control_record(datetime.now(UTC)).runs[str(run.pk)]
    assert (ended.state, ended.share, ended.rows, ended.chunks_done) == ("done", 1.0, 40, 4)
    assert control_record(datetime.now(UTC) + timedelta(minutes=1)).runs == {}


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "—"), (0.84, "0.8 s"), (42.4, "42 s"), (60, "1 min"), (7_500, "2 h 5 min")]
)
def test_a_duration_is_said_as_people_say_it(seconds, said):
    assert lasting(seconds) == said
