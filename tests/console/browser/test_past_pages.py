"""Whoever looks at the past comes to the present knowingly: by each way that leads to another page."""

import re
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER
from workers.history.snapshot_archive import Recorder

pytestmark = BROWSER
AT = re.compile(r"\?at=20\d\d-")


@pytest.fixture
def past(observer, served):
    """The plant of twenty minutes ago, as an address names it."""
    then = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=20)
    was = {**observer.snapshot, "at": then.timestamp()}
    Recorder(served.log.parent).add(was["at"], orjson.dumps(was))
    return f"at={then:%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.thorough
def test_what_the_palette_finds_is_shown_as_of_then(open_page, past):
    page = open_page(f"/?{past}")
    page.keyboard.press("/")
    page.keyboard.type("workers")
    expect(page.locator("#search-results [data-url]").first).to_contain_text("Workers")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/workers/{AT.pattern}"))
    expect(page.get_by_text("Plant state at")).to_be_visible()


@pytest.mark.thorough
def test_what_is_closed_leads_to_the_list_as_of_then(open_page, past):
    page = open_page(f"/pipeline/performance/operators/hosts/?{past}")
    expect(page.locator("a[data-close]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(f"/pipeline/performance/{AT.pattern}"))
