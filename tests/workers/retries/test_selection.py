"""The dry run of a retry plan."""

import pytest

from common.errors import BadInput
from tests.workers.retries.samples import PLANT, build_failed, store
from workers.retries import selection
from workers.retries.selection import select
from workers.task_history.query import TaskQuery
from workers.task_history.record import REVOKED, STARTED, SUCCEEDED

pytestmark = pytest.mark.django_db
ALL = TaskQuery()


def test_failed_tasks_are_selected_oldest_first_with_all_that_their_messages_need():
    store(build_failed(2, root="task-0"), build_failed(1, kwargs="{'to': ['a']}"))
    found = select(PLANT, ALL)
    assert [item.id for item in found.items] == ["task-1", "task-2"]
    assert found.items[0].kwargs == "{'to': ['a']}" and found.items[1].root == "task-0"
    assert found.queues == {"pay": 2} and found.found == 2 and found.is_complete


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"are_exact": False}, selection.INEXACT),
        ({"args": "(<object>,)"}, selection.INEXACT),
        ({"args": "({1, 2},)"}, selection.INEXACT),
        ({"args": "(b'x',)"}, selection.INEXACT),
        ({"args": "({1: 2},)"}, selection.INEXACT),
        ({"name": ""}, selection.INEXACT),
        ({"queue": ""}, selection.NO_QUEUE),
        ({"state": SUCCEEDED}, selection.SUCCEEDED_ITSELF),
        ({"state": REVOKED}, selection.WAS_REVOKED),
        ({"state": STARTED}, selection.UNFINISHED),
    ],
)
def test_tasks_that_cannot_be_retried_are_counted_by_reason(change, reason):
    record = build_failed(1)
    for name, value in change.items():
        setattr(record, name, value)
    store(record, build_failed(2))
    found = select(PLANT, ALL)
    assert found.skipped == {reason: 1} and [item.id for item in found.items] == ["task-2"]
    assert set(selection.REASONS) >= set(found.skipped)


def test_a_task_whose_equal_succeeded_later_is_left_out_unless_it_is_wanted():
    later = build_failed(50, args="(1,)")
    later.state = SUCCEEDED
    earlier = build_failed(0, args="(2,)")
    earlier.state = SUCCEEDED
    store(build_failed(1), build_failed(2), later, earlier)
    found = select(PLANT, ALL)
    assert [item.id for item in found.items] == ["task-2"]
    assert found.skipped[selection.SUCCEEDED_LATER] == 1
    assert len(select(PLANT, ALL, with_succeeded=True).items) == 2


def test_a_destination_of_all_messages_replaces_the_queues_of_the_tasks():
    store(build_failed(1, queue=""), build_failed(2))
    assert select(PLANT, ALL, destination="slow").queues == {"slow": 2}


def test_tasks_of_another_plan_are_left_to_that_plan():
    store(build_failed(1), build_failed(2))
    assert select(PLANT, ALL, planned={"task-1"}).skipped == {selection.IN_PLAN: 1}


def test_a_search_with_more_tasks_than_a_plan_may_have_is_reported():
    store(*(build_failed(number) for number in range(5)))
    found = select(PLANT, ALL, most=3)
    assert len(found.items) == 3 and not found.is_complete


def test_a_search_without_tasks_is_refused():
    with pytest.raises(BadInput, match="matches no task"):
        select(PLANT, ALL)
