"""Batch tasks in a browser: a run is begun, followed as it goes on, cancelled; what is wrong stays typed."""

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.screen import BROWSER, live

pytestmark = BROWSER


def make_task(page: Page, name: str = "ledger_copy") -> None:
    """A task of a job that has one chunk after the other, as an administrator makes it."""
    page.goto("/tasks/")
    page.get_by_text("New task").click()
    form = page.locator("form[action$=define]")
    form.get_by_label("Name").fill(name)
    form.get_by_label("Job").fill("metric_spill")
    form.get_by_label("Reason").fill("a test of the form")
    form.get_by_role("button", name="Create task").click()
    title = name.replace("_", " ").capitalize()
    expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"])
def test_a_deadline_typed_in_utc_is_that_time_in_utc_wherever_it_is_typed(zone, open_page, observer):
    page = open_page("/tasks/", timezone_id=zone)
    make_task(page, f"due_in_{zone.split('/')[1].lower()}")
    live(page, observer)
    due = (datetime.now(UTC) + timedelta(days=1)).replace(second=0, microsecond=0)
    run = page.locator("form[action$=run]")
    run.get_by_label("Deadline, UTC").fill(f"{due:%Y-%m-%dT%H:%M}")
    run.get_by_label("Reason").fill("done by tomorrow")
    run.get_by_role("button", name="Run task").click()
    shown = page.locator("#run-figures .figure", has_text="Deadline").locator("time")
    assert datetime.fromisoformat(shown.get_attribute("datetime")) == due
