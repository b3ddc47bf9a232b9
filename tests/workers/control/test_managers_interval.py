"""Managers of a plant that decided each other second decide each second after an upgrade."""

from importlib import import_module

import pytest
from django.apps import apps

from workers.models import Loop

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("before", "after"), [(2.0, 1.0), (5.0, 5.0)])
def test_managers_whose_interval_nobody_has_changed_decide_each_second(before, after):
    for law in ("worker_rate", "flow"):
        parameters = {"events_per_worker": 300, "interval_seconds": before}
        Loop.objects.create(name=law, law=law, interval_seconds=before, parameters=parameters)
    import_module("workers.migrations.0028_managers_each_second").each_second(apps, None)
    loop, other = Loop.objects.get(law="worker_rate"), Loop.objects.get(law="flow")
    assert loop.interval_seconds == loop.parameters["interval_seconds"] == after
    assert other.interval_seconds == other.parameters["interval_seconds"] == before
    assert loop.parameters["events_per_worker"] == 300
