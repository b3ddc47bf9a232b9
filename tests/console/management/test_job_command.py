"""`manage.py job`: what it shows, begins and ends, and what it refuses by name."""

import io
import json

import pytest
from django.core.management import call_command

from console.models import AuditEntry
from workers.batch import task_definitions
from workers.models import Run, Task

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def plant(control, tmp_path, settings):
    settings.WEIR_DATA = tmp_path
    parts = "python:tests.workers.batch.job_samples.NUMBERED"
    task_definitions.define("parts", parts, parameters={"chunks": 2})


def job(*arguments):
    out = io.StringIO()
    call_command("job", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def refusal(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("job", *arguments, stdout=out, stderr=err)
    assert (ended.value.code, out.getvalue()) == (2, "")
    return err.getvalue()


def test_the_list_has_every_shipped_task_with_its_parameters_and_schedule():
    tasks = {task["name"]: task for task in job("list")["tasks"]}
    assert set(tasks) >= {"stream_statistics", "metric_rollup", "replay_extract", "retention", "parts"}
    assert tasks["metric_spill"]["schedule"] == "every 10 minutes"
    assert tasks["retention"]["parameters"]["ledger_days"] == 90


def test_the_list_names_a_task_whose_job_does_not_import():
    Task.objects.filter(name="parts").update(job="python:no.such.JOB")
    parts = next(task for task in job("list")["tasks"] if task["name"] == "parts")
    assert "no.such.JOB cannot be imported" in parts["help"]


def test_a_run_here_is_done_when_the_command_ends_and_stands_in_the_audit():
    done = job("run", "parts", "--set", "chunks=4", "--reason", "a trial", "--here")
    assert (done["state"], done["chunks_done"], done["progress"]["share"]) == ("done", 4, 1.0)
    assert job("show", str(done["run"])) == done
    entry = AuditEntry.objects.get(action="task.run")
    assert (entry.target, entry.reason, entry.after["chunks"]) == ("parts", "a trial", 4)
    assert "Only a queued or running run" in refusal("cancel", str(done["run"]))


def test_a_queued_run_is_cancelled_and_goes_on():
    number = str(job("run", "parts")["run"])
    assert job("cancel", number)["state"] == "cancelled"
    assert job("resume", number)["state"] == "queued"
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [
        "task.run",
        "task.cancel",
        "task.resume",
    ]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("run", "absent"), "task"),
        (("cancel",), "RUN"),
        (("cancel", "12"), "run"),
        (("run", "parts", "--set", "chunks"), "--set"),
        (("run", "parts", "--set", "chunks=-1"), "chunks"),
        (("run", "parts", "--set", "colour=red"), "colour"),
        (("run", "parts", "--deadline", "2020-01-01T00:00:00Z"), "deadline"),
        (("run", "parts", "--deadline", "soon"), "deadline"),
        (("run", "replay_extract"), "queue"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name_and_begins_nothing(arguments, field):
    assert refusal(*arguments).startswith(f"{field}:")
    assert not Run.objects.exists() and not AuditEntry.objects.exists()
