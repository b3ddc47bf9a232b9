"""A plan in the browser: typed or dragged, approved, stopped, counted on the rail."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, Observer, live, overhang, violations

pytestmark = [*BROWSER, pytest.mark.slow]


def propose_by_hand(page: Page, observer: Observer) -> None:
    """120 points of alert from n1 to n2, as typed on the queue's page; its plan is open afterwards."""
    page.goto("/queues/alert/")
    live(page, observer)
    form = page.locator("form[data-points]")
    is_now = {node: int(form.locator(f"#points-{node}").get_attribute("data-is") or 0) for node in ("n1", "n2")}
    form.locator("#points-n1").fill(str(is_now["n1"] - 120))
    expect(form.locator("[data-difference]")).to_have_text("The sum is 880. Add 120 to reach 1,000.")
    expect(form.locator("button.primary")).to_be_disabled()
    form.locator("#points-n2").fill(str(is_now["n2"] + 120))
    expect(form.locator("[data-difference]")).to_contain_text("n1 loses 120; n2 gains 120.")
    form.get_by_label("Reason").fill("n1 shares its host")
    form.get_by_role("button", name="Create plan, move 120 points").click()
    expect(page.get_by_role("heading", name="Change points of alert: move 120 points")).to_be_visible()


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


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_an_open_plan_can_be_used_by_everybody_and_fits(viewport, scheme, open_page, observer):
    page = open_page("/", viewport=viewport, color_scheme=scheme)
    propose_by_hand(page, observer)
    live(page, observer)
    assert violations(page) == []
    assert overhang(page) <= 0
    expect(page.get_by_role("button", name="Approve plan, move 120 points")).to_be_in_viewport()


def test_a_plan_is_approved_and_stopped_beside_the_list(open_page, observer):
    page = open_page("/")
    propose_by_hand(page, observer)
    drawer = page.locator("#drawer")
    expect(drawer.locator(".voids")).to_contain_text(re.compile(r"Expires in [45]:\d\d"))
    observer.publish()
    drawer.get_by_label("Reason").fill("n1 is slow")
    drawer.get_by_role("button", name="Approve plan").click()
    expect(drawer.locator(".plan-state")).to_have_text("Approved")
    drawer.get_by_label("Reason").fill("on second thoughts")
    drawer.get_by_role("button", name="Stop plan").click()
    expect(drawer.locator(".plan-state")).to_have_text("Stopped")
    expect(drawer).to_contain_text("on second thoughts")
    page.locator("h1").click()
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("/plans/$"))
    expect(page.locator("#ended-plans tbody tr").first).to_contain_text("Stopped")


def test_what_the_law_has_nothing_to_say_to_is_said_under_the_title(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    page.get_by_role("button", name="Relieve busy nodes").click()
    expect(page.locator("#said")).to_be_visible()
    expect(page.locator("#said")).not_to_have_text("")
    expect(page).to_have_url(re.compile("/nodes/$"))


def test_a_proposal_is_counted_on_the_rail_as_it_comes(open_page, observer):
    page = open_page("/")
    live(page, observer)
    count = page.locator(".rail .count[data-derived=open_proposals]")
    expect(count).to_have_text("")
    plan = {"id": 7, "state": "proposed", "title": "a plan", "progress_share": 0.0}
    observer.publish(lambda snapshot: snapshot.update(plans=[plan]))
    expect(count).to_have_text("1")
