"""Workers that the plant starts: counted, sent by their queue's priority, and refused by name."""

import pytest

from common.errors import BadInput
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plant_topology")]


@pytest.fixture
def plant(control):
    return LocalPlant(control)


@pytest.mark.usefixtures("broker")
def test_workers_are_counted_and_sent_with_the_queues_priority(control, plant):
    assert plant.start_workers("alert", "n1", 2, ["a", "b"]) == ["a", "b"]
    assert control.zcard("weir:submitted:alert:n1") == 2
    sent = [name for name in control.keys("weir:celery:jobs*") if control.type(name) == b"list"]
    assert [control.llen(name) for name in sent] == [2]
    assert sent[0].endswith(b":5")


@pytest.mark.usefixtures("broker")
def test_workers_that_go_ahead_are_sent_before_those_of_every_queue(control, plant):
    plant.start_workers("alert", "n1", 3, ["a", "b", "c"], ahead=1)
    lengths = {name: control.llen(name) for name in (b"weir:celery:jobs", b"weir:celery:jobs:5")}
    assert lengths == {b"weir:celery:jobs": 1, b"weir:celery:jobs:5": 2}


@pytest.mark.parametrize(
    ("queue", "node", "count", "field"),
    [
        ("no", "n1", 1, "queue"),
        ("alert", "n9", 1, "node"),
        ("telemetry", "n1", 1, "queue"),
        ("alert", "n1", 2, "count"),
    ],
)
def test_workers_for_what_is_not_there_are_refused(control, plant, queue, node, count, field):
    with pytest.raises(BadInput) as caught:
        plant.start_workers(queue, node, count, ["a"])
    assert caught.value.field == field
    assert not control.keys("weir:submitted:*")
