"""The queues: what waits longest."""

import time

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, Snapshot, live

pytestmark = BROWSER


@pytest.mark.thorough
def test_what_waits_for_nobody_knows_how_long_stands_first(open_page, observer):
    page = open_page("/queues/")
    live(page, observer)

    def stand_still(snapshot: Snapshot) -> None:
        snapshot["queues"]["alert"].update(wait_seconds=None, waiting_events=5)
        snapshot["queues"]["telemetry"].update(wait_seconds=90.0)

    observer.publish(stand_still)
    expect(page.locator("#queues-table tbody th")).to_have_text(["alert", "telemetry"])
    observer.publish(lambda snapshot: snapshot["queues"]["alert"].update(waiting_events=0))
    expect(page.locator("#queues-table tbody th")).to_have_text(["telemetry", "alert"])


@pytest.mark.thorough
def test_ctrl_k_finds_by_name_and_the_keyboard_goes_there(open_page, observer):
    page = open_page("/queues/")
    live(page, observer)
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search pages, objects, and commands")
    expect(field).to_be_focused()
    field.fill("silence")
    options = page.get_by_role("option")
    expect(options.filter(has_text="Silence alerts")).to_be_visible()
    expect(options.first).to_have_attribute("aria-selected", "true")
    first = field.get_attribute("aria-activedescendant")
    page.keyboard.press("ArrowDown")
    expect(field).not_to_have_attribute("aria-activedescendant", first or "")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/alerts/silences/**")


@pytest.mark.thorough
def test_a_rate_that_went_to_another_level_has_a_line_on_its_chart(open_page, observer):
    page = open_page("/queues/alert/")
    live(page, observer)

    def change_levels(snapshot: Snapshot) -> None:
        changes = [{"at": time.time() - 500, "before": 41.26, "after": 12.5}]
        band = {"low": 9.0, "high": 16.0, "days": 2.0, "minute": 12.4, "changes": changes}
        snapshot["bands"] = {"totals": {}, "queues": {"alert": {"in_per_second": band}}}

    observer.publish(change_levels)
    for _ in range(3):
        observer.publish()
    page.wait_for_function(
        """() => [...document.querySelectorAll("figure.chart .js-plotly-plot")].some(({ layout, data }) =>
          layout.shapes.some(({ line }) => line.dash === "dot")
          && layout.annotations.some(({ text }) => text === "41.3 → 12.5")
          && data.some(({ customdata }) => customdata?.[0]?.endsWith("rate changed, 41.3 → 12.5")))"""
    )
