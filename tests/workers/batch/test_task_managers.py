"""Batch tasks: how they are begun, sized, done chunk by chunk, overtaken, cancelled and gone on with."""

from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
import redis
from django.db import IntegrityError, transaction
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from common.stored_document import encode_document
from queues import keys
from tests.races import another_thread, until_another_waits
from workers.batch import files, runs, task_definitions, task_managers
from workers.batch import worker as batch_worker
from workers.batch.chunk_leases import LOST_SECONDS, ChunkLease, ChunkLeaseLost, claim
from workers.batch.job import ChunkResult, JobContext
from workers.batch.runs import compute_next_deadline
from workers.batch.task_managers import compute_worker_count
from workers.documents.hosts import ReportedHost
from workers.models import Chunk, Run, Task

NOW = datetime(2026, 11, 20, 5, 0, tzinfo=UTC)
NUMBERED = "python:tests.workers.batch.job_samples.NUMBERED"
UNKNOWN = "python:tests.workers.batch.job_samples.UNKNOWN"


class Bench:
    """A task on a data folder of its own, a clock that is set, and the workers that were sent for."""

    def __init__(self, control: redis.Redis, data: Path) -> None:
        self.control, self.data, self.now = control, data, NOW
        self.sent: list[tuple[int, str, str, bool]] = []

    @property
    def where(self) -> JobContext:
        return JobContext(self.data, self.control, self.now)

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def define(self, job: str = NUMBERED, **fields: object) -> Task:
        return task_definitions.define("parts", job, **fields)

    def begin(self, **options: object) -> Run:
        return runs.begin("parts", self.where, **options)

    def manage(self, *followed: Run) -> None:
        task_managers.tick(self.control, self.now, lambda *worker: self.sent.append(worker))
        for run in followed:
            run.refresh_from_db()

    def start(self, job: str = NUMBERED, **fields: object) -> Run:
        """A run of a new task, of which the manager knows."""
        self.define(job, **fields)
        run = self.begin()
        self.manage()
        return run

    def work(self, host: str = "") -> int:
        """The worker that was sent for first lives its life."""
        number, worker, *_ = self.sent.pop(0)
        return batch_worker.work_at(number, worker, self.control, self.data, lambda: self.now, host)

    def lease(self, run: Run, worker: str = "w") -> ChunkLease:
        chunk = claim(run.pk, worker, self.now)
        assert chunk is not None
        return ChunkLease(chunk, self.where, lambda: self.now)

    def written(self) -> list[str]:
        return sorted(path.name for path in (self.data / "extracts").iterdir())


@pytest.fixture
def bench(control, tmp_path, db):
    return Bench(control, tmp_path)


def refusal(call, *arguments, **named) -> str:
    with pytest.raises(BadInput) as refused:
        call(*arguments, **named)
    return refused.value.field


