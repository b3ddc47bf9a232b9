"""A stretch is read from the archive and from snapshots, slice by slice."""

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import BadInput
from queues.events.block import SCHEMA
from tests.workers.snapshots import snapshot_of
from workers.history import stretches
from workers.history.stretches import (
    REST,
    SLICES,
    ReadBudget,
    TimeRange,
    TimeRangeFigures,
    add_snapshots,
    compute_range_figures,
    count_archived,
    fold_rare,
)

START = 1_790_000_400.0
STRETCH = TimeRange(START, START + 120.0)


def keep(data: Path, rows: list[tuple[float, str, str, str | None]], queue: str = "alert") -> None:
    """Archived events: (time, type, key, source)."""
    times, types, keys, sources = zip(*rows, strict=True)
    columns = {
        "id": [str(at) for at in range(len(rows))],
        "time": [round(at * 1e6) for at in times],
        "type": types,
        "source": sources,
        "key": keys,
        "value": [1.0] * len(rows),
        "attributes": [None] * len(rows),
    }
    table = pa.table([pa.array(columns[each.name], each.type) for each in SCHEMA], schema=SCHEMA)
    folder = data / "archive" / f"queue={queue}" / "day=2026-09-21"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "a.parquet")


def test_events_of_the_archive_fall_into_their_slices(tmp_path):
    keep(
        tmp_path,
        [
            (START - 1, "order", "k", "shop"),
            (START, "order", "k", "shop"),
            (START + 10, "order", "l", None),
            (START + 119.9, "visit", "k", "shop"),
            (START + 120, "order", "k", "shop"),
        ],
    )
    found = count_archived(STRETCH, tmp_path)
    assert found["type"] == {"order": [1.0, 1.0, *[0.0] * 10], "visit": [*[0.0] * 11, 1.0]}
    assert found["source"]["(none)"][1] == 1.0 and sum(found["key"]["k"]) == 2.0
    assert count_archived(STRETCH, tmp_path, "another") == {}


def test_rare_values_of_both_stretches_are_one(monkeypatch):
    monkeypatch.setattr(stretches, "MAX_VALUES", 2)
    ours = {"a": [9.0] * SLICES, "b": [1.0] * SLICES, "c": [2.0] * SLICES}
    theirs = {"b": [8.0] * SLICES, "c": [3.0] * SLICES, "d": [4.0] * SLICES}
    here, there = fold_rare(ours, theirs)
    assert set(here) == {"a", "b", REST} and here[REST] == [2.0] * SLICES
    assert set(there) == {"b", REST} and there[REST] == [7.0] * SLICES


def test_a_key_of_its_own_for_each_event_fills_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(stretches, "BATCH_ROWS", 100)
    monkeypatch.setattr(stretches, "MAX_COUNTED", 200)
    rows = [(START + at / 50, "t", "hot" if at % 3 == 0 else f"k{at}", None) for at in range(3_000)]
    keep(tmp_path, rows)
    found = count_archived(STRETCH, tmp_path)["key"]
    assert len(found) <= 300 and sum(found["hot"]) == 1_000
    assert sum(map(sum, found.values())) == 3_000


def test_more_events_or_seconds_than_a_request_may_read_are_refused(tmp_path):
    keep(tmp_path, [(START + at, "t", "k", None) for at in range(3)])
    for budget in (ReadBudget(rows=2), ReadBudget(seconds=1.0, clock=count(0.0, 2.0).__next__)):
        with pytest.raises(BadInput, match="Choose a shorter range or a single queue"):
            compute_range_figures(STRETCH, tmp_path, budget=budget)


def plant(at: float) -> dict:
    """100 events come in a slice on n1 and 50 on n2; the handler takes 0.2 s for each from the middle on."""
    step = (at - START) / STRETCH.slice_seconds
    containers = {
        "n1": {"inserted_events": 100 * step, "removed_events": 100 * step},
        "n2": {"inserted_events": 50 * step, "removed_events": 50 * step},
    }
    containers = {name: {key: round(value) for key, value in row.items()} for name, row in containers.items()}
    slow = 0.2 if step > 6 else 0.1
    queue = {"kind": "jobs", "handler": "sql", "service_seconds": slow, "containers": containers}
    producers = {"shop": {"queues": {"alert": 12.0, "other": 3.0}}}
    hosts = {"jobs@h1": {"slots": 4, "busy": 2}}
    return {"at": at, "queues": {"alert": queue}, "producers": producers, "hosts": hosts}


def test_counters_of_snapshots_become_events_of_slices():
    found = TimeRangeFigures()
    add_snapshots(found, STRETCH, lambda at: snapshot_of(plant(at)))
    assert found.counts["node"] == {"n1": [100.0] * SLICES, "n2": [50.0] * SLICES}
    assert found.counts["handler"] == {"sql of alert": [150.0] * SLICES}
    assert found.counts["producer"]["shop"] == [150.0] * SLICES
    assert found.measures["handler", "sql of alert", "seconds per event"] == [0.1] * 6 + [0.2] * 6
    assert found.measures["worker host", "jobs@h1", "busy share"] == [0.5] * SLICES


def test_what_producers_sample_counts_for_queues_that_are_not_archived():
    def sampled(at):
        of_shop = {"events": 10, "type": {"order": 10}, "key": {"hot": 6, "k": 2}, "source": {"(none)": 10}}
        shop = {"queues": {"alert": 12.0, "other": 3.0, "old": 5.0}, "samples": {"alert": of_shop, "other": of_shop}}
        return snapshot_of({"at": at, "producers": {"shop": shop, "app": {"queues": {"alert": 2.0}}}})

    def of(queue="", archived=()):
        figures = TimeRangeFigures()
        add_snapshots(figures, STRETCH, sampled, queue, archived)
        return figures.counts

    assert of("alert")["key"] == {"hot": [72.0] * SLICES, "k": [24.0] * SLICES, REST: [24.0] * SLICES}
    assert of()["type"]["order"] == [150.0] * SLICES
    assert of(archived=("other",))["source"]["(none)"] == [120.0] * SLICES
    assert "key" not in of("old") and "key" not in of("alert", ("alert",))


def test_a_counter_that_began_anew_counts_nothing_below_zero():
    found = TimeRangeFigures()
    add_snapshots(found, STRETCH, lambda at: snapshot_of(plant(2 * START - at + 120)))
    assert min(found.counts["node"]["n1"]) == 0.0
