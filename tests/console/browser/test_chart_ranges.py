"""Charts beyond what is live: days from the archive, the same 1 week earlier, and what a page has missed."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from tests.console.browser import screen
from tests.console.browser.screen import BROWSER, Observer, live, whole_snapshot
from tests.waiting import until
from tests.workers.snapshots import snapshot_of
from workers.history import metrics
from workers.history.metric_history import get_rollup_path

pytestmark = BROWSER
SERIES = "queues.alert.containers.n1.oldest_seconds"
DAYS = 9
TRACES = """() => document.querySelector("figure.chart .js-plotly-plot")?.data
  .map(({ name, x, y }) => ({ name, first: x[0] && +new Date(x[0]) / 1000, points: y.length,
    highest: Math.max(...y.filter((value) => value !== null)) })) ?? []"""


@pytest.fixture(scope="module")
def archive(served):
    """Nine days of a measurement by the minute: its value is the days since then, of which each begins ten minutes
    early, so that a page that is opened some minutes later shows the same. Gives the last time.
    """
    data = Path(served.environment["WEIR_DATA"])
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    by_day = {}
    for minute in range(DAYS * 1_440):
        at = now - timedelta(minutes=minute)
        by_day.setdefault(at.date().isoformat(), []).append((at, float((minute + 10) // 1_440)))
    for day, rows in by_day.items():
        times, values = zip(*sorted(rows), strict=True)
        table = pa.table(
            {
                "time": pa.array(times, pa.timestamp("us", "UTC")),
                "series": [SERIES] * len(rows),
                "minimum": values,
                "maximum": values,
            }
        )
        path = data / get_rollup_path("1m", day)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    return now


def traces(page, wanted):
    """What the chart draws, once it draws a line of this name."""
    page.wait_for_function(f"(name) => ({TRACES})().some((trace) => trace.name === name)", arg=wanted)
    return page.evaluate(TRACES)


def test_a_chart_shows_days_in_few_points_and_the_same_a_day_before(open_page, observer, archive, worker_loop):
    page = open_page(f"{worker_loop}?minutes=1440&compare=day")
    live(page, observer)
    found = traces(page, "1 day earlier")
    measured = next(trace for trace in found if trace["name"] == "measured")
    before = next(trace for trace in found if trace["name"] == "1 day earlier" and trace["highest"] > 0)
    assert abs(archive.timestamp() - 86_400 - measured["first"]) < 900
    assert abs(before["first"] - measured["first"]) < 900, "the earlier day stands under this one"
    assert (measured["highest"], before["highest"]) == (1.0, 2.0)
    assert measured["points"] <= 470 and before["points"] <= 470


AXIS = """() => {
  const { data, layout } = document.querySelector("figure.chart .js-plotly-plot") ?? {};
  const known = ({ x, y }) => [...x].filter((_, at) => y[at] !== null);
  const times = (data ?? []).flatMap((line) => (line.name === "in" ? known(line) : []));
  return times.length ? [Number(new Date(layout.xaxis.range[0])), Number(new Date(times[0]))] : null;
}"""


def test_the_charts_of_a_young_plant_begin_with_its_data(open_page, observer):
    page = open_page("/")
    live(page, observer)
    page.wait_for_function(AXIS)
    begins, first = page.evaluate(AXIS)
    assert 0 <= first - begins <= 61_000, "not 15 minutes before"


@pytest.mark.thorough
def test_the_range_is_chosen_by_a_click_and_stays_in_the_address(open_page, observer, archive, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    page.get_by_role("button", name="7 d").click()
    page.wait_for_function(f"() => ({TRACES})().some((trace) => trace.highest >= 6)")
    assert "minutes=10080" in page.url
    page.get_by_label("Comparison").select_option("week")
    traces(page, "1 week earlier")
    assert "compare=week" in page.url


HISTORY = re.compile("/api/v1/history")
STEPS = """() => {
  const data = document.querySelector("figure.chart .js-plotly-plot")?.data;
  const shown = data?.find(({ name }) => name === "measured");
  const times = (shown?.x ?? []).filter((_, at) => shown.y[at] !== null).map((at) => at / 1000);
  return times.slice(1).map((at, place) => at - times[place]);
}"""


@pytest.fixture
def shift(monkeypatch, control):
    """Sets the observer's clock: so many seconds from now. Afterwards the console holds a snapshot of now."""
    yield lambda seconds: monkeypatch.setattr(screen, "time", SimpleNamespace(time=lambda: time.time() + seconds))
    monkeypatch.undo()
    Observer(control, whole_snapshot()).publish()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("first", ["answered", "on its way"])