def test_a_run_that_fails_outside_of_its_chunks_ends_and_says_why(bench, monkeypatch):
    """No other worker would do better: else one is sent every few seconds, and nobody hears of it."""
    run = bench.start(UNKNOWN)

    def fail(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(batch_worker, "extend", fail)
    assert bench.work() == 0
    run.refresh_from_db()
    assert (run.state, run.error) == (Run.State.FAILED, "IndexError: list index out of range")


def test_a_run_that_can_not_be_planned_fails_says_why_and_is_not_resumed(bench):
    """One that its schedule begins is asked for by nobody who would see the error."""
    bench.define("python:tests.workers.batch.job_samples.UNPLANNED")
    run = bench.begin()
    assert (run.state, run.error) == (Run.State.FAILED, "PermissionError: may not be read")
    assert refusal(runs.resume, run, NOW) == "run"
    bench.manage()
    assert (Run.objects.get().state, bench.sent) == (Run.State.FAILED, [])


def test_a_clock_that_is_set_back_takes_no_chunk_away_from_who_works_at_it(bench):
    run = bench.start()
    lease = bench.lease(run)
    lease.check()
    bench.pass_seconds(-3_600)
    lease.check()
    assert lease.chunk.beat_at == bench.now


def test_a_run_is_done_chunk_by_chunk_and_says_how_far_it_is(bench):
    bench.define()
    run = bench.begin()
    assert (run.state, run.chunks_total) == ("queued", 3)
    bench.manage()
    assert [role for _, _, role, _ in bench.sent] == ["jobs"]
    assert bench.work() == 3
    bench.manage(run)
    assert (run.state, run.chunks_done, run.progress["rows"], run.progress["share"]) == ("done", 3, 30, 1.0)
    assert bench.written() == ["part-0.txt", "part-1.txt", "part-2.txt"]
    assert not bench.control.keys("weir:job:*")


def test_workers_are_requested_only_from_a_host_with_the_required_capability(bench):
    """Until there is such a host, the run shows what is missing."""
    run = bench.start(requirements=["gpu"])
    run.refresh_from_db()
    assert bench.sent == []
    assert run.progress["obstacle"].startswith("requirements: no worker host of role jobs has gpu.")
    for name, capabilities in {"jobs@a": ["gpu"], "jobs@b": []}.items():
        host = ReportedHost(role="jobs", slots=1, at=bench.now.timestamp(), capabilities=capabilities)
        bench.control.hset(keys.HOSTS, name, encode_document(host))
    bench.manage(run)
    assert [destination for _, _, destination, _ in bench.sent] == ["jobs@a"]
    assert run.progress["obstacle"] == ""


def test_nothing_to_do_is_done_at_once(bench):
    bench.define(parameters={"chunks": 0})
    assert bench.begin().state == "done"


def test_a_worker_that_was_sent_for_is_not_sent_for_again_until_it_is_given_up(bench):
    bench.start()
    bench.manage()
    assert len(bench.sent) == 1
    bench.pass_seconds(task_managers.SUBMISSION_SECONDS + 1)
    bench.manage()
    assert len(bench.sent) == 2


def test_the_deadline_sizes_the_workers_by_the_measured_time_of_a_chunk(bench):
    bench.define(single_instance=False, parallel=10, parameters={"chunks": 20})
    run = bench.begin(deadline_at=NOW + timedelta(seconds=100))
    run.chunks.filter(place__lt=4).update(state="done", seconds=20.0)
    bench.manage(run)
    # 80 usable seconds are 4 chunks a worker, and 16 are left.
    assert run.workers_wanted == len(bench.sent) == 4


def test_no_more_than_the_wanted_workers_get_a_chunk(bench):
    run = bench.start(single_instance=False, parallel=2)
    assert claim(run.pk, "a", bench.now) and claim(run.pk, "b", bench.now)
    assert claim(run.pk, "c", bench.now) is None


def test_a_worker_whose_host_is_drained_leaves_the_next_chunk_to_another(bench, monkeypatch):
    bench.start(parallel=1)
    commit = ChunkLease.commit

    def drained_meanwhile(*arguments: object) -> None:
        bench.control.set(keys.DRAIN.build("jobs@one"), "1")
        commit(*arguments)

    monkeypatch.setattr(ChunkLease, "commit", drained_meanwhile)
    assert bench.work("jobs@one") == 1, "what it worked at is finished"
    bench.manage()
    assert bench.work("jobs@two") == 2


def test_a_single_instance_task_has_one_open_run_and_one_worker(bench):
    task = bench.define(parallel=5)
    run = bench.begin()
    assert refusal(bench.begin) == "task"
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.create(task=task, single_instance=True)
    bench.manage()
    assert len(bench.sent) == 1
    assert claim(run.pk, "a", bench.now) is not None
    assert claim(run.pk, "b", bench.now) is None


def test_who_was_overtaken_can_neither_show_its_files_nor_end_the_chunk(bench):
    run = bench.start()
    paused = bench.lease(run, "paused")
    bench.pass_seconds(LOST_SECONDS + 1)
    successor = bench.lease(run, "successor")
    assert successor.chunk.pk == paused.chunk.pk and successor.chunk.fence > paused.chunk.fence
    folder = bench.data / "statistics"
    folder.mkdir()
    (folder / "old").write_text("old")
    (folder / "new").write_text("new")
    with pytest.raises(ChunkLeaseLost):
        paused.check()
    with pytest.raises(ChunkLeaseLost):
        paused.commit(ChunkResult(1, {"statistics/result": "statistics/old"}), 1.0)
    assert not (folder / "result").exists() and not (folder / "old").exists()
    successor.commit(ChunkResult(1, {"statistics/result": "statistics/new"}), 1.0)
    assert (folder / "result").read_text() == "new"
    with pytest.raises(ChunkLeaseLost):
        paused.commit(ChunkResult(1, {"statistics/result": "statistics/old"}), 1.0)
    run.refresh_from_db()
    assert run.chunks_done == 1


def test_a_chunk_whose_file_cannot_be_shown_is_not_done(bench):
    run = bench.start()
    lease = bench.lease(run)
    with pytest.raises(FileNotFoundError):
        lease.commit(ChunkResult(1, {"statistics/result": "statistics/absent"}), 1.0)
    lease.chunk.refresh_from_db()
    assert lease.chunk.state == "working"


def test_a_chunk_that_fails_is_tried_three_times_and_then_named(bench):
    bench.define(parameters={"fault": "raises"})
    run = bench.begin()
    for _ in range(2):
        bench.manage()
        if bench.sent:
            bench.work()
    run.refresh_from_db()
    assert run.state == "failed" and "part-1: RuntimeError: it broke" in run.error
    assert (run.chunks_done, run.chunks.get(identifier="part-1").tries) == (2, 3)


def test_a_run_of_an_unknown_amount_that_failed_goes_on_to_its_end(bench):
    run = bench.start(UNKNOWN, parameters={"fault": "raises"})
    assert run.chunks_total is None
    bench.work()
    bench.manage(run)
    assert (run.state, run.chunks_total) == ("failed", 2)
    Run.objects.filter(pk=run.pk).update(parameters={**run.parameters, "fault": None})
    runs.resume(run, bench.now)
    bench.manage()
    assert bench.work() == 2
    bench.manage(run)
    assert (run.state, run.chunks_total) == ("done", 3)
    assert bench.written() == ["part-0.txt", "part-1.txt", "part-2.txt"]


def test_input_that_is_refused_ends_the_run_and_says_why(bench):
    run = bench.start(parameters={"fault": "refused"})
    bench.work()
    run.refresh_from_db()
    assert (run.state, run.error) == ("failed", "part-0: on_error: the input is foreign.")


def test_a_worker_that_was_overtaken_ends_no_run_by_the_input_that_it_refuses(bench):
    run = bench.start()
    frozen = claim(run.pk, "a frozen worker", bench.now)
    assert frozen is not None

    def refused(lease: ChunkLease) -> ChunkResult:
        bench.pass_seconds(LOST_SECONDS + 1)
        bench.lease(run, "another")
        raise BadInput("on_error", "the input is gone: another has worked it.")

    late = batch_worker.BatchWorker(run, "a frozen worker", bench.where, lambda: bench.now)
    assert not late._do(frozen, refused)
    run.refresh_from_db()
    assert (run.state, run.error) == ("running", "")


def test_a_control_server_that_is_away_for_a_while_costs_no_chunk_the_work_that_is_done(bench, control_server):
    """A chunk is held by the database; hours of Spark's work hang on no note of how far they are."""
    run = bench.start()
    chunk = claim(run.pk, "w", bench.now)
    assert chunk is not None

    def work(lease: ChunkLease) -> ChunkResult:
        control_server.stop()
        lease.check({"rows": 5, "share": 0.5})
        control_server.start()
        return ChunkResult(7)

    worker = batch_worker.BatchWorker(run, "w", bench.where, lambda: bench.now)
    assert worker._do(chunk, work)
    chunk.refresh_from_db()
    assert (chunk.state, chunk.tries, chunk.rows) == ("done", 0, 7)


def test_what_a_dead_worker_left_and_cannot_be_swept_ends_no_run(bench):
    """As where what it had started writes there still: a folder is not empty, or gone, when it is removed."""
    run = bench.start()
    dead = bench.lease(run, "a dead worker")
    elsewhere, leftover = (bench.data / "elsewhere", bench.data / files.build_hidden_path("extracts/x.csv", dead.token))
    elsewhere.mkdir()
    leftover.parent.mkdir()
    leftover.symlink_to(elsewhere)  # is refused by what removes folders
    bench.pass_seconds(LOST_SECONDS + 1)
    assert bench.work() == 3
    bench.manage(run)
    assert (run.state, run.error) == ("done", "")


def test_a_job_that_does_not_import_any_more_ends_its_run_and_is_named(bench):
    task = bench.define()
    run = bench.begin()
    Task.objects.filter(pk=task.pk).update(job="python:tests.workers.batch.job_samples.GONE")
    bench.manage()
    assert bench.work() == 0
    run.refresh_from_db()
    assert run.state == "failed" and "job_samples.GONE cannot be imported" in run.error


def test_a_cancelled_run_shows_nothing_more_and_what_is_done_stays_when_it_goes_on(bench):
    run = bench.start()
    bench.lease(run).commit(ChunkResult(7), 1.0)
    late = bench.lease(run)
    assert runs.cancel(run, bench.now).state == "cancelled"
    with pytest.raises(ChunkLeaseLost):
        late.check()
    assert refusal(runs.cancel, run, bench.now) == "run"
    assert runs.resume(run, bench.now).state == "queued"
    bench.sent.clear()
    bench.pass_seconds(task_managers.SUBMISSION_SECONDS + 1)
    bench.manage()
    assert bench.work() == 2
    bench.manage(run)
    assert (run.state, run.progress["rows"]) == ("done", 27)
    assert refusal(runs.resume, run, bench.now) == "run"
    assert refusal(runs.cancel, run, bench.now) == "run"


def test_nothing_of_a_cancelled_run_stays_on_the_control_server_for_good(bench):
    run = bench.start()
    runs.cancel(run, NOW)
    assert bench.work() == 0
    left = list(bench.control.scan_iter(f"weir:job:{run.pk}*"))
    assert left and all(0 < bench.control.ttl(key) <= 86_400 for key in left)


def test_a_manager_that_another_holds_the_lease_of_does_nothing(bench):
    bench.define()
    bench.begin()
    bench.control.set("weir:lease:task-managers", "another:1")
    bench.manage()
    assert not bench.sent


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"every_seconds": 0}, "interval_seconds"),
        ({"every_seconds": -5}, "interval_seconds"),
        ({"crontab_line": "0 3 * *"}, "crontab"),
        ({"crontab_line": "0 99 * * *"}, "crontab"),
        ({"every_seconds": 5, "crontab_line": "0 3 * * *"}, "crontab"),
        ({"parallel": 0}, "parallel"),
        ({"requirements": ["Gold!"]}, "requirements"),
        ({"parameters": {"chunks": "many"}}, "chunks"),
        ({"parameters": {"colour": "red"}}, "colour"),
        ({"job": "python:tests.workers.batch.job_samples.ABSENT"}, "job"),
        ({"job": "python:no.such.place"}, "job"),
        ({"job": "python:pathlib.Path"}, "job"),
        ({"job": "dance"}, "job"),
    ],
)
def test_a_faulty_definition_is_refused_by_the_field_and_changes_nothing(fields, field, bench):
    assert refusal(bench.define, **{"job": NUMBERED, **fields}) == field
    assert not Task.objects.exists()


