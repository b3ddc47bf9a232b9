"""Another plant in a browser: added, chosen by keyboard, stale; and parts of open pages that are written anew."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from queues import keys
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, comes, live, overhang, violations
from tests.console.browser.test_live_figures import LIVE, SOCKET, close
from tests.waiting import MAX_SECONDS, until

pytestmark = BROWSER


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


@pytest.mark.slow
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


PARTS_ONLY = "x-weir-parts"
WATCH = "INSERT INTO workers_alertwatch (id, fence, looked_at, alive_error) VALUES (1, 0, ?, '')"
EAST = {"name": "east", "kind": "flink", "url": "http://flink.example:8081", "reason": "a test"}


@pytest.fixture
def east(ask):
    """A plant that is registered, whoever observes it."""
    ask("POST", "plants", EAST)
    yield "/plants/east/"
    if any(each["name"] == "east" for each in ask("GET", "plants")["plants"]):
        ask("POST", "plants/east/remove", {"reason": "a test"})


def written_anew(page, observer, change):
    """Publishes this change until the page asks anew, of a server that has no snapshot when it answers."""
    heard = []

    def without_snapshot(route):
        if PARTS_ONLY not in route.request.headers:
            route.fallback()
            return
        observer.control.delete(keys.SNAPSHOT)
        answer = route.fetch()
        heard.append(answer.ok)
        route.fulfill(response=answer)

    def asks():
        observer.publish(change)
        page.wait_for_timeout(250)
        return bool(heard)

    page.route("**/*", without_snapshot)
    until(asks, every_seconds=0.25)
    assert heard[0]
    page.wait_for_timeout(500)  # it is put in place as soon as it has come


def overload(snapshot):
    snapshot["nodes"]["n1"].update(state="TOOBUSY", utilisation=0.97)


def test_a_server_without_a_snapshot_empties_no_part_of_an_open_page(open_page, observer):
    page = open_page("/")
    live(page, observer)
    headline = page.locator("#hero h1")
    expect(headline).to_be_visible()
    written_anew(page, observer, overload)
    expect(headline).to_be_visible()


def test_a_page_of_a_plant_that_is_seen_at_last_shows_it(open_page, observer, east):
    page = open_page(east)
    live(page, observer)
    expect(page.locator("#plant-said")).to_contain_text("it has not been observed yet")
    observer.publish(lambda snapshot: snapshot.update(plants=row()))
    comes(observer, page.get_by_role("heading", name="Operators"))


def test_a_page_whose_subject_is_gone_says_so(open_page, observer, east, ask):
    observer.publish(lambda snapshot: snapshot.update(plants=row()))
    page = open_page(east)
    live(page, observer)
    expect(page.get_by_role("heading", name="Operators")).to_be_visible()
    ask("POST", "plants/east/remove", {"reason": "a test"})
    observer.publish(lambda snapshot: snapshot.update(plants={}))
    comes(observer, page.get_by_role("alert").get_by_text("no longer exists"))


@pytest.fixture
def checked(served):
    """Sets when the alerter checked last, s ago; after the test it never did."""
    path = served.environment["DATABASE_URL"].removeprefix("sqlite:///")

    def check(seconds_ago):
        with closing(sqlite3.connect(path, timeout=MAX_SECONDS)) as connection, connection:
            connection.execute("DELETE FROM workers_alertwatch")
            if seconds_ago is not None:
                at = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=seconds_ago)
                connection.execute(WATCH, (f"{at}",))

    yield check
    check(None)


@pytest.mark.thorough
def test_while_the_plant_is_silent_an_open_page_says_that_nobody_evaluates_alerts(open_page, observer, checked):
    checked(0.0)
    page = open_page("/alerts/")
    live(page, observer)
    expect(page.locator("#alerts-watch")).to_be_hidden()
    checked(60.0)
    expect(page.locator("#disconnected")).to_contain_text("Observer not responding")
    expect(page.locator("#alerts-watch")).to_contain_text("Alert evaluation is not running (last run:")


def test_who_polls_and_may_not_see_any_more_is_not_called_disconnected(open_page, observer):
    def refused(page):
        page.route_web_socket(SOCKET, close)
        page.route(LIVE, lambda route: route.fulfill(status=403, content_type="application/json", body="{}"))

    page = open_page("/nodes/", before=refused)
    expect(page.locator("#disconnected")).to_contain_text("Not allowed. The plant is shown as of")