def test_what_a_page_has_missed_is_in_its_charts_once_it_is_back(first, open_page, control, shift, worker_loop):
    """Away for ten minutes: what was measured meanwhile, the server has kept. The page may have been left
    before its first question was answered.
    """
    late = []

    def hold(page):
        if first == "on its way":
            page.route(re.compile(rf"{HISTORY.pattern}.*n1\.oldest_seconds"), lambda route: late.append(route), times=1)

    shift(-600)
    observer = Observer(control, whole_snapshot())
    observer.publish()  # the console may still hold what a test before published, at a later time
    page = open_page(worker_loop, before=hold)
    live(page, observer)
    expect(page.locator("figure.chart .js-plotly-plot").first).to_be_visible()
    now, writer = time.time(), metrics.MetricWriter(control)
    for second in range(-600, 1):
        snapshot = snapshot_of({**observer.snapshot, "at": now + second})
        writer.append(control, snapshot, f"{round((now + second) * 1000)}-0")
    shift(0)

    def is_whole():
        observer.publish()
        steps = page.evaluate(STEPS)
        return bool(steps) and sum(steps) > 590 and max(steps) < 60

    until(is_whole, every_seconds=0.5)
    assert len(late) == (first == "on its way")


@pytest.mark.thorough
def test_a_line_stays_when_the_server_does_not_answer_and_what_is_missing_is_asked_for_again(
    open_page, observer, archive, shift, worker_loop
):
    page = open_page(f"{worker_loop}?minutes=1440")
    live(page, observer)
    traces(page, "measured")
    page.route(HISTORY, lambda route: route.fulfill(status=503, body="busy"))
    shift(300)  # so that it is time for the next pixel
    with page.expect_response(HISTORY) as refused:
        observer.publish()
    assert refused.value.status == 503
    page.wait_for_function("new Promise((done) => requestAnimationFrame(() => done(true)))")
    assert page.get_by_text("No data for this period.").count() == 0
    assert any(trace["name"] == "measured" and trace["points"] > 100 for trace in page.evaluate(TRACES))
    page.goto(f"{worker_loop}?minutes=2880")
    expect(page.locator("figure.chart").first).to_contain_text("The console is not responding.")
    page.unroute(HISTORY)
    traces(page, "measured")


@pytest.mark.thorough
def test_the_range_that_was_chosen_last_is_drawn_whatever_is_answered_last(open_page, observer, archive, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    late = []
    page.route(HISTORY, lambda route: late.append(route), times=1)
    page.get_by_role("button", name="1 d").click()
    until(lambda: page.evaluate("1") and late)
    page.get_by_role("button", name="7 d").click()
    page.wait_for_function(f"() => ({TRACES})().some((trace) => trace.highest >= 6)")
    with page.expect_response(HISTORY):
        late[0].continue_()
    page.wait_for_function("new Promise((done) => requestAnimationFrame(() => done(true)))")
    assert max(trace["highest"] for trace in page.evaluate(TRACES) if trace["name"] == "measured") >= 6


ZOOM = """(from) => {
  const plot = document.querySelector("figure.chart .js-plotly-plot");
  const [, end] = plot._fullLayout.xaxis.range;
  const begin = new Date(Date.parse(end) - from);
  return window.Plotly.relayout(plot, { "xaxis.range[0]": begin, "xaxis.range[1]": end });
}"""
TICKS = (
    """() => [...document.querySelectorAll("figure.chart .xaxislayer-above .xtick")].map((tick) => tick.textContent)"""
)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("way", ["double click", "range", "back"])
def test_a_zoom_is_in_the_address_until_a_double_click_another_range_or_the_back_button(
    way, open_page, observer, archive, worker_loop
):
    page = open_page(f"{worker_loop}?minutes=1440")
    live(page, observer)
    traces(page, "measured")
    page.evaluate(ZOOM, 12 * 3_600_000)  # what the archive has by the minute
    expect(page.get_by_role("link", name="Compare this range")).to_be_visible()
    zoomed = page.url
    assert "from=20" in zoomed and "to=20" in zoomed
    page.wait_for_function(f"() => ({TICKS})().length > 2")
    ticks = page.evaluate(TICKS)
    assert len(ticks) == len(set(ticks)), "no two times read the same"
    if way == "range":
        page.get_by_role("button", name="7 d").click()
        page.wait_for_function(f"() => ({TRACES})().some((trace) => trace.highest >= 6)")
    elif way == "back":
        page.go_back()
    else:
        page.locator("figure.chart .nsewdrag").first.dblclick()
    expect(page.get_by_role("button", name="Resume live")).to_have_count(0)
    expect(page.get_by_role("link", name="Compare this range")).to_have_count(0)
    assert "from=" not in page.url
    if way == "back":
        page.go_forward()
        expect(page.get_by_role("button", name="Resume live")).to_be_visible()
        assert page.url == zoomed


def test_one_crosshair_is_on_all_charts_and_names_date_seconds_zone_and_unit(open_page, observer, control):
    page = open_page("/queues/alert/")
    live(page, observer)
    first = page.locator("figure.chart").first
    expect(first.locator(".js-plotly-plot")).to_be_visible()
    page.locator("figure.chart .plot").nth(1).scroll_into_view_if_needed()
    expect(page.locator("figure.chart .js-plotly-plot")).to_have_count(2)
    first.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".crosshair")).to_have_count(2)
    tooltip = page.locator(".chart-tooltip")
    expect(tooltip).to_have_count(1)
    assert re.match(r"\w{3},? \d+ \w{3}, \d\d:\d\d:\d\d UTC", tooltip.inner_text())
    page.keyboard.press("Escape")
    expect(page.locator(".crosshair")).to_have_count(0)
