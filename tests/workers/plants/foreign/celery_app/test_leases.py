"""Leases at a Celery app: everything that Weir has set there ends by itself once Weir no longer renews it."""

from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.documents.plants import GuardStatus
from workers.plants.foreign import interventions
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.celery_app import leases
from workers.plants.foreign.celery_app.interventions import INTERVENTIONS, LIMIT, PAUSE
from workers.plants.foreign.celery_app.leases import RabbitLeases, list_commands
from workers.plants.foreign.kind import RestoredValue
from workers.plants.plant import InvalidPlantResponse

ONE, TWO = "celery@one", "celery@two"
KINDS = {kind.name: kind for kind in INTERVENTIONS}


@pytest.fixture
def far(control):
    app = FakeCelery({ONE: 2, TWO: 2})
    app.in_force = lambda: interventions.list_active(control, "shop")
    return app


@pytest.fixture
def intervene(far, control):
    def start(kind, subject, value=""):
        plant = BoundedPlant("shop", far.plant())
        prepared = interventions.prepare_intervention(
            control, "shop", plant, KINDS[kind], subject, value, by="eve", until=10_000.0
        )
        interventions.begin(control, "shop", plant, KINDS[kind], prepared)

    return start


def describe(plant):
    return {value.item: (value.value, value.afterwards, value.restored_by) for value in plant.list_set_values()}


def test_a_pause_and_a_limit_end_by_themselves(far, intervene):
    intervene(PAUSE, "celery")
    intervene(LIMIT, "shop.mail", "1/m")
    far.expire_lease()
    assert not far.paused
    assert far.limits["shop.mail"] == "10/m"


def test_the_lease_is_written_before_anything_is_done(far, intervene):
    broadcast = far.broadcast

    def die_at_the_first_order(command, *arguments, **more):
        if command == "cancel_consumer":
            raise SystemExit
        return broadcast(command, *arguments, **more)

    far.broadcast = die_at_the_first_order
    with pytest.raises(SystemExit):
        intervene(PAUSE, "celery")
    assert [item["method"] for item in far.store.items] == ["add_consumer"]


@pytest.mark.parametrize(("count", "orders"), [(8, [8]), (1, [1]), (8, [8, 3])])
def test_a_pool_gets_the_size_that_it_had_before_weir(far, count, orders):
    plant = far.plant()
    for processes in orders:
        plant.set_parallelism({ONE: processes})
        far.run(10.0)
    far.expire_lease()
    assert far.processes == {ONE: 2, TWO: 2}


def test_a_pool_that_has_its_former_size_again_is_no_longer_in_the_lease(far):
    plant = far.plant()
    plant.set_parallelism({ONE: 4})
    far.run(10.0)
    plant.set_parallelism({ONE: 2})
    assert far.store.items == []
    assert far.sizes.load_all() == {}


def test_the_first_size_stays_the_one_to_restore_for_every_process_of_weir(far):
    for processes in (4, 6, 5):
        far.plant().set_parallelism({ONE: processes})
        far.run(10.0)
    assert far.sizes.load_all()[ONE]["before"] == 2


def test_a_restarted_worker_has_the_size_of_its_owner(far):
    far.stats = {"uptime": 90}
    plant = far.plant()
    plant.set_parallelism({ONE: 4})
    far.run(500.0)
    far.stats = {"uptime": 20}
    plant.get_topology()
    plant.renew_leases()
    assert far.sizes.load_all() == {}


def test_task_events_that_weir_has_enabled_end_and_are_enabled_again_when_weir_is_back(far):
    plant = far.plant()
    plant.get_topology()
    plant.renew_leases()
    assert far.sending == {(ONE, far.pid), (TWO, far.pid)}
    far.expire_lease()
    assert far.sending == set()
    plant.renew_leases()
    plant.get_topology()
    assert far.sending == {(ONE, far.pid), (TWO, far.pid)}


def test_what_was_restored_while_weir_was_away_is_reported_once(far, intervene):
    intervene(PAUSE, "celery")
    plant = far.plant()
    plant.set_parallelism({ONE: 4})
    far.run(10.0)
    plant.renew_leases()
    far.expire_lease()
    restored = plant.renew_leases()
    assert RestoredValue(kind=PAUSE, subject="celery") in restored
    assert RestoredValue(operator=ONE) in restored
    assert plant.renew_leases() == []
    assert far.sizes.load_all() == {}


