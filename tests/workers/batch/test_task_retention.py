"""Retention of the task history: old days move to files, older ones go, kept ones stay."""

from datetime import timedelta

import pytest

from tests.workers.batch.test_retention import NOW, Keeper
from workers.models import Run
from workers.steering.kept import keep
from workers.task_history import archived, search
from workers.task_history.models import FailureGroup, RecentTask, TaskBlock, TaskGap
from workers.task_history.query import TaskQuery
from workers.task_history.record import FAILED, TaskRecord
from workers.task_history.recorder import record_finished

pytestmark = pytest.mark.django_db
AGES = (0, 1, 5, 40)  # days


@pytest.fixture
def keeper(control, tmp_path, settings):
    settings.WEIR_DATA = tmp_path
    return Keeper(control, tmp_path)


@pytest.fixture
def stored():
    for age in reversed(AGES):
        at = (NOW - timedelta(days=age, hours=1)).timestamp()
        row = {"state": FAILED, "at": at, "name": "shop.pay", "failure": f"{age:016d}", "error": "E()", "ended": at}
        record_finished("shop", [TaskRecord(id=f"task-of-{age}-days", **row)])
        TaskGap.objects.create(plant="shop", since=at, until=at + 1, reason="test")


def list_ages():
    return [int(task.id.split("-")[2]) for task in search.iterate(["shop"], TaskQuery())]


def test_old_days_move_to_files_and_older_ones_go(keeper, stored):
    assert keeper.run(task_database_days=2).state == "done"
    assert list_ages() == list(AGES)
    assert TaskBlock.objects.filter(plant="shop", file="").count() == 3  # they are moved into files the next day
    assert keeper.run(task_database_days=2, task_days=30).state == "done"
    assert list_ages() == [0, 1, 5]
    assert sorted(path.name for path in archived.get_root().glob("plant=shop/*")) == [
        f"day={(NOW - timedelta(days=5)).date()}"
    ]
    assert RecentTask.objects.filter(plant="shop").count() == 1
    assert (FailureGroup.objects.count(), TaskGap.objects.count()) == (3, 3)


def test_the_oldest_files_go_if_they_are_too_large(keeper, stored, monkeypatch):
    keeper.run(task_database_days=2)
    keeper.run(task_database_days=2)
    monkeypatch.setattr("workers.batch.jobs.retention.BYTES_PER_MEBIBYTE", 100)
    keeper.run(task_megabytes=1)
    assert list_ages() == [0, 1, 5]  # the newest archived day stays


def test_a_day_that_an_incident_keeps_stays(keeper, stored, user):
    day = NOW - timedelta(days=40)
    keeper.run(task_database_days=2)
    keep(day - timedelta(hours=3), day + timedelta(hours=3), "an incident", user)
    keeper.run(task_days=30)
    assert list_ages() == list(AGES)


def test_an_ended_run_is_a_task_of_weirs_own_plant(keeper):
    run = keeper.run(task_days=30)
    [task] = search.iterate(["main"], TaskQuery(name="retention"))
    assert (task.state, task.root) == ("succeeded", f"run-{run.pk}")
    assert Run.objects.get().state == "done"
