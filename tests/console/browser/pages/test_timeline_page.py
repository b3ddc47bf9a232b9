"""The timeline in a hand: a click looks, a drag zooms, keys move the cursor, one click goes live again."""

import re
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live
from tests.waiting import until
from tests.workers.snapshots import snapshot_of
from workers.history import metrics
from workers.history.snapshot_archive import Recorder

pytestmark = [*BROWSER, pytest.mark.slow]
MINUTES = 12


@pytest.fixture
def measured(observer, control, served):
    """Twelve measured minutes up to now, kept as the observer keeps them; gives when they began."""
    begin = time.time() - MINUTES * 60
    recorder, writer = Recorder(served.log.parent), metrics.MetricWriter(control)
    for second in range(MINUTES * 60):
        snapshot = {**observer.snapshot, "at": begin + second}
        snapshot["totals"] = {**snapshot["totals"], "in_per_second": float(second)}
        writer.append(control, snapshot_of(snapshot), f"{round((begin + second) * 1000)}-0")
        recorder.add(begin + second, orjson.dumps(snapshot))
    return begin


def csrf_of(cookie):
    return next(each.split("=", 1)[1] for each in cookie.split("; ") if each.startswith("csrftoken="))


def rate(page):
    return float(page.locator('[data-value="totals.in_per_second"]').inner_text().replace(",", ""))


def at_share(page, share):
    plots = page.locator("[data-plots]")
    expect(plots).to_be_visible()
    # A part that is just written anew has no box for an instant.
    box = until(plots.bounding_box)
    assert box is not None
    return box["x"] + share * box["width"], box["y"] + box["height"] - 40


def test_the_pointer_reads_values_and_a_click_sets_the_instant(open_page, observer, measured):
    page = open_page("/timeline/?minutes=10")
    live(page, observer)
    page.mouse.move(*at_share(page, 0.5))
    until(lambda: abs(rate(page) - (MINUTES - 5) * 60) <= 30)
    middle = rate(page)
    page.mouse.click(*at_share(page, 0.5))
    expect(page).to_have_url(re.compile(r"from=.*&to=.*&at="))
    expect(page.get_by_role("link", name=re.compile("Open overview as of"))).to_be_visible()
    page.mouse.move(5, 5)
    # What the moment was is drawn with the page's next part, a little after its address has changed.
    until(lambda: abs(rate(page) - middle) <= 15)
    page.get_by_role("link", name=re.compile("Open overview as of")).click()
    expect(page.get_by_text("Plant state at")).to_be_visible()
    expect(page.locator("#connection")).to_have_attribute("data-connection", "past")
    page.locator("#flow a[href^='/nodes/n2']").click()
    expect(page).to_have_url(re.compile(r"/nodes/n2/\?at="))


