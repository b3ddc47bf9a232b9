"""Experiments as batch work: a law a chunk, in a process that can be ended, noted under its seat."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User

from common.errors import BadInput
from controllers.simulation.catalog import SCENARIOS
from tests.waiting import until
from workers.batch import catalog, runs, task_definitions, task_managers, worker
from workers.batch import worker as batch_worker
from workers.batch.job import JobContext
from workers.batch.jobs import experiment as job
from workers.lab import series
from workers.lab.models import Experiment, ExperimentResult
from workers.models import Chunk, Run

pytestmark = pytest.mark.django_db
SETTINGS = {"node": 2, "at": 300, "restore": 900}


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def where(control, tmp_path):
    task_definitions.ensure_tasks()
    return JobContext(tmp_path, control, now())


def begun(where: JobContext, **fields: Any) -> tuple[Experiment, Run]:
    values = {"scenario": "crash", "laws": ["rebalancing", "thesis"], "settings": SETTINGS, "seed": 4}
    experiment = Experiment.objects.create(**{**values, **fields})
    return experiment, runs.begin(job.NAME, where, {"experiment": experiment.pk})


def worked(run: Run, where: JobContext) -> Run:
    def work(number: int, worker: str, role: str, is_requested: bool) -> None:
        assert role == "spark"  # not where consumers are
        batch_worker.work_at(number, worker, where.control, where.data, now)

    while run.state in runs.OPEN:
        run = task_managers.manage_run(run, where.control, now(), work)
    return run


def test_an_experiment_gives_what_the_scenario_gives_of_its_trace_however_often_it_is_done(where):
    trace = np.array([1.0, 5.0, 2.0])
    experiment, run = begun(where, laws=["thesis"], trace={"name": "t", "column": "v", "rows": 3})
    series.write_trace(where.data, experiment.pk, trace)
    assert [chunk.identifier for chunk in run.chunks.all()] == ["law=thesis"]
    assert worked(run, where).state == Run.State.DONE
    expected = SCENARIOS["crash"].run("thesis", SETTINGS, 4, trace)
    assert experiment.results.get().metrics == dict(expected.metrics)
    step, columns = series.read_series(where.data, experiment.pk, "thesis")
    assert step == expected.series_seconds and set(columns) == set(expected.series)
    for name, values in expected.series.items():
        np.testing.assert_array_equal(columns[name], values)
    Chunk.objects.filter(run=run).update(state=Chunk.State.PENDING, fence=0)
    Run.objects.filter(pk=run.pk).update(state=Run.State.RUNNING, ended_at=None)
    assert worked(runs.run_of(run.pk), where).state == Run.State.DONE
    assert ExperimentResult.objects.filter(experiment=experiment).count() == 1


@pytest.mark.thorough
def test_the_shipped_loops_run_without_a_database(where):
    settings = SCENARIOS["balance"].read_settings({})
    experiment, run = begun(where, scenario="balance", laws=["shipped"], settings=settings)
    assert worked(run, where).state == Run.State.DONE, run.error
    assert experiment.results.get().metrics["delay_mean_seconds"] > 1.0


def test_what_the_scenario_refuses_ends_the_run_with_the_reason(where):
    experiment, run = begun(where, laws=["thesis"], trace={"name": "t", "column": "v", "rows": 1})
    series.write_trace(where.data, experiment.pk, np.array([0.0]))
    ended = worked(run, where)
    assert ended.state == Run.State.FAILED and "at least one above 0" in ended.error
    assert not experiment.results.exists()


def test_an_experiment_that_is_not_there_is_refused_by_name(where):
    with pytest.raises(BadInput, match="experiment"):
        runs.begin(job.NAME, where, {"experiment": 99})


class LosesItsSeat:
    """A seat that is overtaken as soon as its simulation runs."""

    def __init__(self) -> None:
        self.checks = 0

    def check(self, progress: Any = None) -> None:
        self.checks += 1
        if self.checks > 1:
            raise BadInput("seat", "is another's.")


def test_who_loses_the_chunk_lease_ends_the_simulation(where, monkeypatch):
    started: list[subprocess.Popen[str]] = []

    class Noted(subprocess.Popen):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(job.subprocess, "Popen", Noted)
    monkeypatch.setattr(job, "COMMAND", ["sleep", "60"])  # one that runs when the seat is lost
    request = {"scenario": "manager", "law": "worker_rate", "settings": {}, "seed": 1, "trace": False}
    with pytest.raises(BadInput, match="seat"):
        job._run_in_process({**request, "number": 1, "data": str(where.data), "out": "x"}, LosesItsSeat())
    (process,) = started
    assert process.returncode == -signal.SIGKILL


def test_a_simulation_ends_when_its_worker_does(where):
    read, write = os.pipe()
    process = subprocess.Popen(job.COMMAND, stdin=read, stdout=subprocess.DEVNULL, cwd=job.ROOT)
    os.close(read)
    os.write(write, b'{"scenario": "queues", "law": "rebalancing", "settings": {"configuration": 4}, ')
    os.close(write)  # as when the worker is killed
    until(lambda: process.poll() is not None)


@pytest.mark.parametrize(
    ("law", "limits", "why"),
    [
        ("memory", {}, "law=memory: The experiment used more than 1,024 MiB of memory. Run a smaller experiment."),
        ("cpu", {"cpu_seconds": 1}, "law=cpu: The experiment used more than 1 s of CPU time."),
    ],
)
def test_a_simulation_that_takes_too_much_ends_alone_and_says_what_to_do(law, limits, why, where, monkeypatch):
    """A real process that asks for 2 GiB, or spins; the worker in this process does its next run."""
    monkeypatch.setattr(job, "COMMAND", (sys.executable, "-m", "tests.workers.batch.greedy_simulation"))
    monkeypatch.setattr(job, "LIMITS", replace(job.LIMITS, **limits))
    _, run = begun(where, laws=[law])
    ended = worked(run, where)
    assert ended.state == Run.State.FAILED and why in ended.error
    assert ended.chunks.get().tries == 1  # another try would take as much
    assert worked(begun(where, laws=["modest"])[1], where).state == Run.State.DONE


def test_the_advice_names_the_settings_that_make_a_scenario_large():
    request = {"scenario": "churn"}
    assert job._build_limit_error("more than 1 s", request).message.endswith("Reduce nodes, containers, or hours.")


def test_a_chunk_that_takes_too_long_by_the_clock_ends_its_run(where, monkeypatch):
    monkeypatch.setattr(job, "COMMAND", ("sleep", "60"))
    declared = replace(catalog.JOBS[job.NAME], max_chunk_seconds=0.0)
    monkeypatch.setitem(catalog.JOBS, job.NAME, declared)
    ended = worked(begun(where, laws=["thesis"])[1], where)
    assert ended.state == Run.State.FAILED and "longer than 0 s" in ended.error


def test_what_a_person_asks_for_has_a_limit_of_time_whatever_the_job_says(where):
    owner = User.objects.create_user("anna")
    for asked, limit in ((owner, worker.MAX_REQUESTED_CHUNK_SECONDS), (None, None)):
        run = runs.begin("retention", where, owner=asked)
        assert batch_worker.BatchWorker(run, "w", where, now)._max_seconds() == limit
        runs.end(run, Run.State.DONE, now())
