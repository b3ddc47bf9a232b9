"""The figures follow the plant, and say so when they can't, whatever a browser's clock says."""

import re
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import orjson
import pytest
from playwright.sync_api import expect

from tests.console.browser import screen
from tests.console.browser.screen import BROWSER, Observer, comes, figure, live, violations, whole_snapshot
from tests.console.browser.test_forms import reverting
from tests.waiting import until

pytestmark = BROWSER


SOCKET = re.compile(r"/live/\?")
LIVE = re.compile("/api/v1/live")


def test_a_change_of_the_plant_is_on_the_page_without_a_reload(open_page, observer):
    page = open_page("/")
    live(page, observer)
    page.evaluate("window.isTheSamePage = true")
    observer.publish(lambda snapshot: snapshot["totals"].update(in_per_second=12_345.0))
    expect(figure(page, "totals.in_per_second")).to_have_text("12,345")
    assert page.evaluate("window.isTheSamePage")


def test_what_becomes_unknown_is_a_dash_and_never_zero(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    expect(figure(page, "nodes.n3.in_per_second")).to_have_text("—")
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=None))
    expect(figure(page, "nodes.n1.in_per_second")).to_have_text("—")


@pytest.mark.parametrize(
    ("address", "part", "said"),
    [
        ("/nodes/n1/", ("nodes", "n1"), "The clock of node n1 is 120 s ahead of the control server's."),
        ("/pipeline/", ("pipeline",), "The clock of the pipeline's host is 120 s ahead of the control server's."),
    ],
)
def test_what_is_wrong_with_a_part_stands_on_its_own_page_and_not_in_a_title_alone(
    open_page, observer, address, part, said
):
    page = open_page(address)
    live(page, observer)

    def set_clock(seconds):
        def change(snapshot):
            row = snapshot
            for key in part:
                row = row[key]
            row["ahead_seconds"] = seconds

        observer.publish(change)

    finding = page.get_by_text(said)
    set_clock(120.0)
    expect(finding).to_be_visible()
    set_clock(0.0)
    expect(finding).to_be_hidden()


def test_more_spark_lines_than_one_answer_holds_are_asked_for_in_several(open_page, observer):
    page = open_page("/queues/")
    live(page, observer)
    with page.expect_response(lambda answer: "/history" in answer.url and "q149" in answer.url) as heard:
        page.evaluate("""() => {
          const part = document.createElement("div"), places = [...Array(150).keys()];
          part.innerHTML = places.map((n) => `<svg data-spark="queues.q${n}.waiting_events"></svg>`).join("");
          document.body.append(part);
          document.dispatchEvent(new CustomEvent("weir:part", { detail: part }));
        }""")
    assert heard.value.status == 200


def test_last_ticks_are_sorted_by_their_instant_also_over_midnight(open_page, observer):
    page = open_page("/loops/", timezone_id="UTC")
    live(page, observer)
    page.evaluate("""() => {
      const part = Object.assign(document.createElement("div"), { id: "ticks" });
      const row = (name) => `<tr data-name="${name}"><th>${name}</th><td><span data-bind="loops.${name}.at"
        data-format="tick" data-interval="5"></span></td></tr>`;
      const head = '<tr><th data-key="name">Loop</th><th data-key="at">Tick</th></tr>';
      const rows = row("today") + row("yesterday");
      part.innerHTML = `<table data-table><thead>${head}</thead><tbody>${rows}</tbody></table>`;
      document.getElementById("content").append(part);
      document.dispatchEvent(new CustomEvent("weir:part", { detail: part }));
    }""")
    evening, morning = datetime(2026, 11, 19, 20, tzinfo=UTC), datetime(2026, 11, 20, 9, tzinfo=UTC)
    times = {"yesterday": evening, "today": morning}

    def add(snapshot):
        like = snapshot["loops"]["worker_rate/alert/n1"]
        snapshot["loops"] |= {name: {**like, "at": at.timestamp()} for name, at in times.items()}

    observer.publish(add)
    expect(page.locator("#ticks tbody")).to_contain_text("20:00:00")
    page.locator("#ticks").get_by_role("button", name="Tick").click()
    assert page.locator("#ticks tbody th").all_inner_texts() == ["yesterday", "today"]


@pytest.mark.thorough
def test_after_a_gap_the_page_asks_for_the_whole_and_goes_on(open_page, observer):
    page = open_page("/")
    live(page, observer)
    observer.publish(lambda snapshot: snapshot["totals"].update(in_per_second=777.0), skip=5)
    observer.publish(lambda snapshot: snapshot["totals"].update(out_per_second=778.0))
    expect(figure(page, "totals.in_per_second")).to_have_text("777")
    expect(figure(page, "totals.out_per_second")).to_have_text("778")


