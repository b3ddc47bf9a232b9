"""Batch tasks in a browser: a run is begun, followed as it goes on, cancelled; what is wrong stays typed."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, Observer, live, overhang, violations

pytestmark = BROWSER
RUN = {"task": "ledger_copy", "state": "running", "rows": 1_200, "chunks_done": 1, "chunks_total": 4}
FIGURES = {"share": 0.41, "stages_done": 2, "stages_total": 5, "working": 1, "workers_wanted": 1}


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


@pytest.mark.thorough
def test_a_task_is_made_run_followed_and_cancelled(open_page, observer: Observer):
    page = open_page("/tasks/")
    make_task(page)
    live(page, observer)
    change = page.locator("form[action$=change]")
    change.get_by_label("Every", exact=True).check()
    change.get_by_label("Interval", exact=True).fill("0")
    change.get_by_label("Reason").fill("each now and then")
    change.get_by_role("button", name="Save task").click()
    expect(change.locator(".error")).to_contain_text("must be a whole number of seconds up to 1 year")
    expect(change.get_by_label("Reason")).to_have_value("each now and then")
    change.get_by_label("Interval", exact=True).fill("20")
    change.get_by_role("button", name="Save task").click()
    expect(page.locator("#task-figures")).to_contain_text("every 20 minutes")

    run = page.locator("form[action$=run]")
    run.get_by_label("Reason").fill("now, not later")
    run.get_by_role("button", name="Run task").click()
    expect(page.get_by_role("heading", name=re.compile(r"Run \d+ of ledger copy"))).to_be_visible()
    live(page, observer)
    number = page.url.rstrip("/").split("/")[-1]
    started = observer.snapshot["at"] - 41
    observer.publish(lambda seen: seen.update(runs={number: {**RUN, **FIGURES, "started_at": started}}))
    expect(page.locator("#run-progress [data-derived=run_percent]")).to_have_text("41 %")
    expect(page.locator("#run-progress")).to_contain_text("1,200 rows, chunk 1 of 4, stage 2 of 5, 1 running")
    expect(page.locator("#run-figures")).to_contain_text(re.compile(r"About ([3-5]\d|60) s left|About 1 min"))
    page.locator("#run-progress").get_by_label("Reason").fill("it is the wrong hour")
    page.get_by_role("button", name=f"Cancel run {number}").click()
    expect(page.locator("#run-figures .run-state")).to_have_text("Canceled")
    expect(page.get_by_role("button", name=f"Resume run {number}")).to_be_visible()
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        assert violations(page) == []
        assert overhang(page) <= 0


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
