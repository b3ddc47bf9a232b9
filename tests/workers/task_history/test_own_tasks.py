"""Weir's own work in the task history: dead letters of its queues."""

import logging

import pytest
from django.db import DatabaseError

from tests.workers.samples import delivery_of
from tests.workers.task_history.samples import NOON
from workers.task_history import own_tasks, search
from workers.task_history.models import FailureGroup
from workers.task_history.query import TaskQuery
from workers.task_history.record import FAILED

pytestmark = pytest.mark.django_db


def record_letters(error="ValueError('value 4711')"):
    batch = delivery_of(3, "ab" * 16).batch
    own_tasks.record_dead_letters("main", "alert", [(batch, error)], NOON)
    return batch


def test_dead_letters_are_failed_tasks_of_their_queue():
    batch = record_letters()
    tasks = list(search.iterate(["main"], TaskQuery(queue="alert")))
    assert {task.id for task in tasks} == {f"alert/{event}" for event in batch.column("id").to_pylist()}
    assert {(task.state, task.name, task.error) for task in tasks} == {
        (FAILED, "handle alert", "ValueError('value 4711')")
    }
    assert FailureGroup.objects.get().count == 3


def test_dead_letters_that_are_reported_twice_are_stored_once():
    record_letters()
    record_letters()
    assert FailureGroup.objects.get().count == 3


def test_a_database_that_is_away_stops_no_worker(monkeypatch, caplog):
    def fail(*_):
        raise DatabaseError("the server is away")

    monkeypatch.setattr(own_tasks, "record_finished", fail)
    with caplog.at_level(logging.WARNING):
        record_letters()
    assert "the server is away" in caplog.text