def test_a_silent_observer_is_said_and_its_numbers_dim(open_page, observer):
    page = open_page("/")
    live(page, observer)
    colour = "element => [document.body.dataset.connection, getComputedStyle(element).color]"

    def fresh():
        observer.publish()  # on a busy host it may be silent for as long as it takes to look
        return figure(page, "totals.in_per_second").evaluate(colour)

    seen = []
    until(lambda: seen.append(fresh()) or seen[-1][0] == "live", every_seconds=0.2)
    expect(page.locator("#disconnected")).to_contain_text("Observer not responding for")
    # A busy host draws it a little after it has said so.
    until(lambda: figure(page, "totals.in_per_second").evaluate(colour)[1] != seen[-1][1])
    expect(page.locator("#hero h1")).to_contain_text(re.compile(r"At \d\d:\d\d:\d\d: "))
    cause = "(part) => { part.dataset.paused = ''; part.innerHTML = '<h2>No data: the observer is suspended</h2>'; }"

    def is_hidden():
        page.locator("#frame-outage").evaluate(cause)  # the page may have read this part again
        return page.locator("#disconnected").is_hidden()  # the notice says it, with its button

    until(is_hidden, every_seconds=0.2)


def without_socket(page):
    page.route_web_socket(SOCKET, close)


def close(route):
    route.close()


def test_until_something_is_heard_the_page_says_of_what_time_it_is(open_page, observer):
    observer.publish()
    page = open_page("/", before=lambda page: page.route_web_socket(SOCKET, lambda route: None))
    connection = page.locator("#connection")
    expect(connection).to_have_attribute("data-connection", "starting")
    expect(connection).to_have_text(re.compile(r"As of\s+\d\d:\d\d:\d\d"))


def test_without_a_socket_the_page_polls_and_says_so(open_page, observer):
    page = open_page("/", before=without_socket)
    live(page, observer, "polling")
    observer.publish(lambda snapshot: snapshot["totals"].update(in_per_second=4_321.0))
    expect(figure(page, "totals.in_per_second")).to_have_text("4,321")


def test_a_console_that_is_gone_is_said_with_its_time(open_page, observer):
    sockets = []
    gone = threading.Event()

    def breakable(page):
        page.route_web_socket(SOCKET, connect)

    def connect(route):
        if gone.is_set():
            route.close()
        else:
            route.connect_to_server()
            sockets.append(route)

    page = open_page("/", before=breakable)
    live(page, observer)
    page.route("**/api/v1/live?*", lambda route: route.abort())
    gone.set()
    sockets[-1].close()
    bar = page.locator("#disconnected")
    expect(bar).to_contain_text("Disconnected since")
    expect(bar).to_contain_text(re.compile(r"The plant is shown as of \d\d:\d\d:\d\d\."))
    main = page.locator("main").bounding_box()
    assert bar.bounding_box()["width"] >= main["width"], "the bar is as wide as the page"


@pytest.mark.thorough
def test_a_connection_that_died_unsaid_is_replaced_by_another(open_page, observer):
    """A phone that changed its network, a firewall that forgot: the browser calls the socket open."""
    sockets = []
    dead = threading.Event()

    def connect(route):
        server, first = route.connect_to_server(), not sockets
        sockets.append(route)
        server.on_message(lambda message: None if first and dead.is_set() else route.send(message))

    page = open_page("/", before=lambda page: page.route_web_socket(SOCKET, connect))
    live(page, observer)
    dead.set()

    def another():
        observer.publish()
        state = page.locator("#connection").get_attribute("data-connection")
        return len(sockets) > 1 and state == "live"

    until(another, every_seconds=0.5)


@pytest.mark.thorough
def test_readers_hear_once_that_the_observer_is_silent(open_page, observer):
    """Its age counts on, and is no news."""
    page = open_page("/")
    live(page, observer)
    page.evaluate("""() => {
      window.said = [];
      const places = document.querySelectorAll("[role=status], [role=alert], [aria-live]");
      const note = (changes) => window.said.push(...changes.map(({ target }) => target.textContent));
      const watched = { childList: true, characterData: true, subtree: true };
      for (const place of places) new MutationObserver(note).observe(place, watched);
    }""")
    expect(page.locator("#disconnected")).to_contain_text(re.compile("Observer not responding for [7-9]"))
    (said,) = page.evaluate("window.said")
    assert re.fullmatch(r"Observer not responding\. The plant is shown as of \d\d:\d\d:\d\d\.", said)
    assert violations(page) == []


