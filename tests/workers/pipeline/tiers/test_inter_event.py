"""How many tasks an inter-event batch is given: as many as save time."""

from itertools import count
from types import SimpleNamespace

import pytest

from workers.pipeline.declaration.controls import Controls
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.event_source import EVENTS_PER_TASK
from workers.pipeline.tiers.finished_batch import OperatorCount
from workers.pipeline.tiers.inter_event import TASK_SECONDS, InterEventWork
from workers.pipeline.tiers.planned_batches import PlannedBatch, PlannedBatches

NUMBERS = count()
OPERATORS = (SimpleNamespace(name="hosts"), SimpleNamespace(name="sites"))


@pytest.fixture
def work(control):
    runner = SimpleNamespace(cores=8, task_seconds=TASK_SECONDS)
    return InterEventWork(runner, "", SimpleNamespace(name="performance"), "run", control, None, None)


def count_tasks(work, rows, cores=8, **tasks):
    """Return the number of tasks of a new batch."""
    work._runner.cores = cores
    planned = PlannedBatch(next(NUMBERS), CombinedOffset(controls=Controls(parallelism=1, tasks=tasks)))
    return len(work._list_tasks(planned, 0, OPERATORS, rows))


def learn(work, rows, **seconds):
    work._learn_row_seconds([OperatorCount(name, seconds=took) for name, took in seconds.items()], rows)


def test_a_small_batch_of_slow_events_is_distributed_and_one_of_quick_events_is_not(work):
    assert count_tasks(work, 500, hosts=2) == 1  # nothing was measured yet
    learn(work, 500, hosts=0.5, sites=0.001)  # 1 ms for each row at hosts
    assert count_tasks(work, 500, hosts=2) == 3
    assert count_tasks(work, 60, hosts=2) == 1  # it would save 30 ms, and two further tasks take 40
    assert count_tasks(work, 500, cores=1, hosts=2) == 1
    for _ in range(30):
        learn(work, 500, hosts=0.001, sites=0.001)
    assert count_tasks(work, 500, hosts=2) == 1
    assert count_tasks(work, EVENTS_PER_TASK, hosts=2) == 3


def test_operators_of_a_level_also_run_at_the_same_time_where_each_has_one_task(work):
    learn(work, 100, hosts=2.1 * TASK_SECONDS, sites=2.1 * TASK_SECONDS)
    assert count_tasks(work, 100) == 2
    assert count_tasks(work, 40) == 1


def test_an_empty_batch_needs_no_task_and_changes_no_measured_time(work):
    learn(work, 100, hosts=1.0)
    learn(work, 0, hosts=9.0)
    assert count_tasks(work, 0, hosts=4) == 0
    assert count_tasks(work, 100, hosts=4) == 5


def test_all_attempts_at_a_batch_divide_its_key_groups_the_same_way(control):
    """A task that an earlier attempt wrote is skipped. With different tasks, unwritten groups would be skipped."""
    batches = PlannedBatches(control, "app")
    assert batches.decide_split(7, 0, True)
    assert batches.decide_split(7, 0, False), "the first attempt has decided"
    assert not batches.decide_split(7, 1, False)
    batches.finish(PlannedBatch(7, CombinedOffset()), levels=2)
    assert not [name for name in control.hkeys("weir:pipeline:planned:app") if "split" in str(name)]
