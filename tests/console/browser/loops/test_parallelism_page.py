"""The page of a loop of parallelism in a browser: everybody can read it, and tasks are set by hand."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from playwright.sync_api import expect

from queues import keys
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, Observer, live, overhang, violations
from tests.console.served import ROOT, Served
from tests.servers import Server

pytestmark = [*BROWSER, pytest.mark.slow]
PHOTOGRAPHS = os.environ.get("WEIR_SCREENSHOTS")


@pytest.fixture(scope="module")
def steered(served: Served, _control_server: Server) -> dict[bytes, bytes]:
    """What the control server holds of an application that was steered for three quarters of an hour."""
    environment = {**served.environment, "DJANGO_SETTINGS_MODULE": "console.settings"}
    command = [sys.executable, "-m", "tests.console.browser.steered"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    control = _control_server.client()
    return {key: control.dump(key) for key in control.keys("weir:*")}


@pytest.fixture
def watched(steered, control) -> Observer:
    for key, value in steered.items():
        control.restore(key, 0, value, replace=True)
    return Observer(control, orjson.loads(control.get(keys.SNAPSHOT)))


@pytest.mark.parametrize(
    ("law", "viewport", "scheme"),
    [
        ("joint/performance", DESKTOP, "dark"),
        ("joint/performance", DESKTOP, "light"),
        ("joint/performance", PHONE, "light"),
        ("queueing/performance", DESKTOP, "light"),
        ("forecast/performance/hosts", PHONE, "dark"),
    ],
    ids=["joint-dark", "joint-light", "joint-phone", "queueing", "forecast-phone"],
)
def test_everybody_can_read_who_sets_tasks_and_why(law, viewport, scheme, open_page, watched, tmp_path, request):
    loop = watched.snapshot["loops"][f"parallelism_{law}"]["id"]
    page = open_page(f"/loops/{loop}/", viewport=viewport, color_scheme=scheme)
    live(page, watched)
    expect(page.locator("#deciders .steers")).to_contain_text("joint")
    expect(page.locator("#foreseen path.spread")).to_have_count(1)
    expect(page.locator("#operator-tasks tbody tr")).to_have_count(2)
    name = request.node.callspec.id
    page.screenshot(path=Path(PHOTOGRAPHS or tmp_path) / f"parallelism-{name}.png", full_page=True)
    assert violations(page) == [] and overhang(page) <= 0
