"""Somebody tries something out in the lab, on the whole plant: the plant's own workers simulate it."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.spark, pytest.mark.timeout(900)]


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
