"""Every page can be used by everybody: by its rules, on a phone, from the keyboard, without scripts."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations

pytestmark = BROWSER
PAGES = (
    "/",
    "/nodes/",
    "/nodes/n1/",
    "/queues/",
    "/queues/alert/",
    "/workers/",
    "/pipeline/",
    "/loops/",
    "/loops/1/",  # the rebalancing loop: it is made first
    "/loops/2/",
    "/overrides/",
    "/plans/",
    "/dead-letters/",
    "/alerts/",
    "/alerts/review/",
    "/alerts/silences/",
    "/alerts/rules/node-lost/",
    "/alerts/receivers/",
    "/tasks/",
    "/tasks/retention/",
    "/ledger/",
    "/audit/",
    "/settings/",
)


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["light", "phone"]
)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_can_be_used_by_everybody_and_fits(path, viewport, scheme, open_page, observer):
    page = open_page(path, viewport=viewport, color_scheme=scheme)
    expect(page.locator("#connection")).not_to_have_attribute("data-connection", "reading")
    assert violations(page) == []
    wider = overhang(page)
    assert wider <= 0, f"{path} is {wider} px wider than the screen"


@pytest.mark.parametrize(
    ("path", "heads"),
    [
        ("/queues/", ["Queue", "Waiting", "Wait, s", "In, /s"]),
        ("/nodes/", ["Node", "State", "Use, %"]),
        ("/workers/", ["Container", "Waiting"]),
    ],
)
def test_a_phone_shows_the_most_important_columns_without_scrolling(path, heads, open_page, observer):
    page = open_page(path, viewport=PHONE)
    live(page, observer)
    for head in heads:
        box = page.locator("table[data-table] thead th", has_text=head).first.bounding_box()
        assert box is not None and box["x"] + box["width"] <= PHONE["width"], head


def test_the_keyboard_reaches_everything(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("#nodes-table tbody tr").first).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("alert")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/queues/alert/$"))


def test_the_numbers_are_there_without_scripts(open_page, observer):
    page = open_page("/nodes/", java_script_enabled=False)
    assert page.locator('[data-bind="nodes.n2.utilisation"][data-format="percent"]').text_content() == "78"
    assert page.locator('[data-row="nodes.n2"] .word').text_content() == "Busy"


def test_the_reader_chooses_the_theme_and_it_stays(open_page, observer):
    page = open_page("/settings/", color_scheme="light")
    ground = "getComputedStyle(document.body.parentElement).backgroundColor"
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(ground) == "rgb(15, 19, 24)"
    page.goto("/")
    assert page.evaluate(ground) == "rgb(15, 19, 24)"
