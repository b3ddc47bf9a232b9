"""One list of prices: what each thing costs, also where the price differs by name, and never 0 for an unknown price."""

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from workers.models import Setting
from workers.steering import plant_settings
from workers.steering.prices import Prices, load_prices

COUNTS = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 10**6), max_size=5)
PRICE = st.floats(0, 1e6)


@given(COUNTS, PRICE, st.dictionaries(st.text(min_size=1, max_size=3), PRICE, max_size=5))
def test_lost_events_cost_the_sum_of_the_prices_of_their_types(counts, price, of):
    mean = Prices(lost_event=price, lost_event_of=of).compute_lost_event_price(counts)
    cost = sum(count * of.get(name, price) for name, count in counts.items())
    assert mean * sum(counts.values()) == pytest.approx(cost)


@given(COUNTS)
def test_a_type_without_a_price_makes_the_cost_unknown(counts):
    price = Prices(lost_event_of=dict.fromkeys(counts, 1.0)).compute_lost_event_price({**counts, "other": 1})
    assert price is None


@pytest.mark.django_db
def test_the_prices_in_force_are_the_settings_of_the_plant():
    assert load_prices() == Prices()
    for name, value in (("node_hour", 2.5), ("delay_second_of", {"Checkout": 0.5}), ("lost_event_of", {"orders": 2})):
        plant_settings.change(f"price.{name}", value, None, timezone.now())
    prices = load_prices()
    assert (prices.node_hour, prices.worker_hour) == (2.5, None)
    assert prices.get_delay_second_price("Checkout") == 0.5 and prices.get_delay_second_price("Other") is None
    assert plant_settings.format_setting(prices.lost_event_of) == "orders=2"
    plant_settings.change("price.lost_event_of", {}, None, timezone.now())
    assert not Setting.objects.filter(name="price.lost_event_of").exists()


@pytest.mark.django_db
@pytest.mark.parametrize("value", [{"orders": -1}, {"orders": "much"}, [1], 5.0, {f"type {n}": 1 for n in range(101)}])
def test_a_price_by_name_that_is_no_price_is_rejected_and_changes_nothing(value):
    with pytest.raises(BadInput, match="value"):
        plant_settings.change("price.lost_event_of", value, None, timezone.now())
    assert load_prices() == Prices()
