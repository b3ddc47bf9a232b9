"""Workers that no longer answer, and queues that no worker takes: reported once that is certain, while it is true."""

import pytest

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign.celery_app import workers
from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.workers import MISSED_SECONDS, UnservedQueues
from workers.plants.foreign.stored_notes import ExpiringNotes, StoredNotes

ONE, TWO = "celery@one", "celery@two"


@pytest.fixture
def far():
    return FakeCelery({ONE: 2})


@pytest.fixture(params=["own", "shared"])
def known(request):
    control = None if request.param == "own" else request.getfixturevalue("control")
    return StoredNotes("weir:test", MISSED_SECONDS, control)


def test_notes_are_kept_by_name_until_they_are_forgotten(known):
    known.put({})
    known.forget([])
    known.put({ONE: {"pid": 7, "at": 100.5}})
    known.put({TWO: {"pid": None, "at": 101.0}})
    assert known.load_all() == {ONE: {"pid": 7, "at": 100.5}, TWO: {"pid": None, "at": 101.0}}
    known.forget([ONE, "celery@three"])
    assert known.load_all() == {TWO: {"pid": None, "at": 101.0}}


@pytest.mark.parametrize("is_shared", [False, True])
def test_an_expiring_note_is_of_one_name_and_of_its_time(is_shared, request):
    control = request.getfixturevalue("control") if is_shared else None
    now = [0.0]
    orders = ExpiringNotes(lambda name: f"weir:test:{name}", control, lambda: now[0])
    assert orders.get(ONE) is None
    orders.put(ONE, {"pid": 7, "processes": 5}, 7.0)
    assert orders.get(ONE) == {"pid": 7, "processes": 5} and orders.get(TWO) is None
    if control:
        assert 0 < control.pttl(f"weir:test:{ONE}") <= 7_000
    else:
        now[0] = 7.0
        assert orders.get(ONE) is None
    orders.forget(ONE)
    assert orders.get(ONE) is None


def gone(plant):
    return [each for each in plant.list_missing() if "has not responded" in each]


def test_a_worker_that_was_killed_is_missed_and_one_that_said_that_it_stops_is_not(far):
    far.processes = {ONE: 2, TWO: 2}
    plant = far.plant()
    plant.get_topology()
    assert not gone(plant)
    far.processes = {ONE: 2}
    far.now += 20.0
    plant.get_topology()
    assert [each.partition(":")[0] for each in gone(plant)] == [
        f"{TWO} has not responded for 20 s, and it did not report a shutdown"
    ]
    assert any("Restart it" in each for each in gone(plant))
    far.listener.events.apply({"type": "worker-offline", "hostname": TWO}, far.now)
    plant.get_topology()
    assert not gone(plant)


def test_a_worker_that_sends_heartbeats_and_does_not_answer_is_not_said_to_be_killed(far):
    plant = far.plant()
    plant.get_topology()
    far.processes = {}
    far.now += 20.0
    far.listener.events.apply({"type": "worker-heartbeat", "hostname": ONE, "pid": 7}, far.now)
    plant.get_topology()
    assert "sends heartbeats: its remote control is disabled" in gone(plant)[0]


def test_a_worker_that_comes_back_is_missed_no_longer_and_one_that_stays_away_for_an_hour(far):
    plant = far.plant()
    plant.get_topology()
    processes, far.processes = far.processes, {}
    far.now += 1_200.0
    plant.get_topology()
    assert "has not responded for 20 min" in gone(plant)[0]
    far.processes = processes
    plant.get_topology()
    assert not gone(plant)
    far.processes = {}
    far.now += 3_601.0
    plant.get_topology()
    assert not gone(plant)


def test_after_its_broker_was_away_a_worker_is_missed_and_its_queue_observed_by_a_later_observer(known):
    far = FakeCelery({ONE: 2}, ["mail"])
    far.known = known
    far.plant().get_topology()
    far.processes = {}
    far.now += 60.0
    later = far.plant()
    assert list(later.get_topology().operators) == ["queue mail"]
    assert "has not responded for 60 s" in gone(later)[0]


STAYS = "celery@stays"


def hosts(far, plant, count, seconds=20.0):
    """Run hosts one after the other, each with a worker of its own name, besides one that stays."""
    for number in range(count):
        names = [STAYS, f"celery@host-{number}"]
        far.processes, far.wanted = dict.fromkeys(names, 2), dict.fromkeys(names, 2)
        far.busy = dict.fromkeys(names, 0)
        plant.get_topology()
        far.now += seconds


