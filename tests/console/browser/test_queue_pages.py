"""The queues: what waits longest."""

from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, Snapshot, live

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
