"""Six experiments delay no scheduled run, on a single worker and in virtual time; people take turns."""

from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User

from common.errors import BadInput
from workers.batch import catalog, runs, task_definitions, task_managers, worker
from workers.batch import worker as batch_worker
from workers.batch.job import ChunkResult, ChunkSpec, Job, JobContext
from workers.models import Chunk, Run

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 20, 5, 0, tzinfo=UTC)
CHUNK_SECONDS = 100


class OneWorker:
    """The only worker of the role `spark`: it does a chunk in so many seconds of virtual time, and what the manager
    sends waits for it in the order of priority, as at the broker.
    """

    def __init__(self, control: redis.Redis, data: Path) -> None:
        self.control, self.data, self.now = control, data, START
        self.sent: list[tuple[int, int, int, str]] = []
        self.schedule: dict[int, str] = {}  # after so many seconds a run of that task begins
        self.deadlines: dict[str, datetime] = {}
        self.chunk_seconds, self.requested_chunk_seconds = 3, CHUNK_SECONDS
        self.done: list[tuple[str, float]] = []
        self.messages = 0

    def seconds(self) -> float:
        return (self.now - START).total_seconds()

    def where(self) -> JobContext:
        return JobContext(self.data, self.control, self.now)

    def submit(self, number: int, worker: str, role: str, priority: int) -> None:
        self.messages += 1
        self.sent.append((priority, self.messages, number, worker))

    def pass_second(self) -> None:
        """What a plant does each second, while the worker works: the schedule, and every other second the
        manager.
        """
        self.now += timedelta(seconds=1)
        if (task := self.schedule.pop(int(self.seconds()), None)) is not None:
            with suppress(BadInput):  # it still runs: as on a plant, this time is left out
                runs.begin(task, self.where(), deadline_at=self.deadlines.get(task))
        if int(self.seconds()) % 2 == 0:
            task_managers.tick(self.control, self.now, self.submit)

    def work(self, lease: Any) -> ChunkResult:
        for _ in range(self.requested_chunk_seconds if lease.chunk.run.is_requested else self.chunk_seconds):
            self.pass_second()
            lease.check({"rows": 0, "share": 0.5})
        self.done.append((str(lease.chunk.run.task.name), self.seconds()))
        return ChunkResult(1)

    def run_for(self, seconds: float) -> None:
        while self.seconds() < seconds:
            if not self.sent:
                self.pass_second()
                continue
            self.sent.sort()
            _, _, number, worker = self.sent.pop(0)
            batch_worker.work_at(number, worker, self.control, self.data, lambda: self.now)


@pytest.fixture
def plant(control, tmp_path, monkeypatch):
    made = OneWorker(control, tmp_path)

    def job(name: str, single: bool) -> Job:
        return Job(
            name,
            "",
            (),
            lambda where: nullcontext(made.work),
            pieces=lambda values, where: [ChunkSpec("a"), ChunkSpec("b")],
            requirements=("spark",),
            single_instance=single,
        )

    jobs = {"lab": job("lab", False), "rollup": job("rollup", True), "retain": job("retain", True)}
    monkeypatch.setattr(catalog, "JOBS", jobs)
    for name in jobs:
        task_definitions.define(name, name)
    return made


def person(name: str) -> User:
    return User.objects.create_user(name)


def begin_six(plant: OneWorker, owner: User) -> list[Run]:
    return [runs.begin("lab", plant.where(), owner=owner) for _ in range(6)]


def test_six_experiments_at_work_delay_a_scheduled_run_by_a_few_seconds(plant):
    begin_six(plant, person("anna"))
    plant.schedule = {37: "rollup", 90: "retain"}
    plant.run_for(150)
    ended = {run.task.name: run for run in Run.objects.filter(owner=None).select_related("task")}
    for name, begins in (("rollup", 37), ("retain", 90)):
        assert ended[name].state == Run.State.DONE
        # Two chunks of 3 s; the manager comes every 2 s, and notes the end as late.
        assert max(at for task, at in plant.done if task == name) <= begins + 6 + 6