def test_a_run_is_refused_by_the_field_and_nothing_is_kept_of_it(bench):
    bench.define()
    assert refusal(runs.begin, "absent", bench.where) == "task"
    assert refusal(bench.begin, parameters={"chunks": 1000}) == "chunks"
    assert refusal(bench.begin, deadline_at=NOW) == "deadline"
    assert refusal(runs.run_of, "12") == "run"
    assert not Run.objects.exists() and not Chunk.objects.exists()


def test_shipped_tasks_are_made_once_and_an_operators_change_stays(bench):
    assert task_definitions.ensure_tasks() == Task.objects.count() == 9
    spill = Task.objects.get(name="metric_spill")
    assert (spill.periodic.interval.every, spill.periodic.task) == (600, task_definitions.START)
    assert Task.objects.get(name="stream_statistics").periodic.crontab.hour == "1"
    task_definitions.schedule(spill, every_seconds=60)
    assert task_definitions.ensure_tasks() == 0
    assert Task.objects.get(name="metric_spill").periodic.interval.every == 60
    assert task_definitions.schedule(spill).periodic is None


def test_a_run_goes_on_at_once_after_a_clock_that_was_ahead_is_set_right(bench):
    """The worker that noted itself then was killed."""
    bench.define()
    bench.begin()
    bench.pass_seconds(3_600)
    bench.manage()
    number, worker, *_ = bench.sent.pop(0)
    assert claim(number, worker, bench.now) is not None
    bench.control.zadd(keys.JOB_WORKERS.build(number), {worker: bench.now.timestamp() + 15})
    bench.pass_seconds(120 - 3_600)
    bench.manage()
    assert len(bench.sent) == 1 and claim(number, "another", bench.now) is not None


