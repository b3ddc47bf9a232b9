"""An alert that the real alerter raised, in a browser: on a phone in three taps, by key, as a notice."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, PHONE, live, overhang, violations
from tests.console.browser.test_forms import reverting
from tests.console.served import ROOT
from tests.waiting import MAX_SECONDS, until
from workers.history.snapshot_archive import Recorder

pytestmark = [*BROWSER, pytest.mark.slow]
# Notifications, counted. Where the browser permits none, these stand in for its own.
COUNTED = """
window.shown = [];
class Permitted {
  static permission = "granted";
  static requestPermission() { return Promise.resolve("granted"); }
  close() {}
}
window.Notification = class extends (Notification.permission === "granted" ? Notification : Permitted) {
  constructor(title, options) {
    super(title, options);
    window.shown.push(`${title} ${options.tag}`);
  }
};
"""


OF_NO_LOOPS = "UPDATE workers_alertrule SET enabled = ? WHERE name = 'loops-stopped'"


@pytest.fixture(scope="module")
def no_loops_missed(served):
    """No loop ticks here. Its alert, 20 s after the start, would come before those that tests wait for."""

    def enable(enabled):
        database = served.log.parent / "weir.sqlite3"
        with closing(sqlite3.connect(database, timeout=MAX_SECONDS)) as connection, connection:
            assert connection.execute(OF_NO_LOOPS, (enabled,)).rowcount == 1

    enable(False)
    yield
    enable(True)


@pytest.fixture(scope="module")
def alerter(served, no_loops_missed):
    """`manage.py alert` on the console's database."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "alert"], cwd=ROOT, env=served.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield
    process.terminate()
    process.wait(MAX_SECONDS)


@pytest.fixture(scope="module")
def cookie(served):
    return served.log_in()


@pytest.fixture
def alert(served, alerter, cookie, observer):
    """Node n3 has been silent for 14 s, and the alerter has seen it; the observer says so too."""

    def fired():
        observer.publish()
        with closing(served.connection()) as connection:
            connection.request("GET", "/api/v1/alerts", headers={"Cookie": cookie})
            rows = orjson.loads(connection.getresponse().read())["alerts"]
        return next((row for row in rows if row["rule"] == "node-lost"), None)

    row = until(fired, every_seconds=0.5)
    observer.publish(lambda snapshot: snapshot.update(alerts=[row]))
    return row


def test_from_the_overview_an_alert_is_acknowledged_on_a_phone_in_three_taps(open_page, observer, alert):
    page = open_page("/", viewport=PHONE, has_touch=True)
    live(page, observer)
    page.locator(".tabs").get_by_role("link", name=re.compile("Incidents")).tap()
    page.get_by_role("link", name=alert["title"]).tap()
    button = page.locator(".action-bar").get_by_role("button", name="Acknowledge", exact=True)
    expect(button).to_be_in_viewport()
    assert violations(page) == [] and overhang(page) <= 0
    button.tap()
    expect(page.locator("#alert-head")).to_contain_text("Acknowledged by admin; fires again in")
    expect(page.locator(".toast")).to_contain_text("Acknowledged until")


def test_the_key_a_acknowledges_and_a_note_stays_what_it_is(open_page, observer, alert):
    page = open_page(f"/alerts/{alert['id']}/")
    live(page, observer)
    page.keyboard.press("a")
    expect(page.locator(".toast").first).to_contain_text("Acknowledged until")
    expect(page.locator("#alert-events")).to_contain_text("Acknowledged by admin")
    page.get_by_role("textbox", name="Note").fill("<img src=x onerror=alert(1)>")
    page.get_by_role("button", name="Add note").dblclick()
    # Who was notified meanwhile may stand above it.
    expect(page.locator("#alert-events small", has_text="onerror")).to_have_text("<img src=x onerror=alert(1)>")
    assert violations(page) == []


def test_a_silence_says_what_it_would_hide_before_it_is_set(open_page, observer, alert):
    page = open_page(f"/alerts/silences/?alert={alert['id']}")
    live(page, observer)
    said = page.locator("[data-preview-result]")
    expect(said).to_contain_text("The silence would suppress 1 open alert")
    expect(said.get_by_role("link", name=alert["title"])).to_be_visible()
    page.get_by_label("Value 1").fill("n7")
    expect(said).to_contain_text("The silence would suppress no open alerts")
    page.get_by_role("button", name="Create silence").click()
    assert page.get_by_label("Reason").evaluate("field => field.validity.valueMissing")