def test_each_value_says_what_restores_it(far, intervene):
    plant = far.plant()
    assert plant.list_set_values() == []
    intervene(PAUSE, "celery")
    intervene(LIMIT, "shop.work", "1/s")
    plant.set_parallelism({ONE: 4})
    assert describe(plant) == {
        "queue celery": ("paused", "consumed", "guard"),
        "rate limit of shop.work": ("1/s", "no limit", "guard"),
        ONE: ("4 processes", "2 processes", "guard"),
    }
    assert all(value.within_seconds <= 60.0 for value in plant.list_set_values())


def test_without_a_guard_each_value_says_that_it_stays(far, intervene):
    far.store.guard = GuardStatus(alive=False)
    plant = far.plant()
    plant.get_topology()
    intervene(PAUSE, "celery")
    paused, events = plant.list_set_values()
    assert (paused.value, paused.afterwards, paused.within_seconds) == ("paused", "paused", None)
    assert "install the guard" in paused.stays
    assert not paused.is_harmless
    assert events.is_harmless


def test_a_restored_value_is_read_at_the_workers(far, intervene, control):
    intervene(PAUSE, "celery")
    intervene(LIMIT, "shop.mail", "1/m")
    before = {each.kind: each.before for each in interventions.list_active(control, "shop")}
    plant = far.plant()
    for kind, subject in ((PAUSE, "celery"), (LIMIT, "shop.mail")):
        with pytest.raises(InvalidPlantResponse, match=ONE):
            plant.check_restored(kind, subject, before[kind])
        plant.undo(kind, subject, before[kind])
    assert plant.check_restored(PAUSE, "celery", before[PAUSE]) == f"consumed by {ONE}, {TWO}"
    assert plant.check_restored(LIMIT, "shop.mail", before[LIMIT]) == f"10/m by {ONE}, {TWO}"


def test_a_broker_that_never_had_a_command_has_not_carried_it_out(far):
    """The pool was larger for an hour, which RabbitMQ can't undo; now it gets smaller, and a command is new."""
    far.store.restored_by = "broker"
    far.store.replace = list_commands  # the queue is always empty
    plant = far.plant()
    plant.set_parallelism({ONE: 4})
    far.run(3_600.0)
    plant.set_parallelism({ONE: 1})
    assert far.sizes.load_all()[ONE]["before"] == 2
    far.run(100.0)
    assert plant.renew_leases() == [RestoredValue(operator=ONE)]


def test_a_pool_that_a_guard_still_resizes_when_weir_returns_is_reported_once_it_has_its_former_size(far):
    plant = far.plant()
    plant.set_parallelism({ONE: 5})
    far.run(60.0)
    plant.get_topology()
    assert plant.renew_leases() == []
    far.wanted[ONE] = 2  # the guard's order, which Weir has not seen in the lease
    plant.get_topology()
    assert plant.renew_leases() == []
    far.run(10.0)
    plant.get_topology()
    assert plant.renew_leases() == []
    assert plant.renew_leases() == [RestoredValue(operator=ONE)]
    assert far.sizes.load_all() == {}
    assert all("pool" not in item for item in far.store.items)


def test_an_order_that_has_not_taken_effect_yet_is_not_taken_for_a_restored_pool(far):
    plant = far.plant()
    plant.set_parallelism({ONE: 5})
    plant.get_topology()
    assert plant.renew_leases() == []
    assert far.sizes.load_all()[ONE]["tasks"] == 5


def test_a_command_that_rabbitmq_has_carried_out_is_not_in_the_lease_of_a_returned_weir(monkeypatch):
    """A Weir that vanishes again right after its return would enlarge the pool a second time."""
    messages, app = [], MagicMock()
    producer = SimpleNamespace(publish=lambda message, **_: messages.append(message))
    monkeypatch.setattr(leases, "Producer", lambda *_, **__: producer)
    channel = app.connection_or_acquire.return_value.__enter__.return_value.channel.return_value
    channel.basic_get.return_value = None  # all messages have expired
    store = RabbitLeases("shop", app, lambda: "weir/shop", nullcontext, lambda: 1_000.0)
    old, new = (
        {"pool": name, "processes": 3, "tasks": 1, "at": 0.0, "set_at": at} for name, at in ((ONE, 900.0), (TWO, 990.0))
    )
    assert store.replace([old, new]) == list_commands([old])
    assert messages == list_commands([new])
