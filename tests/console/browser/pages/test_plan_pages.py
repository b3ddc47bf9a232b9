"""A plan in the browser: typed or dragged, approved, stopped, counted on the rail."""

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, live

pytestmark = [*BROWSER, pytest.mark.slow]


def test_points_that_are_dragged_come_from_the_nodes_that_may_change(open_page, observer):
    page = open_page("/queues/alert/")
    live(page, observer)
    form = page.locator("form[data-points]")
    form.locator("[data-drag=n1]").fill("500")
    fields = [form.locator(f"#points-{node}") for node in ("n1", "n2", "n3")]
    would = [int(field.input_value()) for field in fields]
    assert would[0] == 500
    assert sum(would) == 1000
    for field, points in zip(fields[1:], would[1:], strict=True):
        is_now = int(field.get_attribute("data-is") or 0)
        assert points == is_now if field.get_attribute("data-closed") else points < is_now
    expect(form.get_by_role("button", name="Create plan, move 166 points")).to_be_enabled()


def test_a_proposal_is_counted_on_the_rail_as_it_comes(open_page, observer):
    page = open_page("/")
    live(page, observer)
    count = page.locator(".rail .count[data-derived=open_proposals]")
    expect(count).to_have_text("")
    plan = {"id": 7, "state": "proposed", "title": "a plan", "progress_share": 0.0}
    observer.publish(lambda snapshot: snapshot.update(plans=[plan]))
    expect(count).to_have_text("1")
