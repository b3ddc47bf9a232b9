"""Charts beyond what is live: days from the archive, beside the same a week before."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page

from tests.console.browser.screen import BROWSER, live
from tests.console.served import Served
from workers.history.metric_files import rollup_file

pytestmark = BROWSER
SERIES = "loops.worker_rate/alert/n1.measured"
DAYS = 9
TRACES = """() => document.querySelector("figure.chart .js-plotly-plot")?.data
  .map(({ name, x, y }) => ({ name, first: x[0] && +new Date(x[0]) / 1000, points: y.length,
    highest: Math.max(...y.filter((value) => value !== null)) })) ?? []"""


@pytest.fixture(scope="module")
def archive(served: Served) -> datetime:
    """Nine days of a measurement by the minute: its value is the days since then. Gives the last time."""
    data = Path(served.environment["WEIR_DATA"])
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    by_day: dict[str, list[tuple[datetime, float]]] = {}
    for minute in range(DAYS * 1_440):
        at = now - timedelta(minutes=minute)
        by_day.setdefault(at.date().isoformat(), []).append((at, float(minute // 1_440)))
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
        path = data / rollup_file("1m", day)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    return now


def traces(page: Page, wanted: str) -> list[dict]:
    """What the chart draws, once it draws a line of this name."""
    page.wait_for_function(f"(name) => ({TRACES})().some((trace) => trace.name === name)", arg=wanted)
    return page.evaluate(TRACES)


def test_a_chart_shows_days_in_few_points_and_the_same_a_day_before(
    open_page, observer, archive, worker_loop
):
    page = open_page(f"{worker_loop}?minutes=1440&compare=day")
    live(page, observer)
    found = traces(page, "a day before")
    measured = next(trace for trace in found if trace["name"] == "measured")
    before = next(trace for trace in found if trace["name"] == "a day before" and trace["highest"] > 0)
    assert abs(archive.timestamp() - 86_400 - measured["first"]) < 900
    assert abs(before["first"] - measured["first"]) < 900, "the earlier day stands under this one"
    assert (measured["highest"], before["highest"]) == (1.0, 2.0)
    assert measured["points"] <= 470 and before["points"] <= 470


def test_the_range_is_chosen_by_a_click_and_stays_in_the_address(open_page, observer, archive, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    page.get_by_role("button", name="7 d").click()
    page.wait_for_function(f"() => ({TRACES})().some((trace) => trace.highest >= 6)")
    assert "minutes=10080" in page.url
    page.get_by_label("Compare with").select_option("week")
    traces(page, "a week before")
    assert "compare=week" in page.url


def test_any_stretch_stands_still_in_an_address(open_page, observer, archive, worker_loop):
    begin, end = (archive - timedelta(days=days) for days in (3, 2.5))
    page = open_page(f"{worker_loop}?from={begin:%Y-%m-%dT%H:%M:%SZ}&to={end:%Y-%m-%dT%H:%M:%SZ}")
    live(page, observer)
    page.wait_for_function(f"() => ({TRACES})().some((trace) => trace.highest === 3 || trace.highest === 2)")
    assert page.locator("[data-range] [aria-pressed=true]").count() == 0
