"""The rows of the metrics: numbers, and lists of series that rows share."""

import pytest

from queues import keys
from tests.console.conftest import sample_snapshot
from tests.workers.snapshots import snapshot_of
from workers.batch.jobs import spill
from workers.documents.snapshot import Snapshot
from workers.history import metrics

RATE, SHARE = "totals.in_per_second", "nodes.n1.utilisation"


def snapshot_at_rate(rate: float | None, **rows: dict) -> Snapshot:
    sample = sample_snapshot()
    return snapshot_of({**sample, **rows, "totals": {**sample["totals"], "in_per_second": rate}})


@pytest.fixture
def writer(control):
    return metrics.MetricWriter(control)


def test_a_row_has_each_number_of_its_snapshot(control, writer):
    snapshot = snapshot_at_rate(2.5)
    writer.append(control, snapshot, "3000-0")
    figures = dict(metrics.iterate_figures(snapshot))
    times, columns = metrics.read_columns(control, 0, 9, figures)
    assert times.tolist() == [3.0]
    assert {name: column.tolist() for name, column in columns.items()} == {name: [figures[name]] for name in figures}


def test_a_row_names_no_series_and_an_unknown_number_needs_no_other_list(control, writer):
    for second, rate in enumerate((1.0, None, 3.0), 1):
        writer.append(control, snapshot_at_rate(rate), f"{second}000-0")
    assert {tuple(fields) for _, fields in control.xrange(keys.METRICS)} == {(b"list", b"numbers")}
    assert control.hlen(keys.METRIC_SERIES) == 1
    _, columns = metrics.read_columns(control, 0, 9, [RATE])
    assert columns[RATE][[0, 2]].tolist() == [1.0, 3.0] and columns[RATE][1] != columns[RATE][1]
    table = spill.read_stream_rows(control, "-", "+").to_pylist()
    assert [row["value"] for row in table if row["series"] == RATE] == [1.0, 3.0]


def test_another_observer_continues_with_the_list_of_the_newest_row(control, writer):
    writer.append(control, snapshot_at_rate(1.0))
    metrics.MetricWriter(control).append(control, snapshot_at_rate(None))
    assert control.hlen(keys.METRIC_SERIES) == 1


def test_rows_of_older_versions_are_read_with_new_ones(control, writer):
    control.xadd(keys.METRICS, {RATE: "1.5", SHARE: "0.25"}, id="1000-0")
    control.xadd(keys.METRICS, {RATE: "2.5"}, id="2000-0")
    writer.append(control, snapshot_at_rate(3.5), "3000-0")
    times, columns = metrics.read_columns(control, 0, 9, [RATE])
    assert (times.tolist(), columns[RATE].tolist()) == ([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])
    assert spill.read_stream_rows(control, "1000-0", "2000-0").to_pydict()["value"] == [1.5, 0.25, 2.5]


def test_lists_that_no_row_has_are_removed_and_a_lost_one_is_written_again(control, writer):
    for number in range(metrics.MAX_LISTS):
        control.hset(keys.METRIC_SERIES, f"former{number}", "[]")
    writer.append(control, snapshot_at_rate(1.0), "1000-0")
    assert control.hlen(keys.METRIC_SERIES) == 1
    control.delete(keys.METRIC_SERIES)
    writer.append(control, snapshot_at_rate(2.0), "2000-0")
    assert metrics.read_columns(control, 0, 9, [RATE])[1][RATE].tolist() == [1.0, 2.0]


def test_series_of_removed_things_leave_the_list_when_they_are_the_greater_part(control, writer, monkeypatch):
    monkeypatch.setattr(metrics, "SPARE_SERIES", 0)
    container = {"points": 1}
    queues = sample_snapshot()["queues"]
    name, queue = next(iter(queues.items()))
    for generation in range(20):
        named = {f"n{generation}-{number}": container for number in range(40)}
        writer.append(control, snapshot_at_rate(1.0, queues={name: {**queue, "containers": named}}))
    newest = next(metrics.iterate_rows(control, control.xrevrange(keys.METRICS, count=1)))
    assert len(newest.series) <= 2 * len(dict(metrics.iterate_figures(snapshot_at_rate(1.0)))) + 80
