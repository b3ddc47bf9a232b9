"""Long-running tasks in threads of the process: they follow one another, end when they are told to, and fail."""

import threading

import pytest

from tests.waiting import until
from tests.workers.pipeline.times import Times
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.runtime.long_tasks import EpochWork, LongTask, ReplicaRole
from workers.pipeline.runtime.task_thread import TaskThread, run_in_thread
from workers.pipeline.tiers.intra_event import ReplicaRules


class Epochs:
    """Each epoch lasts until the test ends it, or fails with the next error."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors, self.count = list(errors), 0
        self.may_end = threading.Semaphore(0)

    def __call__(self, task: object) -> None:
        self.count += 1
        self.may_end.acquire(timeout=10)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error


def begin(epochs: Epochs, times: Times | None = None) -> TaskThread:
    return TaskThread("task1", EpochWork(epochs, object, {}, times or Times()))


def test_epochs_follow_one_another_until_the_thread_is_ended_after_its_epoch():
    epochs = Epochs()
    task = begin(epochs)
    epochs.may_end.release()
    until(lambda: epochs.count == 2)
    task.check()
    ending = threading.Thread(target=task.end, args=(10.0,))
    ending.start()
    until(lambda: task._ending.is_set())
    epochs.may_end.release()
    ending.join()
    assert epochs.count == 2


def test_an_epoch_that_hangs_is_left_behind():
    epochs = Epochs()
    task = begin(epochs)
    until(lambda: epochs.count == 1)
    task.end(0.0)
    task.check()
    epochs.may_end.release()


def test_after_a_failure_the_next_epoch_starts_and_a_second_failure_within_ten_seconds_ends_the_thread():
    epochs, times = Epochs(MemoryError("first"), MemoryError("second"), MemoryError("third")), Times()
    task = begin(epochs, times)
    epochs.may_end.release()
    until(lambda: epochs.count == 2)
    task.check()
    times.now += 11.0
    epochs.may_end.release()
    until(lambda: epochs.count == 3)
    task.check()
    epochs.may_end.release()
    until(lambda: not task._thread.is_alive())
    with pytest.raises(MemoryError, match="third"):
        task.check()


DECLARATION = """
name: app
queues: [telemetry]
sink: alert
rules:
  - {name: host, enrich: {table: hosts.csv, using: source, by: name, columns: [site]}}
patterns:
  - {name: p, pattern: SEQ(A), key: site, within_seconds: 9}
"""


def test_a_task_has_its_own_copy_of_the_reference_tables(tmp_path, monkeypatch):
    (tmp_path / "hosts.csv").write_text("name,site\nx,north\n")
    application = parse_application_text(DECLARATION, tmp_path)
    rules = ReplicaRules("redis://127.0.0.1", application, "iap1", 1.0)
    role = ReplicaRole("redis://127.0.0.1", application, "iap1", rules.build_local_runner())
    tables = []

    def run(self, rows):
        tables.extend(self.roles[0].application.tables)
        return iter([3])

    monkeypatch.setattr(LongTask, "__call__", run)
    assert run_in_thread(LongTask((role,), "main", b"start/1")) == 3
    assert tables == list(application.tables)
    assert tables[0] is not application.tables[0]
