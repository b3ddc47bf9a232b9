"""One owner of tasks: while an outside controller has the plant, loops hold, and the ledger names it."""

from datetime import UTC, datetime

import pytest

from tests.console.conftest import sample_snapshot
from tests.workers.snapshots import snapshot_of
from workers.control import engine
from workers.models import Loop

pytestmark = pytest.mark.django_db
NOW = 1_790_000_001.0
HELD = {"holder": "token:weir-2", "until": NOW + 60}


class Seen:
    def __init__(self, **more):
        self.snapshot, self.set = {**sample_snapshot(), "at": NOW, **more}, []

    def observe(self):
        return snapshot_of(self.snapshot)

    def set_parallelism(self, tasks):
        self.set.append(tasks)


@pytest.fixture
def loop():
    return Loop.objects.create(
        name="parallelism_queueing/performance",
        law="parallelism_queueing",
        target={"application": "performance"},
        mode="auto",
        parameters={"bound_seconds": 60.0, "minimum": 3, "maximum": 8, "only_changes": True},
    )


def tick(loop, plant, control):
    return engine.tick(loop, plant, datetime.fromtimestamp(NOW, UTC), control)


def test_a_loop_sets_tasks_while_nobody_else_does(loop, control):
    plant = Seen()
    entry = tick(loop, plant, control)
    assert plant.set == [{"performance/hosts": 3, "performance/sites": 3}]
    assert entry.applied and entry.observation["paths"] == [["performance/hosts", "performance/sites"]]


def test_a_loop_holds_while_another_steers_and_the_ledger_says_who(loop, control):
    plant = Seen(steered_by=HELD)
    entry = tick(loop, plant, control)
    assert plant.set == [] and entry.action is None
    assert "token:weir-2 controls the tasks until" in entry.reason


def test_a_loop_decides_on_what_is_left_when_an_operator_has_vanished(loop, control):
    plant = Seen()
    application = plant.snapshot["pipeline"]["applications"]["performance"]
    del application["operators"]["sites"]
    application["edges"] = []
    tick(loop, plant, control)
    assert plant.set == [{"performance/hosts": 3}]
