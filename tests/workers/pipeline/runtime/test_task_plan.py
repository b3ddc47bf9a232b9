"""The roles of an application are distributed over the slots that the session has now."""

import threading
from dataclasses import dataclass, field

import pytest

from tests.waiting import MAX_SECONDS, until
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.runtime import long_tasks
from workers.pipeline.runtime.long_tasks import (
    ALTERNATING_SECONDS,
    EPOCH_SECONDS,
    CombinerRole,
    HelperRole,
    ReplicaRole,
    TaskStart,
)
from workers.pipeline.runtime.session import build_failure_detection_settings
from workers.pipeline.runtime.task_plan import TaskArranger, TaskPlan, TaskSlots, arrange_roles

URL = "redis://127.0.0.1"
APPLICATION = """
name: app
queues: [telemetry]
sink: alert
patterns:
  - {name: p, pattern: SEQ(A), key: source, within_seconds: 9}
"""


@pytest.fixture
def application(tmp_path):
    return parse_application_text(APPLICATION, tmp_path)


@pytest.fixture
def roles(application):
    replicas = [ReplicaRole(URL, application, name, None) for name in ("iap1", "iap2")]
    return [*replicas, CombinerRole(URL, application, "run", ("iap1", "iap2"))]


def name_tasks(tasks) -> list[str]:
    return ["+".join(role.name for role in own) for own in tasks]


@pytest.mark.parametrize(
    ("slots", "tasks"),
    [
        (0, ["iap1+iap2+combiner"]),
        (1, ["iap1+iap2+combiner"]),
        (2, ["iap1+combiner", "iap2+helper1"]),
        (3, ["iap1+helper1", "iap2+helper2", "combiner"]),
        (5, ["iap1", "iap2", "combiner", "helper1", "helper2"]),
    ],
)
def test_each_slot_has_a_part_of_all_roles_and_helps_the_combiner(roles, slots, tasks):
    assert name_tasks(arrange_roles(roles, 8, slots)) == tasks


@pytest.mark.parametrize(("slots", "count"), [(1, 0), (2, 1), (3, 2), (5, 2), (64, 8)])
def test_the_combiner_knows_its_helpers(roles, slots, count):
    tasks = arrange_roles(roles, 8, slots)
    (combiner,) = [role for own in tasks for role in own if isinstance(role, CombinerRole)]
    assert combiner.helpers == count == sum(isinstance(role, HelperRole) for own in tasks for role in own)


def test_replicas_without_a_combiner_have_no_helpers(roles):
    assert name_tasks(arrange_roles(roles[:2], 8, 4)) == ["iap1", "iap2"]


def test_applications_that_want_more_slots_than_there_are_get_equal_parts():
    slots = TaskSlots(lambda: 7)
    assert slots.allot("one", 9) == 7
    assert slots.allot("other", 2) == 2
    assert slots.allot("one", 9) == 5
    assert slots.allot("third", 9) == 3
    assert slots.allot("one", 9) == 2
    slots.give_back("third")
    assert slots.allot("one", 9) == 5


def test_no_slots_are_left_for_some_of_many_applications():
    slots = TaskSlots(lambda: 1)
    assert slots.allot("one", 3) == 1
    assert slots.allot("other", 3) == 1
    assert slots.allot("one", 3) == 0


@pytest.fixture
def plan(control):
    return TaskPlan(TaskStart(control, "app", "main"))


def test_a_query_takes_the_task_with_its_number_and_the_mark_of_the_newest_plan(plan, roles, control):
    plan.change((tuple(roles),))
    planned = plan.await_task(0)
    assert planned.roles == tuple(roles)
    assert planned.seconds == EPOCH_SECONDS
    plan.change(((roles[0],), tuple(roles[1:])))
    assert control.hget("weir:pipeline:tasks:app", "main") == plan.await_task(1).mark != planned.mark


def test_a_query_waits_for_a_task_until_the_plan_has_one_or_ends(plan, roles):
    taken = []
    waiting = threading.Thread(target=lambda: taken.append(plan.await_task(1, MAX_SECONDS)))
    waiting.start()
    assert plan.await_task(1, 0.0) is None
    plan.change(tuple((role,) for role in roles))
    waiting.join(MAX_SECONDS)
    assert taken[0].roles == (roles[1],)
    plan.end()
    assert plan.await_task(9, MAX_SECONDS) is None


