"""Another plant in a real browser: added, chosen in the frame by keyboard, stale, and steered by hand."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.waiting import until

pytestmark = [*BROWSER, pytest.mark.slow]
PHOTOGRAPHS = os.environ.get("WEIR_SCREENSHOTS")


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
    seen |= {"tasks": 4, "in_per_second": 820.0, "latency_seconds": 0.83}
    return {"east": {**seen, "topology": far(), **more}}


def seen_after_another_second(page, observer):
    """Each second brings a snapshot; the page is written anew every few."""
    observer.publish(lambda snapshot: snapshot.update(plants=row()))
    page.wait_for_timeout(100)  # the page works only while the test waits on it
    return page.locator("#plant-state").get_by_text("Connected", exact=True).is_visible()


def photographed(page, name, tmp_path):
    for screen, viewport, scheme in (("light", DESKTOP, "light"), ("dark", DESKTOP, "dark"), ("phone", PHONE, "light")):
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.screenshot(path=Path(PHOTOGRAPHS or tmp_path) / f"{name}-{screen}.png", full_page=True)
        assert violations(page) == [], (name, screen)
        assert overhang(page) <= 0, (name, screen)
    page.set_viewport_size(DESKTOP)


def test_a_plant_is_added_chosen_with_the_keyboard_and_shown_as_it_is(open_page, observer, tmp_path):
    page = open_page("/plants/")
    live(page, observer)
    photographed(page, "plants", tmp_path)
    page.get_by_label("Name", exact=True).fill("east")
    page.get_by_label("Kind").select_option("flink")
    page.get_by_label("Address", exact=True).fill("http://flink.example:8081")
    page.get_by_label("Reason").fill("to see it here")
    page.get_by_role("button", name="Add plant").click()
    expect(page.get_by_role("heading", name="East", level=1)).to_be_visible()
    expect(page.locator("#plant-state")).to_contain_text("No report yet")
    until(lambda: seen_after_another_second(page, observer), every_seconds=1.0)
    page.reload()
    photographed(page, "plant-east", tmp_path)
    silent = {"state": "stale", "age_seconds": 12.0, "error": "east did not answer within 2 s."}
    observer.publish(lambda snapshot: snapshot.update(plants=row(**silent)))
    page.reload()
    photographed(page, "plant-stale", tmp_path)
    expect(page.get_by_role("button", name="Set tasks")).to_be_disabled()
    page.goto("/plants/main/")
    photographed(page, "plant-main", tmp_path)
    summary = page.locator(".strip .plant > summary")
    summary.focus()
    page.keyboard.press("Enter")
    page.screenshot(path=Path(PHOTOGRAPHS or tmp_path) / "switcher.png")
    page.set_viewport_size(PHONE)
    page.screenshot(path=Path(PHOTOGRAPHS or tmp_path) / "switcher-phone.png")
    expect(page.get_by_role("link", name="All plants")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="All plants")).to_be_hidden()
    expect(summary).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="East", level=1)).to_be_visible()


def kafka():
    """A cluster with groups that are behind, level, and left behind by a topic that is gone."""

    def partition(number, committed, end, seconds, **more):
        counted = {"lag_events": end - committed, "lag_seconds": seconds, "member": "billing-worker-1"}
        return {"topic": "orders", "partition": number, "committed": committed, "end": end, **counted, **more}

    groups = {
        "billing": {
            "state": "stable",
            "members": [
                {"client": "billing-worker-1", "host": "/10.0.3.17", "partitions": 2},
                {"client": "billing-worker-2", "host": "/10.0.3.18", "partitions": 1},
            ],
            "topics": ["orders"],
            "lag_events": 48_210,
            "lag_seconds": 93.4,
            "trend": "rising",
            "in_per_second": 812.0,
            "out_per_second": 300.5,
            "expired_events": 1_204,
            "partition_count": 3,
            "partitions": [
                partition(0, 91_100, 133_000, 93.4, said="1,204 events expired before they were read"),
                partition(1, 70_000, 76_310, 12.1, member="billing-worker-2"),
                {
                    "topic": "returns",
                    "partition": 0,
                    "committed": 17,
                    "said": "the topic no longer exists; its committed offsets are ignored",
                },
            ],
        },
        "etl": {"state": "empty", "topics": ["orders"], "lag_events": 40, "lag_seconds": 6.0, "at_least": True},
        "mail": {
            "state": "stable",
            "topics": ["mails"],
            "lag_events": 0,
            "lag_seconds": 0.0,
            "clearing_seconds": 0.0,
            "trend": "steady",
            "in_per_second": 3.0,
            "out_per_second": 3.0,
        },
    }
    operators = {
        "topics/orders": MeasuredOperator("topics/orders", "source", 3, 0, 3, "a topic"),
        **{
            f"groups/{name}": MeasuredOperator(f"groups/{name}", "operator", 2, 0, 2, "Kafka can't start consumers")
            for name in groups
        },
    }
    links = tuple(Link("topics/orders", f"groups/{name}", 93.4) for name in groups)
    topology = MeasuredTopology("events", 5.0, 30.0, operators, links).to_document()
    return {"kind": "kafka", "state": "seen", "age_seconds": 1.2, "topology": topology, "groups": groups}


def test_the_lag_of_consumer_groups_is_read_at_a_glance(open_page, observer, tmp_path):
    page = open_page("/plants/")
    live(page, observer)
    page.get_by_label("Name", exact=True).fill("events")
    page.get_by_label("Kind").select_option("kafka")
    page.get_by_label("Address", exact=True).fill("kafka://broker.example:9092")
    page.get_by_label("Reason").fill("to see it here")
    photographed(page, "kafka-form", tmp_path)
    page.get_by_role("button", name="Add plant").click()
    expect(page.get_by_role("heading", name="Events", level=1)).to_be_visible()
    observer.publish(lambda snapshot: snapshot.update(plants={"events": kafka()}))
    page.reload()
    first = page.locator("#plant-groups tbody tr").first
    expect(first).to_contain_text("billing")
    expect(first).to_contain_text("93.4")
    photographed(page, "plant-kafka", tmp_path)