def test_what_was_given_back_is_done_in_the_end_and_counts_as_no_try(plant):
    experiments = begin_six(plant, person("anna"))
    plant.requested_chunk_seconds, plant.schedule = 10, {5: "rollup"}
    plant.run_for(160)
    assert {run.state for run in Run.objects.all()} == {Run.State.DONE}
    first = Chunk.objects.get(run=experiments[0], identifier="a")
    assert (first.yields, first.tries) == (1, 0)


def test_a_chunk_is_given_back_so_many_times_and_no_more(plant):
    """A schedule that is tighter than a chunk is long keeps nobody from ever ending."""
    experiment = runs.begin("lab", plant.where(), owner=person("anna"))
    plant.requested_chunk_seconds, plant.schedule = 30, dict.fromkeys(range(14, 140, 14), "rollup")
    plant.run_for(110)
    first = Chunk.objects.get(run=experiment, identifier="a")
    assert (first.state, first.yields) == (Chunk.State.DONE, worker.MAX_YIELDS)


def test_one_persons_experiments_do_not_hold_up_anothers(plant):
    plant.requested_chunk_seconds = 10
    begin_six(plant, person("anna"))
    other = runs.begin("lab", plant.where(), owner=person("bert"))
    plant.run_for(3 * plant.requested_chunk_seconds)
    assert Chunk.objects.filter(run=other, state=Chunk.State.DONE).exists()


def test_a_scheduled_run_leaves_its_place_to_nobody(plant):
    runs.begin("rollup", plant.where())
    runs.begin("retain", plant.where())
    plant.run_for(20)
    assert [name for name, _ in plant.done] == ["rollup", "rollup", "retain", "retain"]


def test_a_run_of_another_role_is_no_reason_to_leave(plant):
    task_definitions.define("elsewhere", "rollup", requirements=())
    experiment = runs.begin("lab", plant.where(), owner=person("anna"))
    runs.begin("elsewhere", plant.where())
    assert not worker.is_blocking_scheduled_run(experiment, plant.now)
    runs.begin("rollup", plant.where())
    assert worker.is_blocking_scheduled_run(experiment, plant.now)


def test_a_run_that_requires_another_host_is_no_reason_to_leave(plant, monkeypatch):
    task_definitions.define("gpu-rollup", "rollup", requirements=("spark", "gpu"))
    experiment = runs.begin("lab", plant.where(), owner=person("anna"))
    runs.begin("gpu-rollup", plant.where())
    assert not worker.is_blocking_scheduled_run(experiment, plant.now)
    monkeypatch.setenv("WEIR_CAPABILITIES", "gpu")
    assert worker.is_blocking_scheduled_run(experiment, plant.now)


def test_a_scheduled_run_with_a_deadline_comes_before_those_without_and_the_earliest_deadline_first(plant):
    runs.begin("rollup", plant.where())
    runs.begin("lab", plant.where(), deadline_at=START + timedelta(hours=2))
    runs.begin("retain", plant.where(), deadline_at=START + timedelta(hours=1))
    plant.run_for(40)
    assert list(dict.fromkeys(task for task, _ in plant.done)) == ["retain", "lab", "rollup"]


@pytest.mark.parametrize(
    ("hours", "order"), [(1, ["rollup", "retain", "retain", "rollup"]), (3, ["rollup", "rollup", "retain", "retain"])]
)
def test_a_worker_leaves_a_scheduled_run_between_chunks_for_an_earlier_deadline(hours, order, plant):
    plant.chunk_seconds, plant.schedule = 30, {4: "retain"}
    plant.deadlines = {"retain": START + timedelta(hours=hours)}
    runs.begin("rollup", plant.where(), deadline_at=START + timedelta(hours=2))
    plant.run_for(150)
    assert [name for name, _ in plant.done] == order
