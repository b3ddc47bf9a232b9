"""A browser whose clock is wrong tells the plant's time all the same."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, live
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
