"""Dead letters of the pipeline in the task history: read from the nodes, each once."""

import time

import pyarrow as pa
import pytest

from common.errors import NodeUnavailable
from queues import keys
from queues.events.block import Block
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from tests.workers.samples import batch_of
from workers.pipeline.events import faults
from workers.task_history import pipeline_letters, search
from workers.task_history.models import FailureGroup
from workers.task_history.query import TaskQuery

pytestmark = pytest.mark.django_db
CAUSE = "The time is 3 days in the future."


@pytest.fixture
def letters(nodes):
    return DeadLetters(Segment(nodes["n1"].client(), "performance"))


@pytest.fixture
def record(control, letters):
    def call(away=(), open_letters=None):
        read, unavailable = open_letters or (lambda queue, node: letters), set(away)
        containers = [("performance", "n1")]
        pipeline_letters.record_new_letters("main", containers, control, read, unavailable, time.time())
        return unavailable

    return call


def add(letters, number, worker=faults.WORKER):
    block = Block(f"{number:032x}", batch_of(2, id=pa.array([None] * 2, pa.string())))
    letters.add(f"{number}-1", worker, block.block_id, [(block.build_explicit_batch(), CAUSE)])


def stored():
    return list(search.iterate(["main"], TaskQuery(queue="performance")))


def test_letters_of_the_pipeline_are_failed_tasks_of_their_queue(letters, record):
    add(letters, 1)
    record()
    assert {(task.state, task.name, task.error) for task in stored()} == {("failed", "read performance", CAUSE)}
    assert len(stored()) == 2
    assert pipeline_letters.WORKER == faults.WORKER


def test_each_letter_is_stored_once_and_later_ones_follow(letters, record):
    for number in range(1, 51):  # more than one request
        add(letters, number)
    record()
    record()
    assert FailureGroup.objects.get().count == 100
    add(letters, 51)
    record()
    assert FailureGroup.objects.get().count == 102


def test_letters_of_workers_and_moved_ones_are_stored_already(letters, record):
    add(letters, 1, worker="w1")
    [letter] = letters.depart("n2", ["n2"], 1, 10**6)
    moved = [b"since", b"1", *letter.content[2:]]
    moved[moved.index(b"worker") + 1] = faults.WORKER.encode()
    letters.receive("n2", letter._replace(dead_id="1-1", content=moved))
    assert len(letters.read()) == 2
    record()
    assert stored() == []


def test_a_letter_that_is_no_block_is_stored_without_its_content(letters, record):
    add(letters, 1)
    node = letters._segment.node
    fields = node.xrange(keys.DEAD.build("performance"))[0][1]
    node.delete(keys.DEAD.build("performance"))
    node.xadd(keys.DEAD.build("performance"), {**fields, b"e": b"damaged"})
    record()
    [task] = stored()
    assert (task.error, task.kwargs) == (CAUSE, "")


def test_an_unavailable_node_is_left_out_and_its_letters_follow(letters, record):
    def fail(queue, node):
        raise NodeUnavailable("n1 is away")

    add(letters, 1)
    assert record(open_letters=fail) == {"n1"}
    record(away=["n1"])
    assert stored() == []
    record()
    assert len(stored()) == 2
