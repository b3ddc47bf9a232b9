"""Nodes, queues and tasks: worst first, filtered, found by the keyboard, taken out of use."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, PHONE, comes, live, overhang

pytestmark = BROWSER


def test_the_worst_row_is_first_and_no_row_moves_under_the_pointer(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    names = page.locator("#nodes-table tbody tr th")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.locator("#nodes-table tbody tr").first.hover()
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(state="TOOBUSY", utilisation=0.97))
    observer.publish(lambda snapshot: snapshot["nodes"]["n3"].update(state="IDLE", stale=False, utilisation=0.0))
    expect(page.locator('[data-row="nodes.n1"] .word')).to_have_text("Too busy")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.mouse.move(5, 5)
    observer.publish()
    expect(names).to_have_text(["n1", "n2", "n3"])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("screen", [{}, {"has_touch": True, "is_mobile": True}], ids=["mouse", "finger"])
def test_a_list_that_was_sorted_by_hand_goes_on_with_the_plant(screen, open_page, observer):
    """A click leaves the focus on the column's head, a finger the pointer over it: nobody works there."""
    page = open_page("/nodes/", **screen)
    live(page, observer)
    head = page.locator("#nodes-table").get_by_role("button", name="In, /s")
    if screen:
        head.tap()
    else:
        head.click()
        page.mouse.move(5, 5)
    n1 = observer.snapshot["nodes"]["n1"]
    observer.publish(lambda snapshot: snapshot["nodes"].update(n0={**n1, "in_per_second": 70_000.0, "state": "BUSY"}))
    comes(observer, page.locator('[data-row="nodes.n0"]'))
    names = page.locator("#nodes-table tbody tr th")
    expect(names.first).to_have_text("n0")
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=80_000.0))
    expect(names.first).to_have_text("n1")


def test_columns_are_hidden_by_choice_and_the_address_keeps_it(open_page, observer):
    page = open_page("/queues/")
    live(page, observer)
    head = page.locator("#queues-table thead th[data-key=retry]")
    expect(head).to_be_visible()
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Retrying").uncheck()
    expect(head).to_be_hidden()
    assert "hide=retry" in page.url
    page.reload()
    expect(page.locator("#queues-table thead th[data-key=dead]")).to_be_visible()
    expect(head).to_be_hidden()


def test_a_loop_on_a_phone_keeps_its_reason(open_page, observer):
    page = open_page("/loops/?by=flat", viewport=PHONE)
    live(page, observer)
    reason = page.locator("#loops-table tbody tr", has_text="Worker rate of alert on n1").get_by_text("12 events wait.")
    expect(reason).to_be_in_viewport()
    box = reason.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]


def test_a_row_is_a_card_on_a_phone_with_the_title_of_each_value(open_page, observer):
    page = open_page("/queues/", viewport=PHONE)
    live(page, observer)
    assert page.locator("#queues-table tbody tr td").first.get_attribute("data-label")
    assert overhang(page) <= 0
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Sort by").select_option("dead")
    page.wait_for_url("**sort=dead**")


def test_a_phone_shows_the_decisions_before_their_filters(open_page, observer):
    page = open_page("/ledger/", viewport=PHONE)
    live(page, observer)
    filters = page.get_by_role("form", name="Filter the ledger")
    expect(filters).to_be_hidden()
    page.get_by_label("Filters", exact=True).check()
    filters.locator("[name=queue]").select_option("alert")
    filters.get_by_role("button", name="Filter").click()
    page.wait_for_url("**queue=alert**")
    expect(filters).to_be_visible()


@pytest.mark.thorough
def test_a_list_that_nobody_got_an_answer_for_is_asked_for_again(open_page, observer):
    """A console with a full line answers 503; a proxy does while the console starts."""
    page = open_page("/nodes/")
    live(page, observer)
    refused = []

    def refuse(route):
        if "x-weir-parts" in route.request.headers and not refused:
            refused.append(route.request.url)
            route.fulfill(status=503, content_type="text/plain", body="busy")
        else:
            route.continue_()

    page.route(re.compile("/nodes/$"), refuse)
    observer.publish(lambda snapshot: snapshot["nodes"].update(n5={**snapshot["nodes"]["n1"]}))
    comes(observer, page.locator('[data-row="nodes.n5"]'))
    assert refused


@pytest.mark.thorough
def test_a_filter_is_about_what_the_rows_say_now(open_page, observer):
    page = open_page("/nodes/?filter=offline")
    live(page, observer)
    n1 = page.locator('[data-row="nodes.n1"]')
    expect(n1).to_be_hidden()
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(state="OFFLINE", stale=True))
    expect(n1).to_be_visible()


@pytest.mark.thorough
def test_a_filter_that_is_being_typed_is_left_as_it_is_typed(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    field = page.get_by_label("Filter nodes")
    field.press_sequentially("N1 ")
    page.evaluate("document.getElementById('nodes-rows').dataset.before = 'n7'")
    observer.publish(lambda snapshot: snapshot["nodes"].update(n7={**snapshot["nodes"]["n1"]}))
    comes(observer, page.locator("#nodes-rows:not([data-before])"))
    expect(field).to_have_value("N1 ")
    expect(page.locator('[data-row="nodes.n7"]')).to_be_hidden()


@pytest.mark.thorough
def test_a_page_that_nobody_sees_fetches_its_lists_when_somebody_does(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    fetched = []

    def note(request):
        if "x-weir-parts" in request.headers:
            fetched.append(request.url)

    def hide(hidden):
        page.evaluate(
            f"""() => {{
              Object.defineProperty(document, "hidden", {{ value: {hidden}, configurable: true }});
              document.dispatchEvent(new Event("visibilitychange"));
            }}"""
        )

    page.on("request", note)
    hide("true")
    observer.publish(lambda snapshot: snapshot["nodes"].update(n6={**snapshot["nodes"]["n1"]}))
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=4_321.0))
    expect(page.locator('[data-bind="nodes.n1.in_per_second"]')).to_have_text("4,321")
    assert fetched == []
    hide("false")
    comes(observer, page.locator('[data-row="nodes.n6"]'))
    assert fetched


