"""The overview: the map of the flow."""

from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, Snapshot, live

pytestmark = BROWSER


def test_the_map_colours_only_what_arrives_at_a_node_in_trouble(open_page, observer):
    def arrive(snapshot: Snapshot) -> None:
        for queue in snapshot["queues"].values():
            row = queue["containers"]["n1"]
            queue["containers"] = {name: {**row, "in_per_second": 5.0} for name in snapshot["nodes"]}

    page = open_page("/")
    live(page, observer)
    observer.publish(arrive)
    bands = page.locator("#flow .band.to-BUSY")
    expect(bands).to_have_count(2)  # telemetry and alert, both into n2
    expect(page.locator("#flow .band.to-TOOBUSY")).to_have_count(0)
