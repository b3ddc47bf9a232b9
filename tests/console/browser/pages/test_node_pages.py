"""The nodes: worst first, taken out of use and back."""

import re

import pytest
from playwright.sync_api import Request, Route, expect

from tests.console.browser.screen import BROWSER, comes, live

pytestmark = BROWSER


def test_the_worst_row_is_first_and_no_row_moves_under_the_pointer(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    names = page.locator("#nodes-table tbody tr th")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.locator("#nodes-table tbody tr").first.hover()
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(state="TOOBUSY", utilisation=0.97))
    observer.publish(lambda snapshot: snapshot["nodes"]["n3"].update(state="IDLE", stale=False, utilisation=0.0))
    expect(page.locator('[data-row="nodes.n1"] .word')).to_have_text("Too busy")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.mouse.move(5, 5)
    observer.publish()
    expect(names).to_have_text(["n1", "n2", "n3"])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("screen", [{}, {"has_touch": True, "is_mobile": True}], ids=["mouse", "finger"])
def test_a_list_that_was_sorted_by_hand_goes_on_with_the_plant(screen, open_page, observer):
    """A click leaves the focus on the column's head, a finger the pointer over it: nobody works there."""
    page = open_page("/nodes/", **screen)
    live(page, observer)
    head = page.locator("#nodes-table").get_by_role("button", name="In, /s")
    if screen:
        head.tap()
    else:
        head.click()
        page.mouse.move(5, 5)
    n1 = observer.snapshot["nodes"]["n1"]
    observer.publish(lambda snapshot: snapshot["nodes"].update(n0={**n1, "in_per_second": 70_000.0, "state": "BUSY"}))
    comes(observer, page.locator('[data-row="nodes.n0"]'))
    names = page.locator("#nodes-table tbody tr th")
    expect(names.first).to_have_text("n0")
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=80_000.0))
    expect(names.first).to_have_text("n1")


@pytest.mark.thorough
def test_a_list_that_nobody_got_an_answer_for_is_asked_for_again(open_page, observer):
    """A console with a full line answers 503; a proxy does while the console starts."""
    page = open_page("/nodes/")
    live(page, observer)
    refused = []

    def refuse(route: Route) -> None:
        if "x-weir-parts" in route.request.headers and not refused:
            refused.append(route.request.url)
            route.fulfill(status=503, content_type="text/plain", body="busy")
        else:
            route.continue_()

    page.route(re.compile("/nodes/$"), refuse)
    observer.publish(lambda snapshot: snapshot["nodes"].update(n5={**snapshot["nodes"]["n1"]}))
    comes(observer, page.locator('[data-row="nodes.n5"]'))
    assert refused


@pytest.mark.thorough
def test_a_filter_is_about_what_the_rows_say_now(open_page, observer):
    page = open_page("/nodes/?filter=offline")
    live(page, observer)
    n1 = page.locator('[data-row="nodes.n1"]')
    expect(n1).to_be_hidden()
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(state="OFFLINE", stale=True))
    expect(n1).to_be_visible()


@pytest.mark.thorough
def test_a_filter_that_is_being_typed_is_left_as_it_is_typed(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    field = page.get_by_label("Filter nodes")
    field.press_sequentially("N1 ")
    page.evaluate("document.getElementById('nodes-rows').dataset.before = 'n7'")
    observer.publish(lambda snapshot: snapshot["nodes"].update(n7={**snapshot["nodes"]["n1"]}))
    comes(observer, page.locator("#nodes-rows:not([data-before])"))
    expect(field).to_have_value("N1 ")
    expect(page.locator('[data-row="nodes.n7"]')).to_be_hidden()


@pytest.mark.thorough
def test_a_page_that_nobody_sees_fetches_its_lists_when_somebody_does(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    fetched: list[str] = []

    def note(request: Request) -> None:
        if "x-weir-parts" in request.headers:
            fetched.append(request.url)

    def hide(hidden: str) -> None:
        page.evaluate(
            f"""() => {{
              Object.defineProperty(document, "hidden", {{ value: {hidden}, configurable: true }});
              document.dispatchEvent(new Event("visibilitychange"));
            }}"""
        )

    page.on("request", note)
    hide("true")
    observer.publish(lambda snapshot: snapshot["nodes"].update(n6={**snapshot["nodes"]["n1"]}))
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=4_321.0))
    expect(page.locator('[data-bind="nodes.n1.in_per_second"]')).to_have_text("4,321")
    assert fetched == []
    hide("false")
    comes(observer, page.locator('[data-row="nodes.n6"]'))
    assert fetched


@pytest.mark.thorough
def test_what_the_server_refuses_stands_beside_its_field(open_page, observer):
    page = open_page("/nodes/n1/")
    live(page, observer)
    page.get_by_label("Too busy").fill("0.3")
    page.locator("#steer").get_by_label("Reason").fill("below busy, which can't be")
    page.locator("#steer button.primary").click()
    expect(page.locator("td", has=page.get_by_label("Too busy")).locator(".error")).to_be_visible()
    expect(page.locator("[data-override]")).to_have_count(0)