@pytest.mark.thorough
def test_what_the_server_refuses_stands_beside_its_field(open_page, observer):
    page = open_page("/nodes/n1/")
    live(page, observer)
    page.get_by_label("Too busy").fill("0.3")
    page.locator("#steer").get_by_label("Reason").fill("below busy, which can't be")
    page.locator("#steer button.primary").click()
    expect(page.locator("td", has=page.get_by_label("Too busy")).locator(".error")).to_be_visible()
    expect(page.locator("[data-override]")).to_have_count(0)


@pytest.mark.thorough
def test_what_waits_for_nobody_knows_how_long_stands_first(open_page, observer):
    page = open_page("/queues/")
    live(page, observer)

    def stand_still(snapshot):
        snapshot["queues"]["alert"].update(wait_seconds=None, waiting_events=5)
        snapshot["queues"]["telemetry"].update(wait_seconds=90.0)

    observer.publish(stand_still)
    expect(page.locator("#queues-table tbody th")).to_have_text(["alert", "telemetry"])
    observer.publish(lambda snapshot: snapshot["queues"]["alert"].update(waiting_events=0))
    expect(page.locator("#queues-table tbody th")).to_have_text(["telemetry", "alert"])


@pytest.mark.thorough
def test_ctrl_k_finds_by_name_and_the_keyboard_goes_there(open_page, observer):
    page = open_page("/queues/")
    live(page, observer)
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search pages, objects, and actions")
    expect(field).to_be_focused()
    field.fill("silence")
    options = page.get_by_role("option")
    expect(options.filter(has_text="Silence alerts")).to_be_visible()
    expect(options.first).to_have_attribute("aria-selected", "true")
    first = field.get_attribute("aria-activedescendant")
    page.keyboard.press("ArrowDown")
    expect(field).not_to_have_attribute("aria-activedescendant", first or "")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/alerts/silences/**")


@pytest.mark.thorough
def test_a_rate_that_went_to_another_level_has_a_line_on_its_chart(open_page, observer):
    page = open_page("/queues/alert/")
    live(page, observer)

    def change_levels(snapshot):
        changes = [{"at": time.time() - 40, "before": 41.26, "after": 12.5}]
        band = {"low": 9.0, "high": 16.0, "days": 2.0, "minute": 12.4, "changes": changes}
        snapshot["bands"] = {"totals": {}, "queues": {"alert": {"in_per_second": band}}}

    observer.publish(change_levels)
    for _ in range(3):
        observer.publish()
    page.wait_for_function(
        """() => [...document.querySelectorAll("figure.chart .js-plotly-plot")].some(({ layout }) =>
          layout.shapes.some(({ line }) => line.dash === "dot")
          && layout.annotations.some(({ text }) => text === "41.3 → 12.5"))"""
    )


def make_task(page, name="ledger_copy"):
    """A task of a job that has one chunk after the other, as an administrator makes it."""
    page.goto("/tasks/")
    page.get_by_text("New task").click()
    form = page.locator("form[action$=define]")
    form.get_by_label("Name").fill(name)
    form.get_by_label("Job").fill("metric_spill")
    form.get_by_label("Reason").fill("a test of the form")
    form.get_by_role("button", name="Create task").click()
    title = name.replace("_", " ").capitalize()
    expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"])
def test_a_deadline_typed_in_utc_is_that_time_in_utc_wherever_it_is_typed(zone, open_page, observer):
    page = open_page("/tasks/", timezone_id=zone)
    make_task(page, f"due_in_{zone.split('/')[1].lower()}")
    live(page, observer)
    due = (datetime.now(UTC) + timedelta(days=1)).replace(second=0, microsecond=0)
    run = page.locator("form[action$=run]")
    run.get_by_label("Deadline, UTC").fill(f"{due:%Y-%m-%dT%H:%M}")
    run.get_by_label("Reason").fill("done by tomorrow")
    run.get_by_role("button", name="Run task").click()
    shown = page.locator("#run-figures .figure", has_text="Deadline").locator("time")
    assert datetime.fromisoformat(shown.get_attribute("datetime")) == due


SHIFTED = """() => new Promise((done) => {
  let total = 0;
  const add = (list) => { for (const shift of list.getEntries()) if (!shift.hadRecentInput) total += shift.value; };
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(total), 1000);
})"""
MAX_SHIFT = 0.1  # of the layout; above it, pages feel unstable


@pytest.mark.parametrize("path", ["/nodes/", "/drills/", "/queues/"])
def test_on_a_phone_rows_are_cards_before_the_script_runs(path, open_page, observer):
    page = open_page("/help/", viewport=PHONE)
    live(page, observer)
    page.goto(path)
    assert page.evaluate(SHIFTED) <= MAX_SHIFT


def test_on_a_phone_the_buttons_of_a_silence_leave_room_for_its_text(open_page, observer, ask):
    body = {"matchers": [{"label": "queue", "is": "=", "value": "alert"}], "reason": "a backup", "minutes": 60}
    silence = ask("POST", "silences", body)
    page = open_page("/alerts/silences/", viewport=PHONE)
    row = page.locator("#silences-on li, [id^=silences] li", has_text="a backup").first
    assert row.locator(".two").bounding_box()["width"] > PHONE["width"] / 2
    ask("POST", f"silences/{silence['id']}/end")
