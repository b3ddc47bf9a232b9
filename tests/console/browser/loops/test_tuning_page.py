"""What was learned from a loop's record, in a browser: read by everybody, approved from the page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.console.served import ROOT, Served

pytestmark = [*BROWSER, pytest.mark.slow, pytest.mark.timeout(300)]
PHOTOGRAPHS = os.environ.get("WEIR_SCREENSHOTS")
SCREENS = {"light": (DESKTOP, "light"), "dark": (DESKTOP, "dark"), "phone": (PHONE, "light")}
FILL = """
from workers.models import Loop, Tuning
from workers.control.kinds.registry import KINDS
kind = KINDS["worker_rate"]
parameters = dict(kind.defaults.parameters) | {"fill_share": 0.05, "caution": 0.4}
loop = Loop.objects.create(name="worker_rate/QUEUE/n1", law="worker_rate", mode="auto",
                           target={"queue": "QUEUE", "node": "n1"}, parameters=parameters)
days = [{"day": f"2026-11-2{number}", "before": 0.8, "after": 0.6 + number / 100} for number in range(3)]
Tuning.objects.create(loop=loop, values={"fill_share": 0.8, "caution": 0.2}, days=days, improvement=0.24,
                      instead_of={"fill_share": 0.05, "caution": 0.4}, confidence=0.97, hash="ab" * 32)
print(loop.pk)
"""


@pytest.fixture(scope="module")
def loop(served: Served) -> str:
    return learned_loop(served, "learned")


def learned_loop(served: Served, queue: str) -> str:
    command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", FILL.replace("QUEUE", queue)]
    made = subprocess.run(command, cwd=ROOT, env=served.environment, check=True, capture_output=True, text=True)
    return made.stdout.split()[-1]


@pytest.mark.parametrize("screen", SCREENS)
def test_a_tuning_can_be_read_by_everybody_and_fits(screen, open_page, observer, loop, tmp_path):
    viewport, scheme = SCREENS[screen]
    page = open_page(f"/loops/{loop}/", viewport=viewport, color_scheme=scheme)
    live(page, observer)
    part = page.locator("section", has=page.locator("#tuning-title"))
    expect(part).to_contain_text("would have reduced the cost by 24 %")
    part.get_by_text("Daily cost").click()
    page.screenshot(path=Path(PHOTOGRAPHS or tmp_path) / f"tuning-{screen}.png", full_page=True)
    assert violations(page) == [] and overhang(page) <= 0
