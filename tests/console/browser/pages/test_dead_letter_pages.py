"""Dead letters in a browser: chosen, put in again, mended beside their error, discarded by name."""

import pytest
from playwright.sync_api import expect

from queues.segments.segment import Segment
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.console.conftest import dead_letter
from tests.queues.samples import blocks_of

pytestmark = [*BROWSER, pytest.mark.slow]


def test_all_that_fit_a_filter_are_counted_on_the_button_before_they_are_put_in_again(open_page, observer, nodes):
    segment = Segment(nodes["n1"].client(), "alert")
    segment.publish(blocks_of(240))
    for each in segment.claim("w", 1_000, 60):
        segment.move_to_dead_letters(each, "w", [(each.block().build_explicit_batch(), "the shop does not answer")])
    page = open_page("/dead-letters/?error=shop")
    live(page, observer)
    page.get_by_label("All 60 that match the filter").check()
    page.locator("#letters").get_by_label("Reason").fill("the shop is back")
    page.get_by_role("button", name="Requeue 60 dead letters").click()
    expect(page.locator(".toast").last).to_have_text("60 dead letters (240 events) requeued.")
    expect(page.locator("#letters")).to_contain_text("No dead letters match this filter.")


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_an_event_is_mended_beside_its_error(viewport, scheme, open_page, observer, nodes):
    dead_letter(nodes["n1"], "n1")
    page = open_page("/dead-letters/", viewport=viewport, color_scheme=scheme)
    live(page, observer)
    assert violations(page) == [] and overhang(page) <= 0
    page.locator("#letters").get_by_role("link", name="a", exact=True).click()
    live(page, observer)
    assert violations(page) == [] and overhang(page) <= 0
    page.get_by_label("Value").fill("much")
    page.locator("form[action$=fix]").get_by_label("Reason").fill("a unit too many")
    page.get_by_role("button", name="Save event").click()
    expect(page.locator(".error")).to_contain_text("must be a number")
    page.get_by_label("Value").fill("2.5")
    page.get_by_role("button", name="Save event").click()
    expect(page.get_by_text("Edited", exact=True)).to_be_visible()
    expect(page.get_by_label("Value")).to_have_value("2.5")
    page.locator("form[action$=act]").get_by_label("Reason").fill("mended")
    page.get_by_role("button", name="Requeue 1 event").click()
    expect(page.get_by_role("heading", name="Dead letters", level=1)).to_be_visible()