@dataclass
class Spark:
    """A session with this number of slots. warming: blocks the preparation of workers. first: whether each is new."""

    slots: int
    warming: threading.Event = field(default_factory=threading.Event)
    prepared: list = field(default_factory=list)
    first: list = field(default_factory=lambda: [True])

    @property
    def defaultParallelism(self):
        return max(2, self.slots)

    def parallelize(self, items, tasks):
        self.prepared.append(tasks)
        return self

    def mapPartitions(self, task):
        return self

    def collect(self):
        self.warming.wait(MAX_SECONDS)
        return [self.first.pop()]


@pytest.fixture
def arranged(plan, roles):
    """Return a function that starts an arranger on a session."""

    def begin(spark: Spark, other_slots: int = 0) -> tuple[TaskArranger, list[int]]:
        queries: list[int] = []
        slots = TaskSlots(lambda: spark.slots)
        places = (spark, slots, "app", plan, roles, other_slots, queries.append)
        arranger = TaskArranger(*places, pause=lambda seconds: None)
        arranger.arrange()
        return arranger, queries

    return begin


def list_planned(plan: TaskPlan) -> list[str]:
    numbers = iter(range(64))
    return name_tasks(planned.roles for planned in iter(lambda: plan.await_task(next(numbers), 0.0), None))


def test_the_roles_of_a_lost_executor_move_to_the_others(arranged, plan):
    spark = Spark(2)
    arranger, queries = arranged(spark)
    assert list_planned(plan) == ["iap1+combiner", "iap2+helper1"]
    assert queries == [0, 1]
    spark.slots = 1
    arranger.arrange()
    assert list_planned(plan) == ["iap1+iap2+combiner"]
    assert queries == [0, 1], "the query without a task waits for one"


def test_roles_move_to_a_new_executor_when_its_workers_are_ready(arranged, plan):
    spark = Spark(1)
    arranger, queries = arranged(spark)
    spark.slots = 2
    for _ in range(3):
        arranger.arrange()
    assert list_planned(plan) == ["iap1+iap2+combiner"]
    assert spark.prepared == [1]
    spark.warming.set()
    until(lambda: arranger.arrange() or len(queries) == 2)
    assert list_planned(plan) == ["iap1+combiner", "iap2+helper1"]


def test_preparation_repeats_until_the_workers_of_the_new_executor_are_ready(arranged, plan):
    spark = Spark(1, first=[True, False, False])
    arranger, queries = arranged(spark)
    spark.slots = 2
    spark.warming.set()
    until(lambda: arranger.arrange() or len(queries) == 2)
    assert spark.prepared == [1, 1, 1]


def test_only_the_first_task_of_a_worker_finds_it_new(monkeypatch):
    monkeypatch.setattr(long_tasks, "_has_run", threading.Event())
    assert list(long_tasks.prepare_worker([0])) == [True]
    assert list(long_tasks.prepare_worker([0])) == [False]


def test_an_executor_that_is_lost_while_it_starts_changes_nothing(arranged, plan):
    spark = Spark(1)
    arranger, _ = arranged(spark)
    mark = plan.await_task(0).mark
    for slots in (2, 1):
        spark.slots = slots
        arranger.arrange()
    assert plan.await_task(0).mark == mark


def test_unchanged_slots_leave_the_running_tasks_alone(arranged, plan):
    arranger, _ = arranged(Spark(3))
    mark = plan.await_task(0).mark
    arranger.arrange()
    assert plan.await_task(0).mark == mark


def test_an_error_is_left_to_the_main_thread(arranged):
    arranger, _ = arranged(Spark(3))
    arranger.arrange = lambda: 1 / 0
    arranger.watch(threading.Event())
    assert isinstance(arranger.failure, ZeroDivisionError)


@pytest.mark.parametrize(("slots", "seconds"), [(0, ALTERNATING_SECONDS), (1, ALTERNATING_SECONDS), (2, EPOCH_SECONDS)])
def test_a_task_takes_turns_with_micro_batches_if_no_slot_is_left_for_them(arranged, plan, slots, seconds):
    arranged(Spark(slots), other_slots=1)
    assert plan.await_task(0).seconds == seconds


def test_a_lost_executor_of_a_cluster_is_noticed_within_seconds():
    assert build_failure_detection_settings("local[2]") == {}
    settings = build_failure_detection_settings("spark://master:7077")
    milliseconds = {name: int(value[:-2]) for name, value in settings.items() if value.endswith("ms")}
    timeout = milliseconds["spark.storage.blockManagerHeartbeatTimeoutMs"]
    assert timeout + milliseconds["spark.network.timeoutInterval"] < 3_500
    assert timeout >= 5 * milliseconds["spark.executor.heartbeatInterval"]
