"""Orders of people at plants where only idle tasks end: repeated until they are reached."""

from contextlib import contextmanager

import pytest

from common.stored_document import replace_fields
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.documents.plants import PlantHolder
from workers.documents.snapshot import Snapshot
from workers.plants.foreign import repeated_orders
from workers.plants.foreign.adapters import get_convergence_timeout
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.watch import PlantObserver
from workers.plants.models import RegisteredPlant
from workers.plants.orders import OrderedPlant, OrderWatch, forget

pytestmark = pytest.mark.django_db
ONE = "celery@one"


class Shop:
    """A Celery app of twelve busy processes, which a loop or a person orders."""

    def __init__(self):
        self.far = FakeCelery({ONE: 12})
        self.far.busy[ONE] = 12
        self.row = RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example")
        self._lookout = PlantObserver(self.row, lambda _: self.far.plant(), lambda: self.far.now)
        self._watch = OrderWatch(patience=get_convergence_timeout)
        self.opening, self.holder = lambda: None, "eve"

    def order(self, tasks, by_loop=False):
        self.far.run(10.0)
        plant = OrderedPlant(self.row, self.far.plant(), "eve", by_loop, lambda: self.far.now)
        plant.set_parallelism({ONE: tasks})

    def snapshot(self):
        self.far.run(10.0)
        self._lookout.observe()
        rows = self._watch.step({"shop": self._lookout.build_status()}, self.far.now)
        holder = PlantHolder(holder=self.holder, until=self.far.now + 60.0) if self.holder else None
        rows = {name: replace_fields(row, steered_by=holder) for name, row in rows.items()}
        return Snapshot(plant="main", at=self.far.now, plants=rows)

    @contextmanager
    def opened(self, row):
        self.opening()
        yield BoundedPlant(row.name, self.far.plant())

    def repeat(self, snapshot=None):
        found = repeated_orders.repeat(snapshot or self.snapshot(), self.opened)
        return [(each.operator, each.tasks) for each in found]


@pytest.fixture
def shop():
    return Shop()


def test_an_order_of_fewer_that_a_person_gave_takes_effect_as_tasks_end(shop):
    shop.order(4)
    assert shop.far.processes[ONE] == 12
    for busy, processes in ((12, 12), (9, 9), (5, 5), (0, 4)):
        shop.far.busy[ONE] = busy
        assert shop.repeat() == [(ONE, 4)]
        assert shop.far.processes[ONE] == processes
    assert shop.repeat() == []


def test_what_was_reached_is_not_ordered_again_when_its_owner_sets_more(shop):
    shop.far.busy[ONE] = 0
    shop.order(4)
    shop.snapshot()
    shop.far.processes[ONE] = shop.far.wanted[ONE] = 8
    assert shop.repeat() == []
    assert shop.far.processes[ONE] == 8


def test_a_loop_that_orders_since_counts_and_gives_its_own_orders_again_itself(shop):
    shop.order(4)
    shop.order(6, by_loop=True)
    shop.far.busy[ONE] = 0
    assert shop.repeat() == []


@pytest.mark.parametrize(("holder", "repeated"), [("", []), ("ada", []), ("eve/one", [(ONE, 4)])])
def test_an_order_is_given_again_while_the_plant_is_of_who_ordered_it_and_then_loops_decide(shop, holder, repeated):
    shop.order(4)
    shop.holder = holder
    assert shop.repeat() == repeated


def test_an_order_for_more_or_one_that_was_forgotten_is_not_given_again(shop):
    shop.order(14)
    shop.far.wanted[ONE] = 12
    assert shop.repeat() == []
    shop.order(4)
    snapshot = shop.snapshot()
    forget("shop")
    assert shop.repeat(snapshot) == []


@pytest.mark.parametrize("is_asked", [False, True])
def test_an_order_that_was_given_since_the_snapshot_or_while_the_plant_is_asked_counts(shop, is_asked):
    shop.order(4)
    snapshot = shop.snapshot()
    shop.far.busy[ONE] = 0
    if is_asked:
        shop.opening = lambda: shop.order(10)
    else:
        shop.order(10)
    assert shop.repeat(snapshot) == []
    assert shop.far.processes[ONE] == 10


def test_an_app_that_does_not_answer_is_asked_the_next_time(shop):
    shop.order(4)
    snapshot = shop.snapshot()
    shop.far.silent, shop.far.busy[ONE] = True, 0
    assert shop.repeat(snapshot) == []
    shop.far.silent = False
    assert shop.repeat(snapshot) == [(ONE, 4)]
    assert shop.far.processes[ONE] == 4
