"""Long-running tasks execute batches as they come, and end when their epoch or their start is over."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from common.errors import NoContainerAvailable
from queues.events.block import from_events
from tests.workers.pipeline.times import Times
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.dispatch.result_queue import AttemptOvertaken
from workers.pipeline.runtime import long_tasks
from workers.pipeline.runtime.long_tasks import (
    CombinerRole,
    EpochReader,
    EpochWork,
    LongTask,
    ReplicaRole,
    TaskStart,
    renew_runners,
)
from workers.pipeline.tiers.batch_work import BatchFailed
from workers.pipeline.tiers.intra_event import ReplicaRules
from workers.pipeline.tiers.state import StateStore, WrittenState


@dataclass
class TaskRole:
    """Executes what `batches` says: True for a batch, False for a wait, or an error."""

    control_url: str
    batches: list
    times: Times
    application: object = None
    waits: list = field(default_factory=list)
    built: int = 0
    ended: int = 0

    def build(self, control):
        self.built += 1
        return self

    def end(self):
        self.ended += 1

    def execute(self, wait_seconds: float) -> bool:
        self.waits.append(wait_seconds)
        step = self.batches.pop(0) if self.batches else False
        self.times.now += 1.0
        if callable(step):
            return step()
        return step


@dataclass
class Named:
    name: str = "app"


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def start(control):
    begun = TaskStart(control, "app", "main")
    begun.renew()
    return begun


def run(roles, start: TaskStart, times: Times, seconds: float = 10.0) -> int:
    for role in roles:
        role.application = Named()
    (batches,) = LongTask(tuple(roles), start.process, start.mark, seconds)(iter([0]), times)
    return batches


def test_a_task_executes_batches_until_its_epoch_is_over(control_server, start, times):
    role = TaskRole(control_server.url, [True, False, True, True], times)
    assert run([role], start, times) == 3
    assert len(role.waits) == 10
    assert max(role.waits) == 0.5


def test_a_task_waits_no_longer_than_its_epoch(control_server, start, times):
    role = TaskRole(control_server.url, [], times)
    run([role], start, times, seconds=1.25)
    assert role.waits == [0.5, 0.25]


def test_a_task_ends_after_its_batch_when_another_start_follows(control_server, control, start, times):
    def follows() -> bool:
        TaskStart(control, "app", "main").renew()
        return True

    role = TaskRole(control_server.url, [True, follows, True], times)
    assert run([role], start, times) == 2


def test_a_task_ends_when_its_start_is_renewed_with_other_content(control_server, start, times):
    role = TaskRole(control_server.url, [True, lambda: start.renew() or True, True], times)
    assert run([role], start, times) == 2


def test_a_task_that_is_overtaken_continues_after_the_other_batch(control_server, start, times):
    def overtaken() -> bool:
        raise AttemptOvertaken("another attempt has started")

    role = TaskRole(control_server.url, [True, overtaken, True], times)
    assert run([role], start, times) == 2
    assert role.built == 2 and role.ended == 2


def test_a_task_that_fails_ends_what_runs_in_the_background(control_server, start, times):
    def fail() -> bool:
        raise KeyError("a result is missing")

    role = TaskRole(control_server.url, [True, fail], times)
    with pytest.raises(KeyError):
        run([role], start, times)
    assert role.ended == 1


def test_roles_that_share_a_slot_take_turns_and_wait_for_a_short_time(control_server, start, times):
    one, other = TaskRole(control_server.url, [True, True], times), TaskRole(control_server.url, [False, True], times)
    assert run([one, other], start, times, seconds=4.0) == 3
    assert max(one.waits + other.waits) == 0.02
    assert one.waits[1] == 0.001, "the other role may have a batch at once"


def test_an_idle_combiner_publishes_what_an_earlier_process_left_and_queues_did_not_accept(
    control_server, control, monkeypatch
):
    pattern = "{name: ab, pattern: SEQ(A; B), key: source, within_seconds: 9}"
    declaration = f"name: app\nqueues: [telemetry]\nsink: alert\npatterns: [{pattern}]"
    application = parse_application_text(declaration, Path())
    rows = from_events([{"id": "c1", "type": "ab"}], 0)
    accepts, ids = [False, True], []

    def publish_batches(queue, batches):
        if not accepts.pop(0):
            raise NoContainerAvailable("every node is down")
        ids.extend(each for batch in batches for each in batch.column("id").to_pylist())

    monkeypatch.setattr(long_tasks, "_open_client", lambda *_: SimpleNamespace(publish_batches=publish_batches))
    StateStore(control, "app").write(0, WrittenState({"ab/1": (b"", None)}, outbox={"alert|0/run/ab/1/0/1": rows}))
    times = Times()
    role = CombinerRole(control_server.url, application, "run", ())
    executor = long_tasks._CombinerExecutor(role, control, times)
    for _ in range(3):
        assert not executor.execute(0.0)
        assert not ids, "a queue is tried again after a second"
    times.now += 1.0
    executor.execute(0.0)
    assert ids == ["c1"]


def test_an_epoch_without_a_task_does_nothing(times):
    epochs = Epochs()
    EpochWork(epochs, lambda: None, {}, times)(None, 0)
    assert epochs.count == 0


TABLE = """
name: app
queues: [telemetry]
sink: alert
rules:
  - {name: host, enrich: {table: hosts.csv, using: source, by: name, columns: [site]}}
