"""The page opened in test_desk.py, two minutes later: the override has ended by itself."""

import pytest
from playwright.sync_api import Page, expect

from bench.running_plant import RunningPlant

# Slow by waiting: what it shows of an hour is shown of an instant by the forms' tests.
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.spark, pytest.mark.timeout(1200)]


def test_the_override_expires_on_the_open_page_and_in_the_loop(plant: RunningPlant, desk: Page):
    expect(desk.locator("#strip-overrides")).to_contain_text("No overrides", timeout=150_000)
    expect(desk.locator("[data-override]")).to_have_count(0)
    plant.until(
        lambda s: s["loops"]["worker_rate/alert/n1"]["setpoint"] == 1000, 30, "the loop is back at 1000"
    )
