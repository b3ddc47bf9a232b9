"""An order for a declared plant counts until its sensors show it: it is carried out once."""

import httpx
import pytest

from tests.workers.plants.foreign.declared.test_declared_plants import TEXT, Far
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.stored_notes import ExpiringNotes
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable


class Scraped(Far):
    """The runner counts at once; the sensor shows the value of the last scrape."""

    def __init__(self):
        super().__init__()
        self.scraped, self.lost = dict(self.now), False

    def answer(self, request):
        if request.method == "GET":
            real, self.now = self.now, self.scraped
            try:
                return super().answer(request)
            finally:
                self.now = real
        answer = super().answer(request)
        if self.lost:
            raise httpx.ReadTimeout("late")
        return answer

    def scrape(self):
        self.scraped = dict(self.now)


def scraped_plant(seconds=lambda: 0.0):
    far = Scraped()
    plant = DeclaredPlant(parse_declaration(TEXT), {}, httpx.MockTransport(far.answer), lambda: 5.0, monotonic=seconds)
    return far, plant


def test_an_order_is_carried_out_once_though_the_sensor_still_says_what_was_before():
    far, plant = scraped_plant()
    for _ in range(3):
        plant.set_parallelism({"web": 4, "render": 3})
        plant.get_topology()
    assert far.now == {"web": 4, "render": 3}
    assert len(far.calls) == 2
    plant.set_parallelism({"web": 4, "render": 5})
    assert far.calls[2:] == [("POST", "/render/4", ""), ("POST", "/render/5", "")]
    plant.set_parallelism({"web": 4, "render": 2})  # as the sensor reports, and yet not the real number
    plant.set_parallelism({"web": 4, "render": 2})
    plant.get_topology()
    plant.set_parallelism({"web": 4, "render": 2})
    assert far.now["render"] == 2


def test_once_the_sensor_shows_the_order_what_it_says_counts():
    far, plant = scraped_plant()
    plant.set_parallelism({"render": 3})
    far.scrape()
    plant.set_parallelism({"render": 3})
    far.now["render"] = 2  # one has died
    far.scrape()
    plant.set_parallelism({"render": 3})
    assert far.now["render"] == 3


def test_an_order_whose_proof_is_late_counts_no_longer():
    now = [0.0]
    far, plant = scraped_plant(lambda: now[0])
    plant.set_parallelism({"render": 3})
    far.now["render"] = 2  # it was never started
    now[0] = 29.0
    plant.set_parallelism({"render": 3})
    assert far.now["render"] == 2
    now[0] = 31.0
    plant.set_parallelism({"render": 3})
    assert far.now["render"] == 3


class Slow(Scraped):
    """Each call takes 8 of the `seconds`, and `meanwhile` happens in the sixth."""

    def __init__(self):
        super().__init__()
        self.seconds, self.meanwhile, self.orders = (0.0, lambda: None, ExpiringNotes(monotonic=lambda: self.seconds))

    def plant(self):
        transport = httpx.MockTransport(self.answer)
        return DeclaredPlant(parse_declaration(TEXT), {}, transport, orders=self.orders)

    def answer(self, request):
        answer = super().answer(request)
        if request.method == "POST":
            self.seconds += 8.0
            if len(self.calls) == 6:
                self.meanwhile()
        return answer


def test_a_loop_that_orders_again_while_many_slow_calls_go_on_calls_nothing_beside_them():
    far = Slow()
    far.meanwhile = lambda: far.plant().set_parallelism({"render": 9})  # 48 s after the first, of 30 s
    far.plant().set_parallelism({"render": 9})
    assert [path for _, path, _ in far.calls] == [f"/render/{at}" for at in range(3, 10)]
    assert far.now["render"] == 9
    far.seconds += 29.0
    far.plant().set_parallelism({"render": 9})
    assert len(far.calls) == 7
    far.seconds += 2.0
    far.plant().set_parallelism({"render": 3})  # its proof is late: the sensor value counts again
    assert far.calls[-1][1] == "/render/3"


def test_an_order_whose_answer_was_lost_was_perhaps_obeyed_and_one_that_is_refused_was_not():
    far, plant = scraped_plant()
    far.broken["/render/3"] = lambda request: httpx.Response(409)
    with pytest.raises(InvalidPlantResponse):
        plant.set_parallelism({"render": 3})
    del far.broken["/render/3"]
    far.lost = True
    for _ in range(2):
        with pytest.raises(PlantUnavailable):
            plant.set_parallelism({"web": 3})  # setting the same number again does no harm
    with pytest.raises(PlantUnavailable):
        plant.set_parallelism({"render": 3})
    far.lost = False
    plant.set_parallelism({"web": 3, "render": 3})
    assert far.now == {"web": 3, "render": 3}
