"""Queues without consumers: reported once that is certain, and only as long as it is true."""

import pytest

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.workers import UnservedQueues

ONE = "celery@one"


@pytest.fixture
def far():
    return FakeCelery({ONE: 2}, ["mail"])


def unserved(plant):
    plant.get_topology()
    return {name: (each.waiting, each.seconds) for name, each in plant.get_details().unserved_queues.items()}


def test_a_queue_whose_worker_has_ended_is_unserved_for_as_long_as_tasks_wait(far):
    plant, processes = far.plant(), far.processes
    far.queues["mail"] = 3
    assert unserved(plant) == {}
    far.processes = {}
    far.now += 20.0  # until then the worker may be late
    assert unserved(plant) == {"mail": (3, 0.0)}
    far.now += 40.0
    far.queues["mail"] = 5
    assert unserved(plant) == {"mail": (5, 40.0)}
    far.processes = processes
    assert unserved(plant) == {}


def test_a_queue_that_becomes_shorter_has_a_worker_that_is_not_seen(far):
    plant = far.plant(queues="mail")
    far.processes, far.queues["mail"] = {}, 5
    assert unserved(plant) == {"mail": (5, 0.0)}
    far.now, far.queues["mail"] = far.now + 30.0, 4
    assert unserved(plant) == {}
    far.now += 10.0
    assert unserved(plant) == {"mail": (4, 0.0)}


def test_while_a_worker_beats_and_does_not_answer_nothing_is_said_of_queues(far):
    plant = far.plant(queues="mail")
    far.processes, far.queues["mail"] = {}, 5
    far.listener.events.apply({"type": "worker-heartbeat", "hostname": ONE, "pid": 7}, far.now)
    assert unserved(plant) == {}
    far.now += 60.0
    assert unserved(plant) == {"mail": (5, 0.0)}


@pytest.mark.parametrize(
    ("consumers", "served", "paused", "found"),
    [
        (0, {"mail"}, (), True),  # a worker that forgot its queue still reports it
        (2, (), (), False),
        (0, (), {"mail"}, False),
        (None, (), (), True),
        (None, {"mail"}, (), False),
        (None, (), {"mail"}, False),
    ],
)
def test_a_brokers_own_count_of_consumers_is_better_than_what_workers_say(consumers, served, paused, found):
    lengths = {"mail": QueueLength(3, consumers=consumers)}
    assert bool(UnservedQueues().observe(0.0, lengths, served, paused, True)) == found


def test_a_queue_that_its_broker_does_not_find_for_an_instant_is_unserved_for_as_long_as_before(far):
    plant = far.plant(queues="mail")
    far.processes, far.queues["mail"] = {}, 5
    assert unserved(plant) == {"mail": (5, 0.0)}
    del far.queues["mail"]
    far.now += 20.0
    assert unserved(plant) == {}
    far.queues["mail"] = 6
    far.now += 20.0
    assert unserved(plant) == {"mail": (6, 40.0)}


def test_workers_that_are_missed_are_named_with_how_long_and_late_ones_are_not(far):
    plant = far.plant()
    plant.get_topology()
    far.processes = {}
    far.now += 5.0
    plant.get_topology()
    assert plant.get_details().missed_workers == {}
    far.now += 15.0
    plant.get_topology()
    assert plant.get_details().missed_workers == {ONE: 20.0}
