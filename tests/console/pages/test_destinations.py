"""What the page of a queue shows of its handler's destination."""

import orjson
import pytest

from console.embedded.seeding import seed
from queues import keys
from tests.console.page_form import source_of

pytestmark = pytest.mark.django_db
SHOP = {
    "circuit": "open",
    "since": 1_000_000.0,
    "at": 1_000_005.0,
    "failing_share": 0.84,
    "calls": 50.0,
    "retries": 3.0,
    "error": "shop.example returned HTTP 503: overloaded",
    "queues": ["alert"],
}


@pytest.fixture
def show(control, stored_snapshot):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})

    def show(browser, destinations):
        stored_snapshot["queues"]["alert"]["destination"] = "shop.example:443"
        stored_snapshot["destinations"] = destinations
        control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
        return " ".join(source_of(browser.get("/queues/alert/")).split())

    return show


def test_a_failing_destination_shows_its_circuit_its_failures_and_its_budget(browsers, show):
    page = show(browsers["operator"], {"shop.example:443": SHOP})
    assert 'data-bind="destinations.shop.example:443.circuit" data-format="text">open<' in page
    assert 'data-bind="destinations.shop.example:443.failing_share" data-format="percent">84<' in page
    assert "Last failure: shop.example returned HTTP 503: overloaded" in page
    assert 'action="/queues/alert/circuit"' in page


def test_a_destination_without_recent_calls_says_so(browsers, show):
    assert "No calls in the last hour." in show(browsers["operator"], {})


def test_who_may_hold_no_circuit_gets_no_form_for_it(browsers, show):
    assert 'action="/queues/alert/circuit"' not in show(browsers["viewer"], {"shop.example:443": SHOP})