def test_of_workers_that_were_asked_for_events_only_the_last_ones_are_noted(monkeypatch):
    """The record is read as a whole whenever a worker appears."""
    monkeypatch.setattr(workers, "MAX_NOTED", 20)
    far = FakeCelery({STAYS: 2})
    plant = far.plant()
    hosts(far, plant, 60)
    noted = far.noted_workers.load_all()
    assert len(noted) < 30  # and those that are alive
    assert {STAYS, "celery@host-59", "celery@host-45"} <= set(noted)
    plant.close()
    assert STAYS in far.events_off


class Twins(FakeCelery):
    """Two workers with one name that each start 2 tasks per second.

    Both answer if all are asked, and the faster one if one answer is expected. pids: in containers they are the same.
    """

    pids, quicker = (7, 8), 0

    def broadcast(self, command, limit=None, **more):
        found = []
        for number, pid in enumerate(self.pids):
            self.pid, self.begun[ONE] = pid, 1_000 * number + int(2 * self.now)
            found += super().broadcast(command, limit=None, **more)
        self.quicker = (self.quicker + 1) % 3
        return sorted(found, key=lambda _: self.quicker == 0)[:limit]


@pytest.mark.parametrize("pids", [(7, 8), (1, 1)])
def test_of_two_workers_of_one_name_none_is_set(pids):
    far = Twins({ONE: 2})
    far.pids = pids
    plant = far.plant(events="listen")
    for _ in range(20):
        topology = plant.get_topology()
        far.now += 1.0
    assert "two workers have this name" in topology.operators[ONE].fixed
    far.pids = (7,)
    for _ in range(120):
        topology = plant.get_topology()
        far.now += 1.0
    assert topology.operators[ONE].fixed is None


@pytest.fixture
def mail_app():
    return FakeCelery({ONE: 2}, ["mail"])


def unserved(plant):
    plant.get_topology()
    return {name: (each.waiting, each.seconds) for name, each in plant.get_details().unserved_queues.items()}


def test_a_queue_whose_worker_has_ended_is_unserved_for_as_long_as_tasks_wait(mail_app):
    plant, processes = mail_app.plant(), mail_app.processes
    mail_app.queues["mail"] = 3
    assert unserved(plant) == {}
    mail_app.processes = {}
    mail_app.now += 20.0  # until then the worker may be late
    assert unserved(plant) == {"mail": (3, 0.0)}
    mail_app.now += 40.0
    mail_app.queues["mail"] = 5
    assert unserved(plant) == {"mail": (5, 40.0)}
    mail_app.processes = processes
    assert unserved(plant) == {}


def test_a_queue_that_becomes_shorter_has_a_worker_that_is_not_seen(mail_app):
    plant = mail_app.plant(queues="mail")
    mail_app.processes, mail_app.queues["mail"] = {}, 5
    assert unserved(plant) == {"mail": (5, 0.0)}
    mail_app.now, mail_app.queues["mail"] = mail_app.now + 30.0, 4
    assert unserved(plant) == {}
    mail_app.now += 10.0
    assert unserved(plant) == {"mail": (4, 0.0)}


def test_while_a_worker_beats_and_does_not_answer_nothing_is_said_of_queues(mail_app):
    plant = mail_app.plant(queues="mail")
    mail_app.processes, mail_app.queues["mail"] = {}, 5
    mail_app.listener.events.apply({"type": "worker-heartbeat", "hostname": ONE, "pid": 7}, mail_app.now)
    assert unserved(plant) == {}
    mail_app.now += 60.0
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


def test_a_queue_that_its_broker_does_not_find_for_an_instant_is_unserved_for_as_long_as_before(mail_app):
    plant = mail_app.plant(queues="mail")
    mail_app.processes, mail_app.queues["mail"] = {}, 5
    assert unserved(plant) == {"mail": (5, 0.0)}
    del mail_app.queues["mail"]
    mail_app.now += 20.0
    assert unserved(plant) == {}
    mail_app.queues["mail"] = 6
    mail_app.now += 20.0
    assert unserved(plant) == {"mail": (6, 40.0)}


def test_workers_that_are_missed_are_named_with_how_long_and_late_ones_are_not(mail_app):
    plant = mail_app.plant()
    plant.get_topology()
    mail_app.processes = {}
    mail_app.now += 5.0
    plant.get_topology()
    assert plant.get_details().missed_workers == {}
    mail_app.now += 15.0
    plant.get_topology()
    assert plant.get_details().missed_workers == {ONE: 20.0}
