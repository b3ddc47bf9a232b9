"""What each task of a replica's batch is given to work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.segments.segment import WaitingBlock
from workers.pipeline.events.containers import Range
from workers.pipeline.patterns.shedding import Shedder
from workers.pipeline.tiers.event_source import EVENTS_PER_TASK, BatchAssignment, on_tasks

BLOCK = 512
BLOCKS = st.lists(st.integers(1, 300), min_size=1, max_size=12)


class Filled:
    """Stands where the nodes do: each container holds blocks of 512 events, numbered from 1."""

    def __init__(self, blocks: dict[str, int]) -> None:
        self._blocks = blocks

    def get_segment(self, queue: str, url: str) -> "Filled":
        return Filled({"": self._blocks[url]})

    def scan(self, after: str, limit_events: int) -> list[WaitingBlock]:
        first = int(after.partition("-")[0]) + 1
        return [WaitingBlock(f"{number}-0", BLOCK, 0) for number in range(first, self._blocks[""] + 1)]


def filled(blocks: list[int]) -> tuple[Filled, list[tuple[Range, int]]]:
    ranges = [(Range("q", f"n{n}", f"n{n}", "0-0", f"{count}-0"), count * BLOCK) for n, count in enumerate(blocks)]
    return Filled({f"n{n}": count for n, count in enumerate(blocks)}), ranges


def numbers(part: Range) -> set[tuple[str, int]]:
    after, through = (int(entry.partition("-")[0]) for entry in (part.after, part.through))
    return {(part.node, number) for number in range(after + 1, through + 1)}


@given(BLOCKS, st.integers(1, 8))
def test_every_block_is_worked_by_one_task_and_no_task_has_much_more_than_another(blocks, most):
    tasks = on_tasks(*filled(blocks), most)
    worked = [number for task in tasks for part in task for number in numbers(part)]
    assert len(worked) == len(set(worked)) == sum(blocks)
    loads = [sum(len(numbers(part)) * BLOCK for part in task) for task in tasks]
    assert max(loads) - min(loads) <= sum(loads) / (2 * len(tasks)) + BLOCK
    assert len(tasks) == min(most, 1 + sum(blocks) * BLOCK // EVENTS_PER_TASK)


def test_a_batch_assignment_is_the_same_when_it_has_travelled():
    tasks = on_tasks(*filled([200, 200]), 2)
    portion = BatchAssignment(
        7, "3f", tasks, 60_000_000, True, Shedder({"abc": {"A": 0.5}}, 0.01, "key"), {"slow": 2.5}
    )
    assert BatchAssignment.from_text(portion.to_text()) == portion


def test_outside_of_a_job_there_is_no_batch_assignment():
    with pytest.raises(RuntimeError, match="no batch assignment is attached"):
        BatchAssignment.get_current()
