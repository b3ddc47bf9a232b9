"""The combiner and its helpers share the tasks of a batch; each task is executed, whoever stops."""

import threading
from dataclasses import dataclass, field

import pytest

from tests.waiting import MAX_SECONDS, until
from workers.pipeline.tiers.finished_batch import OperatorCount
from workers.pipeline.tiers.helped_tasks import HelpedTasks, HelperAnswer, HelperOrder, TaskLists
from workers.pipeline.tiers.operators import Unit

TASKS = [[Unit("hosts", (number,), number + 1)] for number in range(4)]


@dataclass
class Work:
    """Notes what it executes. before: called before each task."""

    batch: int = 7
    level: int = 0
    done: list = field(default_factory=list)
    before: object = None

    def __call__(self, units):
        if self.before is not None:
            self.before()
        self.done.append(tuple(units))
        return [OperatorCount(unit.operator, unit.task, events=10) for unit in units]


@pytest.fixture
def lists(control):
    return TaskLists(control, "app")


def list_numbers(counts) -> list[int]:
    return sorted(count.task for count in counts)


def test_without_helpers_the_combiner_executes_all_tasks(lists):
    work = Work()
    assert list_numbers(HelpedTasks(lists, 0).run(work, TASKS)) == [1, 2, 3, 4]
    assert work.done == [tuple(units) for units in TASKS]


def test_the_combiner_takes_back_what_no_helper_has_taken(lists):
    work = Work()
    assert list_numbers(HelpedTasks(lists, 1).run(work, TASKS)) == [1, 2, 3, 4]
    assert len(work.done) == 4
    assert lists.take(0.01) is None, "nothing is left in the list"


def test_a_helper_executes_a_part_and_its_counts_are_those_of_the_batch(lists, control):
    def help_once() -> None:
        order = TaskLists(control, "app").take(MAX_SECONDS)
        counts = Work()(order.units)
        TaskLists(control, "app").answer(HelperAnswer(order.attempt, order.number, tuple(counts)))

    helped = HelpedTasks(lists, 1)
    helper = threading.Thread(target=help_once)
    helper.start()
    work = Work(before=lambda: until(lambda: not helper.is_alive()))
    assert list_numbers(helped.run(work, TASKS)) == [1, 2, 3, 4]
    assert len(work.done) == 3


def test_the_tasks_of_a_helper_that_stops_are_executed_by_the_combiner(lists, control):
    taken = []
    work = Work(before=lambda: taken or taken.append(TaskLists(control, "app").take(MAX_SECONDS)))
    counts = HelpedTasks(lists, 1, reply_timeout_seconds=0.05).run(work, TASKS)
    assert list_numbers(counts) == [1, 2, 3, 4]
    assert taken[0].units in work.done


def test_what_earlier_attempts_have_left_counts_for_nothing(lists):
    helped = HelpedTasks(lists, 1, reply_timeout_seconds=0.05)
    lists.order([HelperOrder("earlier", 1, 6, 0, tuple(TASKS[3]))])
    lists.answer(HelperAnswer("earlier", 1, (OperatorCount("hosts", 99),)))
    work = Work()
    assert list_numbers(helped.run(work, TASKS)) == [1, 2, 3, 4]
    assert len(work.done) == 4


def test_a_new_combiner_starts_with_empty_lists(lists):
    lists.order([HelperOrder("earlier", 1, 6, 0, tuple(TASKS[3]))])
    HelpedTasks(lists, 1)
    assert lists.take(0.01) is None


def test_a_batch_of_one_task_needs_no_helper(lists, control):
    HelpedTasks(lists, 1).run(Work(), TASKS[:1])
    assert control.keys("weir:pipeline:task*") == []
