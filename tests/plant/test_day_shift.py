"""Operations staff at the browser, on the whole plant: sign in, watch, take a limit over, see it come back.

The files of this folder run in the order of their names: the override set here runs out while the plant's other tests
go on, and test_workday_end.py reads the same open page again.
"""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_counters_of_the_overview_move(shared_page):
    figure = shared_page.locator('[data-bind="totals.in_per_second"]').first
    expect(figure).not_to_have_text("—", timeout=60_000)
    seen = {figure.inner_text()}
    shared_page.wait_for_function(
        "([old]) => document.querySelector('[data-bind=\"totals.in_per_second\"]').innerText !== old",
        arg=[seen.pop()],
        timeout=60_000,
    )
    expect(shared_page.locator("#connection")).to_have_attribute("data-connection", "live")


def test_an_upper_limit_is_overridden_for_two_minutes_and_the_loop_decides_by_it(plant, shared_page):
    snapshot = plant.wait_until(lambda s: "worker_rate/alert/n1" in s["loops"], 60, "the loop has ticked")
    shared_page.goto(f"{plant.url}/loops/{snapshot['loops']['worker_rate/alert/n1']['id']}/")
    shared_page.get_by_label("Upper limit").fill("700")
    form = shared_page.locator("#steer")
    form.get_by_label("Reason").fill("let it catch up before the report")
    form.get_by_label("Expires").select_option("2")
    button = form.locator("button.primary")
    expect(button).to_have_text("Override upper limit to 700 for 2 min")
    button.click()
    expect(shared_page.locator("[data-override]")).to_contain_text("Upper limit 700 instead of 1,000")
    expect(shared_page.locator("#strip-overrides")).to_contain_text("1 override")
    plant.wait_until(lambda s: s["loops"]["worker_rate/alert/n1"]["setpoint"] == 700, 30, "the loop decides by 700")
