"""What each task of a replica's batch is given to work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.pipeline.containers import Nodes, Range
from workers.pipeline.portion import EVENTS_PER_TASK, Portion, on_tasks
from workers.pipeline.shedder import Shedder

EVENTS = st.lists(st.integers(1, 200_000), min_size=1, max_size=30)


def ranges(events: list[int]) -> list[tuple[Range, int]]:
    """As many containers, each with so many events."""
    return [(Range("telemetry", f"n{place}", "", "0-0", "9-0"), count) for place, count in enumerate(events)]


@given(EVENTS, st.integers(1, 8))
def test_every_range_is_worked_by_one_task_and_none_has_much_more_than_another(events, most):
    given_ranges = ranges(events)
    most = min(most, len(events))
    tasks = on_tasks(Nodes(1.0), given_ranges, most)
    counts = {part.node: count for part, count in given_ranges}
    assert sorted(part.node for task in tasks for part in task) == sorted(counts)
    loads = [sum(counts[part.node] for part in task) for task in tasks]
    assert max(loads) - min(loads) <= max(events)
    assert len(tasks) <= min(most, 1 + sum(events) // EVENTS_PER_TASK)


def test_a_small_batch_is_worked_by_one_task():
    assert len(on_tasks(Nodes(1.0), ranges([10, 20, 30]), 8)) == 1


def test_a_portion_is_the_same_when_it_has_travelled():
    tasks = on_tasks(Nodes(1.0), ranges([100_000, 100_000]), 2)
    portion = Portion(7, tasks, 60_000_000, True, Shedder({"abc": {"A": 0.5}}, 0.01, "key"), {"slow": 2.5})
    assert Portion.from_text(portion.to_text()) == portion


def test_outside_of_a_job_there_is_no_portion():
    with pytest.raises(RuntimeError, match="no portion is attached"):
        Portion.of_this_job()