def test_a_drag_zooms_and_pauses_and_one_click_goes_live_again(open_page, observer, measured):
    page = open_page("/timeline/?minutes=15")
    live(page, observer)
    page.mouse.move(*at_share(page, 0.4))
    page.mouse.down()
    page.mouse.move(*at_share(page, 0.8), steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from="))
    expect(page.locator("#strips")).not_to_have_attribute("data-live", re.compile("."))
    since, until = (
        datetime.fromisoformat(page.locator("#strips").get_attribute(f"data-{end}")) for end in ("begin", "end")
    )
    assert timedelta(minutes=5) < until - since < timedelta(minutes=7)
    page.get_by_role("link", name="Resume live").click()
    expect(page.locator("#strips")).to_have_attribute("data-live", re.compile("."))


def test_a_finger_that_scrolls_over_the_strips_sets_no_instant(open_page, observer, measured):
    """The browser takes the pointer to scroll with; the next tap, anywhere, is another."""
    page = open_page("/timeline/?minutes=10", viewport=PHONE, has_touch=True)
    live(page, observer)
    x, y = at_share(page, 0.5)
    finger = {"pointerId": 7, "pointerType": "touch", "clientX": x, "clientY": y, "button": 0}
    for kind in ("pointerdown", "pointercancel"):
        page.locator(".plots").first.dispatch_event(kind, finger)
    page.get_by_label("Title", exact=True).tap()
    page.wait_for_function("new Promise((done) => requestAnimationFrame(() => done(true)))")
    assert page.url.endswith("/timeline/?minutes=10")


def test_keys_move_the_cursor_and_it_keeps_the_focus(open_page, observer, measured):
    page = open_page("/timeline/?minutes=10")
    live(page, observer)
    cursor = page.get_by_role("slider", name="Time shown")
    cursor.focus()
    page.keyboard.press("PageDown")
    page.keyboard.press("ArrowLeft")
    expect(cursor).to_have_attribute("aria-valuenow", "945")
    expect(page).to_have_url(re.compile("at="))
    expect(page.locator("#instant")).to_contain_text("The plant as of")
    expect(page.get_by_role("slider")).to_be_focused()


def test_a_clock_that_is_wrong_in_the_browser_changes_no_time(open_page, observer, measured):
    def yesterday(page):
        page.clock.set_fixed_time(datetime.now(UTC) - timedelta(days=1, hours=3))

    page = open_page("/timeline/?minutes=10", before=yesterday, timezone_id="Asia/Kathmandu")
    page.mouse.click(*at_share(page, 0.5))
    expect(page).to_have_url(re.compile("at="))
    expect(page.locator("#strips")).to_have_attribute("data-instant", re.compile("."))
    at = datetime.fromisoformat(page.locator("#strips").get_attribute("data-instant"))
    assert abs(datetime.now(UTC) - timedelta(minutes=5) - at) < timedelta(minutes=2)


def test_the_exported_file_is_read_without_the_console(open_page, observer, measured, tmp_path, chromium):
    page = open_page("/timeline/?minutes=10")
    live(page, observer)
    with page.expect_download() as download:
        page.get_by_role("link", name="HTML", exact=True).click()
    path = tmp_path / "records/timeline.html"
    download.value.save_as(path)
    alone = chromium.new_context(offline=True, viewport=DESKTOP)
    opened = alone.new_page()
    opened.goto(path.as_uri())
    expect(opened.get_by_role("heading", name="Timeline")).to_be_visible()
    drawn = opened.locator(".track.rate svg path").first.bounding_box()
    assert drawn is not None and drawn["width"] > 300
    alone.close()


OVERLAPPING = """() => [...document.querySelectorAll(".track.bars")].flatMap((track) => {
  const labels = [...track.querySelectorAll(".words")];
  const boxes = labels.map((words) => [words.innerText, words.getBoundingClientRect()])
    .filter(([, box]) => box.width > 1);
  const meet = (one, other) => one.right > other.left + 1 && other.right > one.left + 1
    && one.bottom > other.top + 1 && other.bottom > one.top + 1;
  return boxes.flatMap(([text, one], at) => boxes.slice(at + 1)
    .filter(([, other]) => meet(one, other)).map(([other]) => `${text} over ${other}`));
})"""


def test_labels_never_overprint_at_any_width(open_page, observer, served):
    now = datetime.now(UTC)
    with closing(served.connection()) as connection:
        cookie = served.log_in()
        for minute in range(26):
            at = (now - timedelta(minutes=minute / 2)).isoformat()
            body = orjson.dumps({"title": f"a deploy with quite a long name {minute}", "kind": "deploy", "at": at})
            headers = {"Cookie": cookie, "Content-Type": "application/json", "X-CSRFToken": csrf_of(cookie)}
            connection.request("POST", "/api/v1/marks", body, headers)
            answer = connection.getresponse()
            assert answer.status == 201, answer.read()[:300]
            answer.read()
    page = open_page("/timeline/?minutes=15")
    for width in (1920, 1440, 1280, 1190, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        until(lambda: page.evaluate(OVERLAPPING) == [], every_seconds=0.1)
