"""Another plant in a real browser: added, chosen in the frame by keyboard, stale, and steered by hand."""

import pytest
from playwright.sync_api import expect

from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.waiting import until

pytestmark = [*BROWSER, pytest.mark.slow]


def far():
    """A plant of four operators as it says of itself."""

    def task(utilisation, events, seconds):
        counted = {"inputs": events, "executions": events, "outputs": events * 0.8}
        return {**counted, "utilisation": utilisation, "service_seconds": seconds, "latency_seconds": 0.04}

    busy, calm = task(0.91, 4_100.0, 0.0021), task(0.31, 1_900.0, 0.0008)
    operators = {
        "Source: came": MeasuredOperator("Source: came", "source", 1, fixed="a source", tasks=({"outputs": 8_200.0},)),
        "parse": MeasuredOperator("parse", "operator", 2, 1, 8, tasks=(busy, task(0.87, 4_000.0, 0.0021))),
        "enrich with the customers' last known place": MeasuredOperator(
            "enrich with the customers' last known place", "operator", 1, 1, 8, tasks=(calm,)
        ),
        "sink": MeasuredOperator("sink", "operator", 1, 1, 8, tasks=(calm,)),
    }
    names = list(operators)
    links = tuple(Link(names[at], names[at + 1], 0.25 * at) for at in range(3))
    return MeasuredTopology("east", 5.0, 10.0, operators, links).to_document()


def row(**more):
    seen = {"kind": "flink", "state": "seen", "age_seconds": 1.2, "error": None, "steered_by": None}
    lag = {"state": "stable", "topics": ["orders"], "lag_events": 48_210, "lag_seconds": 93.4, "trend": "rising"}
    seen |= {"groups": {"billing": lag}}
    seen |= {"tasks": 4, "in_per_second": 820.0, "latency_seconds": 0.83}
    return {"east": {**seen, "topology": far(), **more}}


def seen_after_another_second(page, observer):
    """Each second brings a snapshot; the page is written anew every few."""
    observer.publish(lambda snapshot: snapshot.update(plants=row()))
    page.wait_for_timeout(100)  # the page works only while the test waits on it
    return page.locator("#plant-state").get_by_text("Connected", exact=True).is_visible()


def fits_everybody(page, name):
    for viewport, scheme in ((DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")):
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page) == [], (name, viewport, scheme)
        assert overhang(page) <= 0, (name, viewport)
    page.set_viewport_size(DESKTOP)


def test_a_plant_is_added_chosen_with_the_keyboard_and_shown_as_it_is(open_page, observer):
    page = open_page("/plants/")
    live(page, observer)
    fits_everybody(page, "plants")
    page.get_by_label("Name", exact=True).fill("east")
    page.get_by_label("Kind").select_option("flink")
    page.get_by_label("Address", exact=True).fill("http://flink.example:8081")
    page.get_by_label("Reason").fill("to see it here")
    page.get_by_role("button", name="Add plant").click()
    expect(page.get_by_role("heading", name="East", level=1)).to_be_visible()
    expect(page.locator("#plant-state")).to_contain_text("No report yet")
    until(lambda: seen_after_another_second(page, observer), every_seconds=1.0)
    page.reload()
    fits_everybody(page, "plant-east")
    silent = {"state": "stale", "age_seconds": 12.0, "error": "east did not answer within 2 s."}
    observer.publish(lambda snapshot: snapshot.update(plants=row(**silent)))
    page.reload()
    fits_everybody(page, "plant-stale")
    expect(page.get_by_role("button", name="Set tasks")).to_be_disabled()
    page.goto("/plants/main/")
    fits_everybody(page, "plant-main")
    summary = page.locator(".strip .plant > summary")
    summary.focus()
    page.keyboard.press("Enter")
    page.set_viewport_size(PHONE)
    expect(page.get_by_role("link", name="All plants")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="All plants")).to_be_hidden()
    expect(summary).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="East", level=1)).to_be_visible()
