"""The page of a host's loop in a browser: what if is asked as it is typed, and everybody can read it."""

import subprocess
import sys

import orjson
import pytest
import redis
from playwright.sync_api import expect

from queues import keys
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, Observer, Snapshot, live, overhang, violations
from tests.console.served import ROOT, Served

pytestmark = [*BROWSER, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def snapshot(served: Served) -> Snapshot:
    """Of a plant with two hosts, one of which has explored; the console's database has it all, too."""
    environment = {**served.environment, "DJANGO_SETTINGS_MODULE": "console.settings"}
    command = [sys.executable, "-m", "tests.console.browser.explored"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    with redis.Redis.from_url(environment["REDIS_URL"]) as control:
        return orjson.loads(control.get(keys.SNAPSHOT))


@pytest.fixture
def explored(control: redis.Redis, snapshot: Snapshot) -> Observer:
    """Who publishes it."""
    return Observer(control, snapshot)


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_what_if_is_answered_as_it_is_typed(viewport, scheme, open_page, explored):
    loop = explored.snapshot["loops"]["concurrency/jobs@plant-1"]["id"]
    page = open_page(f"/loops/{loop}/", viewport=viewport, color_scheme=scheme)
    live(page, explored)
    part = page.locator("#prediction")
    expect(part).to_contain_text("Steady with")
    expect(part.locator(".dot.now")).to_have_count(1)
    page.get_by_label("Number of processes", exact=True).fill("20")
    expect(part.locator("tr.asked")).to_contain_text("what if")
    page.locator("#would-minimum").fill("12")
    expect(part).to_contain_text("new 12")
    expect(page.locator("#explorations tbody tr").first).to_be_visible()
    assert violations(page) == [] and overhang(page) <= 0
