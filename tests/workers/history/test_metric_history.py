"""The figures of any range: files and stream together are one line, without a hole, and no peak is lost."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import redis

from queues import keys
from workers.batch.jobs.spark import rollup
from workers.history import metric_history
from workers.history.forecasts import MinuteRates

SERIES = "totals.in_per_second"
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC).timestamp()


def spill(data: Path, begin: float, values: list[float], series: str = SERIES) -> None:
    """A second each, as `metric_spill` writes them."""
    at = [begin + place for place in range(len(values))]
    first, last = (f"{round(each * 1000)}-0" for each in (at[0], at[-1]))
    times = pa.array([round(each * 1e6) for each in at], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = pa.table([times, [series] * len(at), values], schema=metric_history.RAW)
    path = metric_history.get_raw_folder(data, day_of(begin)) / f"{first}_{last}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


def roll_up(data: Path, step: str, begin: float, windows: list[tuple[float, float]], series: str = SERIES) -> None:
    """(least, greatest) of windows, as `metric_rollup` writes them."""
    width = metric_history.ROLLUP_SECONDS[step]
    times = [datetime.fromtimestamp(begin + width * place, UTC) for place in range(len(windows))]
    least, greatest = (list(each) for each in zip(*windows, strict=True))
    columns = [times, [series] * len(times), [width] * len(times), least, least, greatest, greatest]
    path = data / metric_history.get_rollup_path(step, day_of(begin))
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns, schema=rollup.TABLE), path)


def day_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def live(control: redis.Redis, begin: float, values: list[float], series: str = SERIES) -> None:
    for place, value in enumerate(values):
        control.xadd(keys.METRICS, {series: value}, id=f"{round((begin + place) * 1000)}-0")


def test_files_and_stream_are_one_line_over_midnight(control, tmp_path):
    spill(tmp_path, MIDNIGHT - 3, [1, 2, 3])
    spill(tmp_path, MIDNIGHT, [4, 5])
    live(control, MIDNIGHT - 1, [3, 4, 5, 6, 7])  # the stream still holds what was spilled last
    found = metric_history.read_columns(control, tmp_path, MIDNIGHT - 2, MIDNIGHT + 9, [SERIES, "totals.none"])
    assert found["at"] == [MIDNIGHT + second for second in (-2, -1, 0, 1, 2, 3)]
    assert found[SERIES] == [2, 3, 4, 5, 6, 7]
    assert found["totals.none"] == [None] * 6


def test_a_spill_that_overlaps_another_doubles_nothing(control, tmp_path):
    spill(tmp_path, MIDNIGHT, [1, 2, 3])
    spill(tmp_path, MIDNIGHT + 1, [2, 3, 4])
    found = metric_history.read_columns(control, tmp_path, MIDNIGHT, MIDNIGHT + 60, [SERIES])
    assert found[SERIES] == [1, 2, 3, 4]


@pytest.mark.parametrize(("hours", "step"), [(5, "10s"), (24 * 7, "1m"), (24 * 30, "1h")])
def test_a_long_range_comes_by_windows_with_every_peak_and_then_by_the_second(hours, step, control, tmp_path):
    width, until = metric_history.ROLLUP_SECONDS[step], MIDNIGHT + 4 * 3_600
    roll_up(tmp_path, step, MIDNIGHT, [(1, 2), (1, 90), (5, 5)])
    begin = MIDNIGHT + 2 * width
    spill(tmp_path, begin, [5, 6])  # the newest window was not over when it was rolled up
    live(control, begin + 2, [7])
    found = metric_history.read_columns(control, tmp_path, until - hours * 3_600, until, [SERIES])
    assert found[SERIES] == [1, 2, 1, 90, 5, 6, 7]
    assert found["at"] == [
        MIDNIGHT, MIDNIGHT + width / 2, MIDNIGHT + width, MIDNIGHT + width * 1.5, begin, begin + 1, begin + 2
    ]  # fmt: skip


def test_what_is_computed_with_comes_by_the_means_of_windows(control, tmp_path):
    """Of a rate in bursts the middle between least and greatest is no mean."""
    roll_up(tmp_path, "1m", MIDNIGHT, [(1, 90), (2, 90), (5, 5)])  # their means are their least
    since, until = MIDNIGHT - 3_600, MIDNIGHT + 24 * 3_600
    found = metric_history.read_columns(control, tmp_path, since, until, [SERIES], means=True)
    assert found == {"at": [MIDNIGHT + 30, MIDNIGHT + 90], SERIES: [1, 2]}
    _, rates = MinuteRates(control, tmp_path).build([SERIES, "totals.none"], until)
    assert rates[0].tolist() == [1, 2] and np.isnan(rates[1]).all()


def test_a_node_was_as_bad_as_its_worst_in_each_window(control, tmp_path):
    state = "nodes.n1.state"
    roll_up(tmp_path, "1m", MIDNIGHT, [(1, 3), (1, 1), (1, 1)], state)
    found = metric_history.read_columns(control, tmp_path, MIDNIGHT, MIDNIGHT + 7 * 3_600, [state])
    assert found[state] == [3, 3, 1, 1]


@pytest.mark.parametrize(
    ("series", "older"),
    [("totals.workers_at_work", "totals.workers_busy"), ("hosts.jobs@a.b.at_work", "hosts.jobs@a.b.busy")],
)
def test_rows_of_an_older_weir_have_workers_at_work_as_they_were_counted_then(control, tmp_path, series, older):
    spill(tmp_path, MIDNIGHT, [2, 2], older)
    live(control, MIDNIGHT + 2, [3], older)
    control.xadd(keys.METRICS, {older: 4, series: 3.5}, id=f"{round((MIDNIGHT + 3) * 1000)}-0")
    found = metric_history.read_columns(control, tmp_path, MIDNIGHT, MIDNIGHT + 9, [series])
    assert found == {"at": [MIDNIGHT + second for second in range(4)], series: [2, 2, 3, 3.5]}
    asked = metric_history.read_columns(control, tmp_path, MIDNIGHT, MIDNIGHT + 9, [older, series])
    assert (asked[older], asked[series]) == ([2, 2, 3, 4], [2, 2, 3, 3.5])


@pytest.mark.parametrize(("since", "until"), [(-1e12, 0), (0, 1e300), (1e299, 1e300), (0, 0.5)])
def test_a_range_without_data_is_empty_however_odd(since, until, control, tmp_path):
    assert metric_history.read_columns(control, tmp_path, since, until, [SERIES]) == {"at": [], SERIES: []}


def test_a_short_range_of_which_the_seconds_are_gone_comes_by_the_windows_that_are_kept(control, tmp_path):
    roll_up(tmp_path, "10s", MIDNIGHT, [(1, 2), (1, 90), (5, 5)])
    spill(tmp_path, MIDNIGHT + 86_400, [7, 8])  # the seconds of later days are still there
    found = metric_history.read_columns(control, tmp_path, MIDNIGHT, MIDNIGHT + 600, [SERIES])
    assert found == {"at": [MIDNIGHT + each for each in (0, 5, 10, 15)], SERIES: [1, 2, 1, 90]}
    later = metric_history.read_columns(control, tmp_path, MIDNIGHT + 86_400, MIDNIGHT + 86_460, [SERIES])
    assert later[SERIES] == [7, 8]
