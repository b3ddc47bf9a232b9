"""A planned window in a browser: planned with a preview, named in the strip, and readable on a phone in the dark."""

import re
import time
from datetime import UTC, datetime

from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, PHONE, live, overhang, violations

pytestmark = BROWSER


def edit_duration(page, minutes):
    page.get_by_role("link", name="Edit", exact=True).click()
    form = page.locator("form", has=page.get_by_role("button", name="Save changes"))
    expect(form.get_by_label("Name")).to_have_value("Security patches")
    expect(form.locator("[data-preview-result] li")).to_have_count(5)
    assert violations(page) == [] and overhang(page) <= 0
    form.get_by_label("Duration").fill(minutes)
    form.get_by_label("Reason").fill("a test")
    form.get_by_role("button", name="Save changes").click()
    page.wait_for_url(re.compile(r"/windows/\d+/$"))


def test_a_window_is_planned_with_a_preview_of_its_occurrences(open_page, observer):
    page = open_page("/windows/")
    form = page.locator("form", has=page.get_by_role("button", name="Plan window"))
    form.get_by_label("Name").fill("Security patches")
    form.locator("[name=scope]").select_option(["plant/main"])
    form.get_by_label("Date").fill(f"{datetime.now(UTC).year + 1}-03-01")
    form.get_by_label("Time zone").fill("Europe/Berlin")
    form.get_by_label("Recurrence rule").fill("FREQ=WEEKLY;BYDAY=SU")
    expect(form.locator("[data-preview-result] li")).to_have_count(5)
    form.get_by_label("Reason").fill("a test")
    form.get_by_role("button", name="Plan window").click()
    page.wait_for_url(re.compile(r"/windows/\d+/"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Security patches")
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert violations(page) == [] and overhang(page) <= 0
    edit_duration(page, "45")
    expect(page.get_by_role("main")).to_contain_text("Version 1: Maintenance")
    assert violations(page) == [] and overhang(page) <= 0
    ending = page.locator("form", has=page.get_by_role("button", name="End all occurrences"))
    ending.get_by_label("Reason").fill("a test")
    ending.get_by_role("button", name="End all occurrences").click()
    expect(page.locator("#window-next")).to_contain_text("No further occurrences.")


def test_a_recurring_silence_has_matchers_and_no_scope(open_page, observer):
    page = open_page("/windows/")
    form = page.locator("form", has=page.get_by_role("button", name="Plan window"))
    form.get_by_label("Type").select_option("silence")
    expect(form.locator("[name=scope]")).to_be_hidden()
    expect(form.get_by_label("Value 1")).to_be_visible()
    form.get_by_label("Type").select_option("freeze")
    expect(form.get_by_label("Value 1")).to_be_hidden()


def test_the_strip_names_a_window_before_it_begins_until_it_ends(open_page, observer):
    page = open_page("/windows/")
    live(page, observer)
    now = time.time()
    window = {"id": 7, "name": "Patches", "kind": "maintenance", "starts_at": now + 1_500, "ends_at": now + 8_700}
    observer.publish(lambda snapshot: snapshot.update(windows=[{**window, "active": False}]))
    strip = page.locator("#strip-window")
    expect(strip).to_contain_text(re.compile(r"Maintenance Patches\s+begins in 2[45]:\d\d"))
    expect(strip).to_have_attribute("href", "/windows/7/")
    observer.publish(lambda snapshot: snapshot.update(windows=[{**window, "active": True}]))
    expect(strip).to_contain_text(re.compile(r"Maintenance Patches\s+until \d\d:\d\d"))
    observer.publish(lambda snapshot: snapshot.update(windows=[]))
    expect(strip).to_be_hidden()
