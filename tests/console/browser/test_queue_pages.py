"""The queues: what waits longest, and dead letters."""

from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, Snapshot, live, violations
from tests.console.conftest import bury

pytestmark = BROWSER


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


def test_dead_letters_are_put_in_again_or_discarded_by_name(open_page, observer, nodes):
    bury(nodes["n1"], "n1")
    bury(nodes["n2"], "n2")
    page = open_page("/queues/alert/")
    live(page, observer)
    letters = page.locator("#dead-letters tbody tr")
    expect(letters).to_have_count(2)
    expect(letters.first).to_contain_text("a e-n")
    assert violations(page) == []
    letters.filter(has_text="e-n1").get_by_role("checkbox").check()
    page.locator("#dead-letters").get_by_label("Reason").fill("the sink is back")
    page.get_by_role("button", name="Requeue 1 letter").click()
    expect(letters).to_have_count(1)
    page.get_by_label("Select all shown").check()
    page.locator("#dead-letters").get_by_label("Reason").fill("test data")
    page.get_by_role("button", name="Discard 1 letter for good").click()
    expect(page.locator("#dead-letters .error")).to_contain_text("can't be brought back")
    page.get_by_label("Type alert to discard").fill("alert")
    page.get_by_role("button", name="Discard 1 letter for good").click()
    expect(page.locator("#dead-letters")).to_contain_text("No dead letters.")