@pytest.mark.thorough
def test_a_page_that_polls_says_silent_as_long_as_the_observer_is(open_page, observer):
    page = open_page("/", before=without_socket)
    live(page, observer, "polling")
    expect(page.locator("#connection")).to_have_attribute("data-connection", "silent")
    page.evaluate("""() => {
      window.states = [];
      document.addEventListener("weir:connection", ({ detail }) => window.states.push(detail.state));
    }""")
    for _ in range(3):
        with page.expect_response("**/api/v1/live?*"):
            pass
    until(lambda: len(page.evaluate("window.states")) >= 2)
    assert set(page.evaluate("window.states")) == {"silent"}


@pytest.mark.thorough
def test_a_console_that_answers_slowly_is_polled_once_at_a_time(open_page, observer):
    polls = []

    def prepare(page):
        page.clock.install()
        without_socket(page)
        page.route(LIVE, lambda route: polls.append(route))

    page = open_page("/", before=prepare)
    until(lambda: page.clock.run_for(1_000) or polls)
    page.clock.run_for(8_000)
    page.evaluate("fetch('/healthz')")  # after all that the page has asked for
    assert len(polls) == 1
    polls[0].continue_()
    until(lambda: page.clock.run_for(1_000) or len(polls) > 1)


@pytest.mark.thorough
def test_an_answer_that_is_older_than_what_is_shown_changes_nothing(open_page, observer):
    observer.publish(lambda snapshot: snapshot["totals"].update(in_per_second=4_321.0))
    old = {key: observer.snapshot[key] - 1 for key in ("seq", "at")}
    late = {**observer.snapshot, **old, "totals": {**observer.snapshot["totals"], "in_per_second": 777.0}}
    body = orjson.dumps({"topic": "plant", **old, "snapshot": late}).decode()
    answers = 0

    def answer(route):
        nonlocal answers
        answers += 1
        if answers == 1:
            route.continue_()
        else:
            route.fulfill(status=200, content_type="application/json", body=body)

    def prepare(page):
        without_socket(page)
        page.route(LIVE, answer)

    page = open_page("/", before=prepare)
    for _ in range(2):
        with page.expect_response(LIVE, timeout=20_000):
            pass
    until(lambda: page.evaluate("1") and answers > 2)  # answers come while the page is asked
    expect(figure(page, "totals.in_per_second")).to_have_text("4,321")


@pytest.mark.thorough
def test_a_page_opened_before_the_first_snapshot_comes_alive_by_itself(open_page, control):
    page = open_page("/nodes/")
    expect(page.get_by_role("heading", name="The plant is starting")).to_be_visible()
    observer = Observer(control, whole_snapshot())
    live(page, observer)
    comes(observer, page.locator('[data-row="nodes.n1"]'))


HOURS = {"two hours fast": 2, "two hours slow": -2}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", HOURS)
def test_a_wrong_clock_makes_no_data_old_and_moves_no_countdown(case, open_page, observer):
    shift = f"const now = Date.now; Date.now = () => now() + {HOURS[case] * 3_600_000};"
    page = open_page("/nodes/", before=lambda page: page.add_init_script(shift))
    live(page, observer)
    observer.publish(reverting(observer, 600))
    expect(page.locator("#connection")).to_have_attribute("data-connection", "live")
    expect(page.locator("#connection .age")).to_have_text(re.compile(r"^[0-2](\.\d)? s$"))
    expect(page.locator("#strip-overrides [data-until]")).to_have_text(re.compile(r"^(9:5\d|10:00)$"))
    assert abs(page.evaluate("Date.now()") / 1000 - time.time()) > 7_000


@pytest.mark.thorough
def test_a_clock_that_is_put_right_while_a_page_is_open_makes_nothing_old(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    follow_on(page, observer, 1_234)
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 10_000; }")
    follow_on(page, observer, 4_321)


@pytest.mark.thorough
def test_a_plants_clock_that_is_put_back_makes_nothing_old(open_page, observer, monkeypatch):
    page = open_page("/nodes/")
    live(page, observer)
    follow_on(page, observer, 1_234)
    monkeypatch.setattr(screen, "time", SimpleNamespace(time=lambda: time.time() - 10))
    follow_on(page, observer, 4_321)


def follow_on(page, observer, rate):
    """The page has heard of this change, and calls what it shows live."""
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=rate))
    expect(figure(page, "nodes.n1.in_per_second")).to_have_text(f"{rate:,}")
    live(page, observer)
