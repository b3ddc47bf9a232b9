"""The lab in a browser: an experiment is made up, run by the real job, read, plotted, compared, applied."""

import re
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.console.served import ROOT, Served

pytestmark = [*BROWSER, pytest.mark.slow]


def begin(page: Page, limit: str) -> str:
    """An experiment of the manager, as an operator makes it up; its number."""
    page.goto("/lab/?scenario=manager")
    page.get_by_label("Static").uncheck()
    page.get_by_label("Upper limit").fill(limit)
    page.get_by_role("button", name="Run experiment").click()
    expect(page.get_by_role("heading", name=re.compile(r"Experiment \d+: manager"))).to_be_visible()
    return page.url.rstrip("/").split("/")[-1]


def simulate(served: Served, experiment: str) -> None:
    """The real job, in a process beside the console, as a worker would do it."""
    command = ["manage.py", "job", "run", "experiment", "--set", f"experiment={experiment}", "--here"]
    subprocess.run([sys.executable, *command], cwd=ROOT, env=served.environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def simulated(served: Served, chromium, session) -> list[str]:
    """Two experiments with their results."""
    context = chromium.new_context(base_url=f"http://127.0.0.1:{served.port}", storage_state=session)
    page = context.new_page()
    numbers = [begin(page, limit) for limit in ("1000", "250")]
    for number in numbers:
        simulate(served, number)
        # Its own run waits for workers that aren't there.
        page.goto(f"/lab/{number}/")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#experiment-results .run-state")).to_have_text("Canceled")
    context.close()
    return numbers


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_results_plots_and_comparison_can_be_used_by_everybody(viewport, scheme, open_page, observer, simulated):
    page = open_page(f"/lab/{simulated[0]}/", viewport=viewport, color_scheme=scheme)
    live(page, observer)
    expect(page.locator("table.results tbody tr")).to_have_count(2)
    expect(page.locator("table.results b").first).to_be_visible()
    expect(page.locator("figure[data-multiple=waiting_events] .js-plotly-plot, .js-plotly-plot").first).to_be_visible()
    assert violations(page) == [] and overhang(page) <= 0
    page.goto(f"/lab/compare?id={simulated[0]}&id={simulated[1]}")
    live(page, observer)
    expect(page.locator("table.results tbody tr")).to_have_count(4)
    expect(page.get_by_role("region", name="Table of different settings")).to_contain_text("Upper limit")
    assert violations(page) == [] and overhang(page) <= 0
