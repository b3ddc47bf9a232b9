"""Parts of an open page that are written anew: what they show while the server knows less than the page."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from queues import keys
from tests.console.browser.pages.test_plant_page import row
from tests.console.browser.screen import BROWSER, comes, live
from tests.console.browser.test_live_figures import LIVE, SOCKET, close
from tests.waiting import MAX_SECONDS, until

pytestmark = BROWSER
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
    worst = page.locator("#worst li[data-worst]").first
    expect(worst).to_be_visible()
    written_anew(page, observer, overload)
    expect(worst).to_be_visible()


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
