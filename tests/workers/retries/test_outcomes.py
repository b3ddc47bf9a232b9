"""What became of sent tasks, also if the history has missed some of their events."""

import pytest

from tests.workers.retries.samples import PLANT, build_failed, store
from workers.retries import outcomes
from workers.task_history.blocks import seal_settled
from workers.task_history.models import RecentTask, TaskGap
from workers.task_history.record import STARTED, SUCCEEDED

pytestmark = pytest.mark.django_db
NOW = 1_000_000.0
IDS = {position: f"task-{position}" for position in range(100)}


def store_sent(position, state=SUCCEEDED, at=NOW - 1):
    record = build_failed(position, received=at - 0.5, ended=at, error="")
    record.state, record.at = state, at
    store(record)
    RecentTask.objects.filter(task_id=record.id).update(finished=state == SUCCEEDED)


def hear(open_tasks, waiting=0):
    return outcomes.read_outcomes(PLANT, open_tasks, IDS, NOW, waiting)


def test_ended_tasks_are_heard_with_their_duration():
    store_sent(1)
    heard = hear({1: NOW - 5, 2: NOW - 5})
    assert heard.ended[1].duration_seconds == 0.5 and heard.unheard == []


def test_a_task_that_waits_or_runs_is_not_given_up():
    store_sent(1, STARTED)
    assert hear({1: NOW - 500, 2: NOW - 500, 3: NOW - 5}, waiting=1).unheard == []


def test_a_task_of_which_nothing_was_heard_is_given_up_once_it_has_left_its_queue():
    assert hear({1: NOW - 20}).unheard == [1]
    store_sent(2)
    assert hear({1: NOW - 20, 2: NOW - 20, 3: NOW - 20}, waiting=9).unheard == [1]


def test_a_task_whose_end_may_be_in_a_gap_is_given_up():
    store_sent(1, STARTED, at=NOW - 60)
    TaskGap.objects.create(plant=PLANT, since=NOW - 50, until=NOW - 40, reason="Weir was not listening")
    assert hear({1: NOW - 60}).unheard == [1]


def test_a_task_that_has_moved_into_a_block_is_found():
    store_sent(1, at=NOW - 90_000)
    seal_settled(PLANT, NOW, partly=True)
    assert not RecentTask.objects.exists()
    heard = hear({1: NOW - 90_010})
    assert list(heard.ended) == [1] and heard.unheard == []
