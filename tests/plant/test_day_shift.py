"""Operations staff at the browser, on the whole plant: watch, take a limit over, try something out in the lab.

The files of this folder run in the order of their names: the override set here runs out while the plant's other tests
go on, and test_workday_end.py reads the same open page again.
"""

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_counters_of_the_overview_move(shared_page):
    shared_page.get_by_role("button", name="Skip to the overview").click()
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
    expect(shared_page.locator("#strip-overrides")).to_contain_text("1 manual change")
    plant.wait_until(lambda s: s["loops"]["worker_rate/alert/n1"]["setpoint"] == 700, 30, "the loop decides by 700")


def test_an_experiment_is_simulated_by_the_plants_workers_and_read_without_a_reload(plant, shared_page):
    plant.wait_until(lambda s: "spark" in {host["role"] for host in s["hosts"].values()}, 90, "a batch worker")
    shared_page.goto(f"{plant.url}/lab/?scenario=crash")
    shared_page.get_by_role("button", name="Run experiment").click()
    expect(shared_page.get_by_role("heading", name=re.compile(r"Experiment \d+: crash"))).to_be_visible()
    run = shared_page.locator("#experiment-results .side a").inner_text().removeprefix("run ")
    plant.wait_until(lambda s: run in s["runs"], 30, "the run is in the snapshot")
    # It waits behind whatever Spark does at the time.
    expect(shared_page.locator("#experiment-results .run-state")).to_have_text("Done", timeout=150_000)
    expect(shared_page.locator("table.results tbody tr")).to_have_count(2)
    expect(shared_page.locator("figure[data-multiple] .scatterlayer").first).to_be_visible(timeout=20_000)
    lost = shared_page.locator("table.results tbody tr", has_text="rebalancing").locator("b").first
    expect(lost).to_have_text("0")  # ours loses nothing, and is the best for it
    shared_page.goto(f"{plant.url}/tasks/experiment/")
    expect(shared_page.locator("#task-runs tbody tr").first).to_contain_text("Done")
