"""What batch jobs read and write: sound and unsound input, spilled figures, the arithmetic of it all."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from queues import keys
from tests.workers.samples import batch_of
from workers.batch import catalog, files
from workers.batch.job import JobContext
from workers.batch.jobs import spill
from workers.batch.jobs.spark import extract, statistics, training
from workers.history import event_archive, metric_history

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PARTITION = event_archive.Partition("2026-11-19", "process")


def lay(data: Path, name: str, table: pa.Table | None = None, partition: event_archive.Partition = PARTITION) -> Path:
    path = partition.get_folder(data) / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_batches([batch_of(8)]) if table is None else table, path)
    return path


def test_unsound_files_are_distinguished_and_named_with_what_is_wrong(tmp_path):
    sound = lay(tmp_path, "a")
    lay(tmp_path, "b", pa.table({"id": ["x"], "time": ["yesterday"]}))
    lay(tmp_path, "c").write_bytes(b"PAR1 nothing of the kind")
    torn = lay(tmp_path, "d")
    torn.write_bytes(torn.read_bytes()[:-20])
    found = event_archive.check_files(event_archive.list_parquet_files(PARTITION.get_folder(tmp_path)))
    assert (found.files, found.rows) == ((sound,), 8)
    why = {Path(fault["file"]).stem: fault["why"] for fault in found.faults}
    assert "type is missing" in why["b"] and "time is string, not timestamp" in why["b"]
    assert why["c"].startswith("is corrupt") and why["d"].startswith("is corrupt")


def test_a_torn_page_behind_a_sound_footer_is_found_by_reading_through(tmp_path):
    path = lay(tmp_path, "a", pa.Table.from_batches([batch_of(5_000)]))
    content = bytearray(path.read_bytes())
    content[200:2_000] = bytes(1_800)
    path.write_bytes(content)
    assert not event_archive.check_files([path]).faults
    assert event_archive.read_through([path]).faults[0]["why"].startswith("is corrupt")


def test_unsound_input_is_skipped_or_stops_by_choice(tmp_path):
    lay(tmp_path, "a", pa.table({"id": ["x"]}))
    found = event_archive.check_files(event_archive.list_parquet_files(PARTITION.get_folder(tmp_path)))
    (fault,) = event_archive.list_skipped_faults(found, "skip", tmp_path)
    assert fault["file"] == "archive/queue=process/day=2026-11-19/a.parquet"
    with pytest.raises(BadInput, match=r"on_error: archive/queue=process/day=2026-11-19/a\.parquet has an unexpected"):
        event_archive.list_skipped_faults(found, "stop", tmp_path)


def test_partitions_are_those_of_the_range_and_the_queues_that_hold_something(tmp_path):
    lay(tmp_path, "a")
    lay(tmp_path, "a", partition=event_archive.Partition("2026-11-18", "alert"))
    lay(tmp_path, ".hidden", partition=event_archive.Partition("2026-11-17", "alert"))
    assert [each.queue for each in event_archive.list_partitions(tmp_path)] == ["alert", "process"]
    assert event_archive.list_partitions(tmp_path, ["process"]) == event_archive.list_partitions(
        tmp_path, since="2026-11-19"
    )
    assert event_archive.list_partitions(tmp_path, until="2026-11-17") == []


def test_a_file_is_shown_whole_by_its_rename_and_leftovers_are_swept_up_to_their_number(tmp_path):
    table = pa.table({"a": [1]})
    old = files.write_table(tmp_path, "statistics/x.parquet", "1-2-3", table)
    new = files.write_table(tmp_path, "statistics/x.parquet", "1-2-4", table)
    other = files.write_table(tmp_path, "statistics/x.parquet", "1-20-3", table)
    assert list((tmp_path / "statistics").glob("[!.]*")) == []
    assert files.sweep(tmp_path, "1-2-", 3) == 1
    assert not (tmp_path / old["statistics/x.parquet"]).exists()
    assert (tmp_path / other["statistics/x.parquet"]).exists()
    files.show(tmp_path, new)
    assert parquet.read_table(tmp_path / "statistics/x.parquet") == table


@given(seconds=st.lists(st.floats(0, 600), min_size=2, max_size=60, unique=True), again=st.integers(0, 3))
def test_gaps_by_minutes_are_those_of_the_whole_and_an_event_archived_twice_counts_once(seconds, again):
    us = np.unique((np.array(seconds) * 1e6).astype(np.int64))
    rows = np.r_[us, us[:again]]
    table = pa.table({"type": ["a"] * len(rows), "us": rows, "event": rows})
    slices = statistics.sum_minutes(table).sort_by("slice")
    assert sum(slices["events"].to_pylist()) == len(us)
    assert sum(slices["duplicates"].to_pylist()) == len(us[:again])
    mean, cv2 = statistics.compute_interarrival(slices)
    gaps = np.diff(us) / 1e6
    if len(gaps):
        assert mean == pytest.approx(gaps.mean(), rel=1e-9)
        assert cv2 == pytest.approx(gaps.var() / gaps.mean() ** 2, rel=1e-6, abs=1e-9)
    else:
        assert (mean, cv2) == (None, None)


def test_rows_of_several_types_are_kept_apart():
    table = pa.table({"type": ["a", "b", "a", "b"], "us": [0, 1, 2_000_000, 70_000_001], "event": [1, 2, 3, 4]})
    slices = statistics.sum_minutes(table)
    quantiles = pa.table({"type": ["a", "b"], "quantiles": [[1.0] * 5, None]})
    rows = statistics.describe(PARTITION, slices, quantiles, {"high": 1}).to_pylist()
    assert [(row["type"], row["events"], row["interarrival_mean_seconds"]) for row in rows] == [
        ("a", 2, 2.0),
        ("b", 2, 70.0),
    ]
    assert rows[0]["selectivity"] == [("high", 0.5)] and rows[1]["value_q99"] is None


def test_training_rows_have_rates_without_gaps_the_calendars_phase_and_whole_windows():
    day = int(datetime(2026, 11, 19, tzinfo=UTC).timestamp()) // 3_600
    counted = pa.table({"window": [day - 1, day, day + 23], "type": ["a", "a", "b"], "events": [7_200, 3_600, 36]})
    rows = training.build_window_table(counted, "2026-11-19", 3_600, 2, 3).to_pylist()
    whole = [row for row in rows if row["type"] == ""]
    assert len(whole) == 24 and {row["type"] for row in rows} == {"", "a", "b"}
    assert [row["rate_per_second"] for row in whole[:3]] == [1.0, 0.0, 0.0]
    # The hour before is known, the one before that isn't.
    assert whole[0]["history"] is None and whole[1]["history"] == [2.0, 1.0]
    assert whole[21]["target"] == [0.0, 0.0, 0.01] and whole[22]["target"] is None
    assert (whole[6]["day_sin"], whole[12]["day_cos"]) == (pytest.approx(1), pytest.approx(-1))
    thursday = 2 * math.pi * 3 / 7
    assert whole[0]["week_sin"] == pytest.approx(math.sin(thursday)) and not whole[0]["weekend"]


def test_extracted_rates_have_a_row_for_a_step_without_events():
    table = extract.build_rate_table(pa.table({"step": [0, 2], "events": [10, 5]}), 1_000.0, 20.0, 5.0)
    assert table["rate_per_second"].to_pylist() == [2.0, 0.0, 1.0, 0.0]
    assert table["time"].to_pylist() == [1_000.0, 1_005.0, 1_010.0, 1_015.0]


def where(control: redis.Redis, data: Path, now: datetime = NOW) -> JobContext:
    return JobContext(data, control, now)


def spilled(control: redis.Redis, data: Path, now: datetime = NOW) -> int:
    """Everything there is to spill, chunk after chunk; answers the rows."""
    rows, after = 0, None
    while (piece := spill.build_next_chunk({}, where(control, data, now), after)) is not None:
        table = spill.read_stream_rows(control, piece.content["first"], piece.content["last"])
        final = f"{metric_history.RAW_ROOT}/day={piece.content['day']}/{piece.identifier}.parquet"
        files.show(data, files.write_table(data, final, "t", table))
        rows, after = rows + table.num_rows, piece.identifier
    return rows


def test_figures_are_spilled_once_day_by_day_and_the_next_spill_goes_on(control, tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "CHUNK_ROWS", 4)
    monkeypatch.setattr(spill, "PAGE_ROWS", 3)
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    for second in range(-3, 9):
        at = round((midnight + timedelta(seconds=second)).timestamp() * 1000)
        control.xadd(keys.METRICS, {"totals.in_per_second": str(second), "nodes.n1.utilisation": "0.5"}, id=f"{at}-0")
    assert spilled(control, tmp_path, midnight + timedelta(seconds=6)) == 2 * 8  # the newest may not be whole yet
    assert spilled(control, tmp_path) == 2 * 4
    assert spilled(control, tmp_path) == 0
    assert metric_history.list_raw_days(tmp_path) == ["2026-11-19", "2026-11-20"]
    table = parquet.read_table(metric_history.get_raw_folder(tmp_path, "2026-11-19"), partitioning=None)
    assert table.schema.equals(metric_history.RAW) and table.num_rows == 6


DAY = {"queue": "process", "since": "2026-11-19", "until": "2026-11-20"}
LAST = {"since": "9999-12-31", "until": "9999-12-31T20:00", "other_since": "2026-11-19"}
WINDOWS = {"since": "2026-11-19", "window_seconds": 1, "history": 1_000, "horizon": 1_000}


@pytest.mark.parametrize(
    ("job", "given", "field"),
    [
        ("replay_extract", {**DAY, "queue": None}, "queue"),
        ("replay_extract", {**DAY, "since": "soon"}, "since"),
        ("replay_extract", {**DAY, "since": "2026-11-20", "until": "2026-11-19"}, "until"),
        ("replay_extract", {**DAY, "queue": "absent"}, "queue"),
        ("replay_extract", {**DAY, "queue": "../up"}, "queue"),
        ("replay_extract", {**DAY, "step_seconds": "0.001"}, "step_seconds"),
        ("replay_extract", {**DAY, "until": "9999-12-31T23:00Z"}, "until"),
        ("stream_statistics", {"since": "2026-11-20", "until": "2026-11-19"}, "since"),
        ("stream_statistics", {"days": "0"}, "days"),
        ("stream_statistics", {"on_error": "hope"}, "on_error"),
        ("stream_statistics", {"until": "0001-01-02", "days": 3}, "until"),
        ("forecast_training", WINDOWS, "window_seconds"),
        ("forecast_training", {"window_seconds": "1.5"}, "window_seconds"),
        ("metric_rollup", {"until": "9999-12-31"}, "until"),
        ("stretch_comparison", LAST, "since"),
        ("retention", {"ledger_days": "NaN"}, "ledger_days"),
    ],
)
def test_a_faulty_parameter_is_refused_by_its_name(job, given, field, control, tmp_path):
    lay(tmp_path, "a")
    declared = catalog.get_job(job)
    with pytest.raises(BadInput) as refused:
        list(declared.pieces(declared.read(given), where(control, tmp_path)))
    assert refused.value.field == field
