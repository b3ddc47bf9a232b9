"""The job that tunes loops: a chunk a loop; what proves better is proposed, else it says why not."""

import pytest

from controllers.design.tuning import Improvement
from tests.workers.control.records import NOW, wasteful_loop
from workers.batch import runs, task_definitions, task_managers
from workers.batch import worker as batch_worker
from workers.batch.job import JobContext
from workers.control import tuning
from workers.models import Run, Tuning

pytestmark = pytest.mark.django_db


def run_job(where: JobContext, **values: object) -> Run:
    task_definitions.ensure_tasks()
    run = runs.begin("tuning", where, {"days": 3, **values})
    sent: list[tuple[int, str, str]] = []
    while run.state in runs.OPEN:
        task_managers.manage_run(run, where.control, NOW, lambda *worker: sent.append(worker))
        while sent:
            batch_worker.work_at(run.pk, sent.pop()[1], where.control, where.data, lambda: NOW)
        run.refresh_from_db()
    return run


@pytest.fixture
def where(control, tmp_path):
    return JobContext(tmp_path, control, NOW)


def test_a_loop_with_too_short_a_record_is_skipped_with_the_reason(where):
    loop = wasteful_loop()
    run = run_job(where)
    assert run.state == "done"
    (chunk,) = run.chunks.all()
    assert chunk.identifier == f"loop={loop.name}"
    assert "collecting data: 0 of 3 days" in str(chunk.skipped)
    assert not Tuning.objects.exists()


def test_what_proves_better_is_proposed_once(where, monkeypatch):
    loop = wasteful_loop()
    found = Improvement(before=2.0, after=1.0, confidence=1.0)
    learned = tuning.LearnedValues(loop, "", {"caution": 0.25}, {"caution": 0.0}, [], found)
    monkeypatch.setattr(tuning, "learn", lambda *_: learned)
    assert run_job(where).state == "done"
    assert [(each.loop, each.values) for each in Tuning.objects.all()] == [(loop, {"caution": 0.25})]