def test_a_chunk_that_kills_its_workers_is_given_up_and_the_others_are_done(bench):
    run = bench.start()
    for _ in range(4):
        claimed = claim(run.pk, "w", bench.now)
        bench.pass_seconds(16)
    first = Chunk.objects.filter(run=run).order_by("place").first()
    assert (first.state, first.tries) == ("failed", 3)
    assert first.error == "The chunk's worker ended or stopped responding 3 times."
    assert claimed is not None and claimed.pk != first.pk


def test_the_deadline_is_the_next_time_of_that_name():
    assert compute_next_deadline(time(6), NOW) == NOW + timedelta(hours=1)
    assert compute_next_deadline(time(5), NOW) == NOW + timedelta(hours=24)
    assert compute_next_deadline(None, NOW) is None


@given(
    chunks=st.integers(1, 500),
    seconds=st.lists(st.floats(0.01, 100), min_size=1, max_size=1),
    left=st.floats(-10, 10_000),
    most=st.integers(1, 64),
)
def test_so_many_workers_are_in_time_and_one_less_is_not(chunks, seconds, left, most):
    workers = compute_worker_count(chunks, seconds, left, most)
    usable = left * 0.8

    def in_time(count: int) -> bool:
        return count > 0 and count * int(usable // seconds[0]) >= chunks

    assert 1 <= workers <= most
    assert in_time(workers) or workers == min(most, chunks)
    assert workers == 1 or not in_time(workers - 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("write", ["check", "fail"])
def test_who_waits_while_it_is_overtaken_writes_nothing(bench, write):
    run = bench.start()
    paused = bench.lease(run, "paused")
    acts = {"check": lambda: paused.check({"rows": 1}), "fail": lambda: paused.fail("it broke", final=True)}
    bench.pass_seconds(LOST_SECONDS + 1)
    with another_thread() as call:
        with transaction.atomic():
            successor = bench.lease(run, "successor")
            waiting = call(acts[write])
            until_another_waits()
        ended = waiting.exception(30)
    assert isinstance(ended, ChunkLeaseLost) or (ended is None and write == "fail")
    chunk = Chunk.objects.get(pk=paused.chunk.pk)
    assert (chunk.state, chunk.error, chunk.fence) == ("working", "", successor.chunk.fence)


def test_an_error_with_a_nul_ends_a_chunk_and_its_run_like_any_other(bench):
    run = bench.start()
    bench.lease(run).fail("DataError: a\0b", final=True)
    assert runs.end(run, Run.State.FAILED, bench.now, "part-0: a\0b")
    run.refresh_from_db()
    assert run.error == "part-0: a\ufffdb"
    assert run.chunks.get(state="failed").error == "DataError: a\ufffdb"