def test_the_test_of_the_browsers_shows_in_this_one_and_stands_in_the_list(open_page, observer, alert):
    def prepared(page):
        page.context.grant_permissions(["notifications"])
        page.add_init_script(COUNTED)

    page = open_page("/alerts/receivers/", before=prepared)
    live(page, observer)
    page.get_by_role("button", name="Send test").click()
    # The alert itself may be announced as well.
    until(lambda: shown(page)[-1:] == ["Notice: Receiver test weir-alert-test"])
    expect(page.locator("#messages")).to_contain_text("Receiver test")
    page.get_by_label("Channel").select_option("apprise")
    expect(page.get_by_label("the secret that authenticates chat replies")).to_be_visible()


def announced(observer, alert, announce):
    """The alert calls (again): a step of its escalation tells the browsers."""
    calls = {**alert, "state": "firing", "quiet": None, "announce": announce}
    observer.publish(lambda snapshot: snapshot.update(alerts=[calls]))


def shown(page):
    return page.evaluate("window.shown")


def test_each_step_is_a_notification_once_also_after_a_reload_and_a_lost_connection(open_page, observer, alert):
    sockets = []

    def prepared(page):
        page.context.grant_permissions(["notifications"])
        page.add_init_script(COUNTED)
        page.route_web_socket("**/live/**", lambda route: sockets.append(route) or route.connect_to_server())

    page = open_page("/nodes/", before=prepared)
    live(page, observer)
    announced(observer, alert, "1.0")
    note = f"Critical: {alert['title']} weir-alert-{alert['id']}"
    until(lambda: shown(page) == [note])
    expect(page).to_have_title(re.compile(r"^\(1\) Nodes"))
    page.reload()
    live(page, observer)
    assert shown(page) == []
    sockets[-1].close()
    announced(observer, alert, "2.0")
    until(lambda: observer.publish() or shown(page) == [note], every_seconds=0.5)


# As on a phone: through a worker only, which must be active by the standard; the first `failures` are lost.
ON_A_PHONE = """
window.shown = [];
window.Notification = class {
  static permission = "granted";
  constructor() { throw new TypeError("Illegal constructor"); }
};
let failures = FAILURES;
ServiceWorkerRegistration.prototype.showNotification = async function (title, options) {
  if (!this.active || failures-- > 0) throw new TypeError("No active registration available");
  window.shown.push(`${title} ${options.tag}`);
};
"""


@pytest.mark.parametrize("failures", [0, 1])
def test_the_first_alert_that_a_phone_is_open_for_is_shown_there(failures, open_page, observer, alert):
    def prepared(page):
        page.add_init_script(ON_A_PHONE.replace("FAILURES", str(failures)))

    page = open_page("/nodes/", before=prepared, viewport=PHONE)
    live(page, observer)
    announced(observer, alert, "1.0")
    note = f"Critical: {alert['title']} weir-alert-{alert['id']}"
    until(lambda: observer.publish() or shown(page), every_seconds=0.5)
    observer.publish()
    assert shown(page) == [note]


def test_a_page_of_the_past_notifies_nobody_of_what_called_then(open_page, observer, alert, served):
    """Neither of the alert, in the step that it was in, nor of an override that was about to end."""

    def prepared(page):
        page.context.grant_permissions(["notifications"])
        page.add_init_script(COUNTED)

    then = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    was = {**observer.snapshot, "at": then.timestamp(), "alerts": [{**alert, "announce": "1.0"}]}
    reverting(observer, 60)(was)
    was["overrides"][0] |= {"notice_at": was["at"] - 1, "expires_at": was["at"] + 60}
    Recorder(served.log.parent).add(was["at"], orjson.dumps(was))
    page = open_page(f"/nodes/?at={then:%Y-%m-%dT%H:%M:%SZ}", before=prepared)
    expect(page.locator("#connection")).to_have_attribute("data-connection", "past")
    expect(page.locator("#strip-incidents .word")).to_have_text(f"Incident {alert['id']}")
    page.evaluate("new Promise((done) => navigator.locks.request('weir-announce', done))")
    assert shown(page) == []
    assert page.locator(".toast").count() == 0
    expect(page).to_have_title(re.compile("^Nodes"))
