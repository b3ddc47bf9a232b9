"""The page of a shedding loop in a browser: what it shows stays there while the loop ticks."""

import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, Snapshot, live
from tests.console.served import ROOT, Served
from tests.waiting import until

pytestmark = BROWSER
NAME = "shedding/performance"
FILL = f"""
from workers.models import Loop
from workers.control.kinds.registry import KINDS
loop = Loop.objects.create(name="{NAME}", law="shedding", mode="auto",
                           target={{"application": "performance"}},
                           parameters=dict(KINDS["shedding"].defaults.parameters))
print(loop.pk)
"""


@pytest.fixture(scope="module")
def loop(served: Served) -> int:
    command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", FILL]
    made = subprocess.run(command, cwd=ROOT, env=served.environment, check=True, capture_output=True, text=True)
    return int(made.stdout.split()[-1])


@pytest.mark.thorough
def test_the_chart_of_what_is_shed_stays_when_the_loop_has_ticked(open_page, observer, loop):
    page = open_page(f"/loops/{loop}/")
    chart = page.locator("figure[data-chart^='Shed share'] .js-plotly-plot")

    def tick(entry: int) -> None:
        row = {**observer.snapshot["loops"]["worker_rate/alert/n1"], "id": loop, "law": "shedding"}
        row |= {"target": {"application": "performance"}, "entry": entry}

        def change(snapshot: Snapshot) -> None:
            snapshot["loops"][NAME] = row
            snapshot["pipeline"]["applications"]["performance"]["patterns"]["load-rises"]["shed_share"] = 0.2

        observer.publish(change)

    live(page, observer)
    page.locator("figure[data-chart^='Shed share']").scroll_into_view_if_needed()
    tick(1)
    expect(chart).to_be_visible()
    page.evaluate("document.getElementById('shed').dataset.before = 'the tick'")

    def is_written_anew() -> bool:
        tick(2)
        return page.locator("#shed:not([data-before])").count() == 1

    until(is_written_anew, every_seconds=0.5)
    expect(chart).to_be_visible()
