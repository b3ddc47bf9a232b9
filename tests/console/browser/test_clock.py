"""A browser whose clock is wrong tells the plant's time all the same."""

import re
import time
from types import SimpleNamespace

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser import screen
from tests.console.browser.screen import BROWSER, Observer, figure, live
from tests.console.browser.test_forms import reverting

pytestmark = BROWSER
HOURS = {"two hours fast": 2, "two hours slow": -2}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", HOURS)
def test_a_wrong_clock_makes_no_data_old_and_moves_no_countdown(case, open_page, observer):
    shift = f"const now = Date.now; Date.now = () => now() + {HOURS[case] * 3_600_000};"
    page = open_page("/nodes/", before=lambda page: page.add_init_script(shift))
    live(page, observer)
    observer.publish(reverting(observer, 600))
    expect(page.locator("#connection")).to_have_attribute("data-connection", "live")
    expect(page.locator("#connection .age")).to_have_text(re.compile(r"^· [0-2](\.\d)? s$"))
    expect(page.locator("#strip-overrides [data-until]")).to_have_text(re.compile(r"^(9:5\d|10:00)$"))
    assert abs(page.evaluate("Date.now()") / 1000 - time.time()) > 7_000


@pytest.mark.thorough
def test_a_clock_that_is_put_right_while_a_page_is_open_makes_nothing_old(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    follow_on(page, observer, 1_234)
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 10_000; }")
    follow_on(page, observer, 4_321)


@pytest.mark.thorough
def test_a_plants_clock_that_is_put_back_makes_nothing_old(open_page, observer, monkeypatch):
    page = open_page("/nodes/")
    live(page, observer)
    follow_on(page, observer, 1_234)
    monkeypatch.setattr(screen, "time", SimpleNamespace(time=lambda: time.time() - 10))
    follow_on(page, observer, 4_321)


def follow_on(page: Page, observer: Observer, rate: float) -> None:
    """The page has heard of this change, and calls what it shows live."""
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=rate))
    expect(figure(page, "nodes.n1.in_per_second")).to_have_text(f"{rate:,}")
    live(page, observer)
