"""A loop of workers on a plant in memory, and a clock that stands until it is moved."""

from datetime import UTC, datetime, timedelta

import pytest

from workers.models import Loop
from workers.plants.memory import MemoryPlant

START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now.timestamp()

    def pass_seconds(self, seconds):
        self.now += timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def plant(clock):
    return MemoryPlant(clock, [("alert", "n1"), ("alert", "n2")])


@pytest.fixture
def loop():
    target = {"queue": "alert", "node": "n1"}
    parameters = {"method": "thesis", "events_per_worker": 100, "upper_limit": 500}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target, parameters=parameters)


@pytest.fixture
def owner(django_user_model):
    return django_user_model.objects.create(username="desk-2")