patterns:
  - {name: p, pattern: SEQ(A), key: site, within_seconds: 9}
"""


def test_the_next_epoch_has_the_reference_table_that_was_read_last(tmp_path):
    file = tmp_path / "hosts.csv"
    file.write_text("name,site\nx,north\n")
    application = parse_application_text(TABLE, tmp_path)
    rules = ReplicaRules("redis://127.0.0.1", application, "iap1", 1.0)
    role = ReplicaRole("redis://127.0.0.1", application, "iap1", rules.build_local_runner())
    assert renew_runners([role], {"iap1": rules}) == (role,)
    file.write_text("name,site\nx,a place in the south\n")
    (table,) = application.tables
    table.refresh()
    (renewed,) = renew_runners([role], {"iap1": rules})
    rules = pickle.loads(renewed.runner.task.rules)
    assert rules[0].table.current.equal == {"x": ("a place in the south",)}


def test_epochs_follow_one_another_until_their_start_ends(control_server, control, start):
    reader = EpochReader({"control": control_server.url, "application": "app", "process": "main", "start": start.name})
    assert reader.latestOffset({"batch": 4}, None) == {"batch": 5}
    start.renew()
    assert reader.latestOffset({"batch": 5}, None) == {"batch": 6}
    start.end()
    done = {"batch": 6}
    assert reader.latestOffset(done, None) is done
    TaskStart(control, "app", "main").renew()
    assert reader.latestOffset(done, None) is done, "the epochs of the next start have a query of their own"


def test_a_start_that_another_has_followed_ends_nothing(control, start):
    following = TaskStart(control, "app", "main")
    following.renew()
    start.end()
    assert control.hget("weir:pipeline:tasks:app", "main") == following.mark


class Epochs:
    """Runs tasks, and fails as often as it is told to."""

    def __init__(self, *errors):
        self.errors, self.count = list(errors), 0

    def __call__(self, task):
        self.count += 1
        if self.errors and (error := self.errors.pop(0)):
            raise error


def test_after_a_killed_worker_the_next_epoch_starts_and_a_second_failure_ends_the_query(times):
    failed = PySparkException("Python worker exited unexpectedly")
    work = EpochWork(Epochs(failed, None, failed, failed), object, {}, times)
    work(None, 0)
    work(None, 1)
    times.now += 10.0
    work(None, 2)
    times.now += 9.0
    with pytest.raises(BatchFailed, match="exited unexpectedly"):
        work(None, 3)
    assert isinstance(work.failure, PySparkException)


def test_an_error_in_the_construction_of_a_task_ends_the_query_at_once(times):
    def build():
        raise ValueError("is wrong")

    with pytest.raises(BatchFailed, match="is wrong"):
        EpochWork(Epochs(), build, {}, times)(None, 0)


def test_the_loss_of_the_java_process_ends_the_query(times):
    work = EpochWork(Epochs(Py4JError("gone"), Py4JError("gone")), object, {}, times)
    work(None, 0)
    with pytest.raises(BatchFailed, match="gone"):
        work(None, 1)
