"""Who is limited to some queues gets no other queue's values by way of the lab or of a comparison."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor, create_token
from console.models import AuditEntry, QueueLimit
from console.pages.pipeline.pipeline import reads_events
from queues.models import Queue
from workers.batch import runs, task_definitions
from workers.batch.job import JobContext
from workers.batch.jobs import archive_jobs
from workers.history.event_archive import extract_file
from workers.lab import series
from workers.lab.models import Experiment
from workers.models import Chunk, Run, Task
from workers.pipeline.declaration.declaration import Application

pytestmark = pytest.mark.django_db
ROWS = "time,rate\n" + "".join(f"{row},{1 + row % 7}\n" for row in range(70))
ALERT, PROCESS = (extract_file(queue, "day", "csv") for queue in ("alert", "process"))
LEGACY = "extracts/day.csv"


@pytest.fixture(autouse=True)
def plant(control, tmp_path, settings, people):
    """The operator is limited to queue alert; extracts of two queues, and one of an earlier version."""
    settings.WEIR_DATA = tmp_path
    task_definitions.ensure_tasks()
    for name in ("alert", "process"):
        Queue.objects.create(name=name, kind="jobs")
    QueueLimit.objects.create(user=people["operator"], queues=["alert"])
    for name in (ALERT, PROCESS, LEGACY):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(ROWS)
    return JobContext(tmp_path, control, timezone.now())


def begin(browser, **fields):
    body = {"scenario": "crash", "laws": ["thesis"], "column": "rate", **fields}
    return browser.post("/api/v1/experiments", body, content_type="application/json")


def upload(browser, name="mine.csv"):
    file = SimpleUploadedFile(name, ROWS.encode())
    posted = {"scenario": "crash", "law": ["thesis"], "seed": "1", "trace": "upload", "column": "rate"}
    return browser.post("/lab/begin", {**posted, "file": file}, headers={"accept": "application/json"})


def offered(browser):
    return browser.get("/api/v1/lab").json()["traces"]


@pytest.mark.parametrize(("trace", "status"), [(ALERT, 200), (PROCESS, 403), (LEGACY, 403)])
def test_only_extracts_of_ones_queues_are_offered_and_run(trace, status, browsers):
    assert offered(browsers["operator"]) == [ALERT]
    assert set(offered(browsers["administrator"])) == {ALERT, PROCESS, LEGACY}
    answer = begin(browsers["operator"], trace=trace)
    assert answer.status_code == status
    assert Experiment.objects.exists() == (status == 200)
    assert begin(browsers["administrator"], trace=trace).status_code == 200


def test_a_refused_trace_is_noted_in_the_audit(browsers):
    begin(browsers["operator"], trace=PROCESS)
    assert AuditEntry.objects.filter(action__startswith="refused").exists() or "process" in str(
        list(AuditEntry.objects.values_list("action", "target", "after"))
    )


@pytest.fixture
def anothers(browsers, tmp_path):
    """An administrator's experiment on values of queue process, with its series."""
    number = begin(browsers["administrator"], trace=PROCESS).json()["id"]
    found = Experiment.objects.get(pk=number)
    assert found.queues == ["process"]
    found.results.create(law="thesis", metrics={"x": 1}, seconds=1.0)
    path = tmp_path / series.get_series_file(number, "thesis")
    series.write_series(path, 1.0, {"arrivals": np.arange(3.0)})
    return found


def test_an_experiment_on_another_queues_values_is_neither_read_nor_run_again(anothers, browsers):
    limited, number = browsers["operator"], anothers.pk
    for address in (f"/api/v1/experiments/{number}", f"/api/v1/experiments/{number}/series", f"/lab/{number}/"):
        assert limited.get(address).status_code == 403, address
        assert browsers["administrator"].get(address).status_code == 200, address
    assert limited.get("/api/v1/experiments").json()["experiments"] == []
    assert list(limited.get("/lab/").context["page_obj"]) == []
    assert limited.get(f"/lab/compare?id={number}").context["compared"] == []
    posted = {"scenario": "crash", "law": ["thesis"], "seed": "1", "trace": f"experiment-{number}"}
    json = {"accept": "application/json"}
    assert limited.post("/lab/begin", posted, headers=json).status_code == 403
    assert limited.post(f"/lab/{number}/cancel", headers=json).status_code == 403
    assert Experiment.objects.count() == 1


