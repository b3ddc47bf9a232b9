"""The nodes: worst first, taken out of use and back."""

from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, live

pytestmark = BROWSER


def test_the_worst_row_is_first_and_no_row_moves_under_the_pointer(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    names = page.locator("#nodes-table tbody tr th")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.locator("#nodes-table tbody tr").first.hover()
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(state="TOOBUSY", utilisation=0.97))
    observer.publish(
        lambda snapshot: snapshot["nodes"]["n3"].update(state="IDLE", stale=False, utilisation=0.0)
    )
    expect(page.locator('[data-row="nodes.n1"] .word')).to_have_text("Too busy")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.mouse.move(5, 5)
    observer.publish()
    expect(names).to_have_text(["n1", "n2", "n3"])


def test_a_node_that_joins_gets_its_row(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    observer.publish(lambda snapshot: snapshot["nodes"].update(n4={**snapshot["nodes"]["n1"]}))
    expect(page.locator('[data-row="nodes.n4"]')).to_be_visible(timeout=8_000)


def test_a_node_is_cordoned_from_its_row_and_taken_back(open_page, observer, nodes):
    page = open_page("/nodes/")
    live(page, observer)
    expect(page.get_by_role("button", name="Cordon")).to_be_disabled()
    page.get_by_label("Choose n2").check()
    page.get_by_label("Reason").fill("a look at its disk")
    page.get_by_role("button", name="Cordon n2").click()
    expect(page.locator(".toast").last).to_contain_text("n2 keeps what it has and takes no new points.")
    observer.publish(lambda snapshot: snapshot["nodes"]["n2"].update(cordoned=True))
    expect(page.locator('[data-row="nodes.n2"] .flags')).to_have_text("cordoned")
    page.goto("/nodes/n2/")
    page.locator("#node-use").get_by_label("Reason").fill("it is well")
    page.get_by_role("button", name="Take n2 back").click()
    expect(page.locator("#node-use")).to_contain_text("Drain makes a plan")


def test_what_the_server_refuses_stands_beside_its_field(open_page, observer):
    page = open_page("/nodes/n1/")
    live(page, observer)
    page.get_by_label("Too busy").fill("0.3")
    page.locator("#steer").get_by_label("Reason").fill("below busy, which can't be")
    page.locator("#steer button.primary").click()
    expect(page.locator("td", has=page.get_by_label("Too busy")).locator(".error")).to_be_visible()
    expect(page.locator("[data-override]")).to_have_count(0)
