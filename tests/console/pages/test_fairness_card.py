"""What the page of a queue shows of its fairness, and the forms that change it."""

import orjson
import pytest

from console.embedded.seeding import seed
from queues import fairness, keys
from queues.fairness import FairnessSettings
from tests.console.page_form import source_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def show(control, stored_snapshot):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})
    stored_snapshot["producers"] = {
        "shop": {
            "queues": {"alert": 300.0},
            "samples": {"alert": {"events": 100, "key": {"4711": 64, "(none)": 28, "17": 8}}},
        },
        "app": {"queues": {"alert": 100.0}, "samples": {"alert": {"events": 10, "key": {"17": 10}}}},
    }
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    return lambda browser: " ".join(source_of(browser.get("/queues/alert/")).split())


def test_the_keys_with_the_largest_shares_of_the_arrivals_come_first(browsers, show):
    page = show(browsers["viewer"])
    assert page.index(">4711<") < page.index(">17<")
    assert '<td class="number">48</td>' in page  # 64 % of 300/s, of 400/s
    assert ">(none)<" not in page[page.index("keys-table") :]
    assert 'action="/queues/alert/fairness"' not in page


def test_an_operator_enables_fairness_overrides_a_weight_and_ends_the_override(browsers, show, control):
    browser = browsers["operator"]
    browser.post("/queues/alert/fairness", {"enabled": "yes", "ordinary_weight": "50", "reason": "a test"})
    assert "Ordinary keys together have 50 shares of one key." in show(browser)
    browser.post("/queues/alert/weight", {"key": "4711", "weight": "2.5", "minutes": "30", "reason": "a launch"})
    page = show(browser)
    assert '<td class="number">2.5</td>' in page
    assert "a launch" in page
    browser.post("/queues/alert/weight/end", {"key": "4711"})
    assert "a launch" not in show(browser)
    browser.post("/queues/alert/fairness", {"enabled": "no", "reason": "a test"})
    assert fairness.load_fairness(control, "alert", 0.0) is None


def test_a_weight_that_is_no_number_is_rejected_next_to_its_field(browsers, show, control):
    fairness.enable(control, "alert", FairnessSettings())
    answer = browsers["operator"].post(
        "/queues/alert/weight", {"key": "4711", "weight": "much", "minutes": "30", "reason": "a test"}
    )
    assert answer.status_code == 422
    assert "must be a number" in source_of(answer)
