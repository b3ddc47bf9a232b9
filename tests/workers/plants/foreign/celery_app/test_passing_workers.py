"""Workers whose names come and go with their hosts: what is noted of each has an end."""

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign.celery_app import remote_control
from workers.plants.foreign.celery_app.asking import event_requests
from workers.plants.foreign.celery_app.remote_control import GEVENT

STAYS = "celery@stays"


def hosts(far, plant, count, seconds=20.0):
    """One after the other, each with a worker of its own name, beside one that stays."""
    for number in range(count):
        names = [STAYS, f"celery@host-{number}"]
        far.processes, far.wanted = dict.fromkeys(names, 2), dict.fromkeys(names, 2)
        far.busy = dict.fromkeys(names, 0)
        plant.topology()
        far.now += seconds


def test_of_workers_that_were_asked_for_events_only_the_last_ones_are_noted(monkeypatch):
    """The note is read whole whenever a worker comes."""
    monkeypatch.setattr(event_requests, "MOST_NOTED", 20)
    far = FakeCelery({STAYS: 2})
    plant = far.plant()
    hosts(far, plant, 60)
    noted = far.noted_workers.all()
    assert len(noted) < 30  # and those that live
    assert {STAYS, "celery@host-59", "celery@host-45"} <= set(noted)
    plant.close()
    assert STAYS in far.events_off


def test_versions_of_gevent_workers_that_are_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(remote_control, "MOST_VERSIONS", 20)
    far = FakeCelery({STAYS: 2})
    far.stats = {"pool": {"implementation": f"{GEVENT}:TaskPool", "max-concurrency": 2}}
    plant = far.plant()
    hosts(far, plant, 60)
    assert len(plant.control._versions) <= 21
    assert far.asked.count("report") == 60  # each once in its life
