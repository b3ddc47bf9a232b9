"""The page Costs: what is not priced says so and is never 0; what is priced is money."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.display import formats
from tests.console.page_form import source_of
from workers.models import LedgerEntry, Loop, Setting

pytestmark = pytest.mark.django_db


@pytest.fixture
def loop():
    made = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert", "node": "n1"})
    now = timezone.now()
    seen = {"queue_length": 0, "removed": 80, "started": 1, "waiting_to_run": 0, "running": 1}
    LedgerEntry.objects.bulk_create(
        LedgerEntry(
            loop=made,
            at=now - timedelta(seconds=200 - 2 * place),
            mode="hold" if 40 <= place < 60 else "auto",
            parameters={},
            observation=seen,
            reason="a test",
        )
        for place in range(100)
    )
    return made


def test_without_prices_it_says_so_and_shows_amounts(browsers, loop, stored_snapshot):
    page = source_of(browsers["viewer"].get(f"/costs/?loop={loop.pk}"))
    assert "no price set" in page and ">0.00<" not in page
    assert "The worker manager of the thesis, every 5 s" in page.replace("&#x27;", "'")
    assert "The loop was on hold for" in page


def test_with_prices_savings_and_the_hold_are_money(browsers, loop, secrets, stored_snapshot):
    for name, value in (("worker_hour", 10.0), ("delay_second", 0.5)):
        Setting.objects.create(name=f"price.{name}", value=value)
    page = source_of(browsers["viewer"].get(f"/costs/?loop={loop.pk}"))
    assert "The hold cost" in page
    headers = {"authorization": f"Bearer {secrets['viewer']}"}
    found = browsers["anonymous"].get(f"/api/v1/loops/{loop.pk}/costs", headers=headers).json()
    assert found["law"]["cost"] is not None and found["prices"]["node_hour"] is None
    assert [each["side"]["name"] for each in found["baselines"]] == ["thesis", "static"]
    plant = browsers["anonymous"].get("/api/v1/costs", headers=headers).json()
    assert plant["nodes_cost"] is None and plant["worker_hours"] is None


@pytest.mark.parametrize(
    ("amount", "money", "hours"),
    [
        (0.0, "0.00", "0"),
        (0.0005575, "0.000558", "0.000558"),
        (0.00000123, "0.000001", "0.000001"),
        (0.1 + 0.2 - 0.3, "0.00", "0"),
        (-0.0004, "-0.0004", "-0.0004"),
        (0.9999, "1.00", "1"),
        (12.345, "12.34", "12.3"),
        (1234.5, "1,234.50", "1,234"),
        (None, formats.UNKNOWN, formats.UNKNOWN),
    ],
)
def test_a_small_amount_keeps_its_digits_and_is_not_nothing(amount, money, hours):
    assert (formats.format_money(amount, 1.0), formats.format_hours(amount)) == (money, hours)


@pytest.mark.parametrize("hours", ["0", "3", "soon"])
def test_hours_that_can_not_be_are_refused_by_name(browsers, loop, hours, stored_snapshot):
    answer = browsers["viewer"].get(f"/costs/?hours={hours}")
    assert answer.status_code == 422 and "hours" in source_of(answer)


def test_where_prices_are_set_and_no_run_is_recorded_no_price_is_said_to_be_missing(browsers, loop, stored_snapshot):
    for name, value in (("worker_hour", 10.0), ("delay_second", 0.5)):
        Setting.objects.create(name=f"price.{name}", value=value)
    for entry in loop.entries.all():
        entry.observation = {**entry.observation, "running": 0}
        entry.save()
    page = source_of(browsers["viewer"].get(f"/costs/?loop={loop.pk}"))
    said = " ".join(page.split())
    assert "The cost of the hold is unknown because worker run times are not recorded." in said