def test_a_token_that_is_limited_more_than_its_owner_reads_no_more(anothers, people):
    until = timezone.now() + timedelta(days=1)
    secret = create_token(people["administrator"], "t", "administrator", until, queues=["alert"])[1]
    headers = {"Authorization": f"Bearer {secret}"}
    assert Client().get(f"/api/v1/experiments/{anothers.pk}", headers=headers).status_code == 403


def test_an_experiment_without_a_trace_is_everybodys(browsers):
    number = begin(browsers["administrator"]).json()["id"]
    assert browsers["operator"].get(f"/lab/{number}/").status_code == 200


def test_an_upload_is_its_owners_and_nobody_elses_is_replaced(browsers, people, tmp_path):
    for who in ("administrator", "operator"):
        assert upload(browsers[who]).status_code == 200
    paths = {who: f"traces/{people[who].pk}/mine.csv" for who in ("administrator", "operator")}
    assert all((tmp_path / path).exists() for path in paths.values())
    # An administrator's upload may have values of any queue.
    assert paths["administrator"] not in offered(browsers["operator"])
    assert paths["operator"] in offered(browsers["operator"])
    assert begin(browsers["operator"], trace=paths["administrator"]).status_code == 403
    assert [each.queues for each in Experiment.objects.order_by("pk")] == [None, ["alert"]]


@pytest.mark.parametrize(("queue", "status"), [("process", 403), ("alert", 200)])
def test_a_comparison_of_another_queues_events_is_refused(queue, status, browsers):
    now = datetime.now(UTC)
    query = {"from": (now - timedelta(minutes=5)).isoformat(), "to": now.isoformat(), "queue": queue}
    for address in ("/api/v1/differences", "/differences/"):
        assert browsers["operator"].get(address, query).status_code == status, address
        assert browsers["administrator"].get(address, query).status_code == 200, address


def test_a_comparison_without_a_queue_is_of_ones_own(browsers):
    now = datetime.now(UTC)
    query = {"from": (now - timedelta(minutes=5)).isoformat(), "to": now.isoformat()}
    assert browsers["operator"].get("/api/v1/differences", query).status_code == 403
    page = browsers["operator"].get("/differences/", query)
    assert (page.context["queue"], page.context["queues"]) == ("alert", ["alert"])


def extracted(owner, name="day", state=Run.State.DONE):
    run = Run.objects.create(
        task=Task.objects.get(name="replay_extract"), parameters={"queue": "alert", "format": "csv"},
        single_instance=False, owner=owner, state=state,
        ended_at=timezone.now() if state == Run.State.DONE else None,
    )  # fmt: skip
    Chunk.objects.create(run=run, identifier=f"extract={name}", place=0, state=Chunk.State.DONE)
    return run


def test_nobody_replaces_what_somebody_else_extracted(plant, people):
    made = extracted(people["administrator"])
    theirs = JobContext(plant.data, plant.control, plant.now, people["operator"].pk)
    own = JobContext(plant.data, plant.control, plant.now, people["administrator"].pk)
    with pytest.raises(BadInput, match=rf"is an extract of administrator \(run {made.pk}\)"):
        archive_jobs.check_extract_name(theirs, "alert", "day", "csv")
    archive_jobs.check_extract_name(own, "alert", "day", "csv")
    archive_jobs.check_extract_name(theirs, "alert", "other", "csv")
    archive_jobs.check_extract_name(theirs, "alert", "day", "parquet")
    (plant.data / ALERT).unlink()  # it is gone: there is nothing to replace
    archive_jobs.check_extract_name(theirs, "alert", "day", "csv")
    extracted(None, state=Run.State.RUNNING)
    with pytest.raises(BadInput, match="of the schedule"):
        archive_jobs.check_extract_name(theirs, "alert", "day", "csv")
    assert runs.OPEN


def application(read, written):
    made = {"queues": (read,), "sinks": {"pattern": (written,)}}
    return cast(Application, SimpleNamespace(**made))


@pytest.mark.parametrize(
    ("queues", "sees"),
    [(None, True), ({"alert", "found"}, True), ({"found"}, False), ({"alert"}, False), (set(), False)],
)
def test_events_of_matches_are_shown_to_who_reaches_the_applications_queues(queues, sees):
    actor = Actor("somebody", "viewer", queues=None if queues is None else frozenset(queues))
    assert reads_events(actor, application("alert", "found")) == sees
    assert reads_events(actor, None) == (queues is None)  # its declaration can't be read
