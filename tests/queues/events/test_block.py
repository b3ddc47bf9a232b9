"""Blocks: events in, the same events out; bad ones refused by field."""

import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import MalformedEvent
from queues.events import block
from queues.events.block import BLOCK_EVENTS, SCHEMA, Block, BlockIds, cut, decode, from_columns, from_events

NOW_US = 1_790_000_000_000_000
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXT = st.one_of(st.none(), st.text(CHARACTERS, max_size=12))
TYPE = st.one_of(st.none(), st.text(CHARACTERS, min_size=1, max_size=12))
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": TEXT,
        "time": st.one_of(
            st.none(),
            st.integers(0, 7_258_118_399),
            st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001
        ),
        "type": TYPE,
        "source": TEXT,
        "key": TEXT,
        "value": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)),
        "attributes": st.one_of(st.none(), st.dictionaries(st.text("ab", max_size=2), st.integers(), max_size=2)),
    },
)


@given(st.lists(EVENTS, min_size=1, max_size=30), st.integers(1, 7))
def test_events_come_back_as_they_went_in(events, per_block):
    batch = from_events(events, NOW_US)
    back = [decode(each.block_id, bytes(each.data)).batch for each in cut(batch, BlockIds(), per_block)]
    assert pa.Table.from_batches(back).combine_chunks().to_batches()[0].equals(batch)
    for event, row in zip(events, batch.to_pylist(), strict=True):
        assert row["type"] == event.get("type")
        assert row["value"] == (None if event.get("value") is None else float(event["value"]))
        assert row["time"] is not None


@given(st.lists(EVENTS, min_size=1, max_size=20))
def test_the_columnar_way_takes_what_the_other_way_made(events):
    batch = from_events(events, NOW_US)
    assert from_columns(batch, NOW_US).equals(batch)
    assert from_columns(pa.Table.from_batches([batch, batch]), NOW_US).num_rows == 2 * len(events)


@given(st.integers(1, 3000))
def test_a_batch_is_cut_into_full_blocks_and_a_rest_with_their_newest_times(rows):
    times = np.random.default_rng(rows).integers(0, 10**15, rows)
    batch = from_columns(pa.table({"time": pa.array(times, pa.timestamp("us", "UTC"))}), NOW_US)
    blocks = cut(batch, BlockIds())
    assert [each.events for each in blocks[:-1]] == [BLOCK_EVENTS] * (len(blocks) - 1)
    assert sum(each.events for each in blocks) == rows
    assert [each.newest_time_us for each in blocks] == [
        int(times[start : start + BLOCK_EVENTS].max()) for start in range(0, rows, BLOCK_EVENTS)
    ]
    assert len({each.block_id for each in blocks}) == len(blocks)


def test_blocks_of_large_events_are_of_a_megabyte_and_hold_all_of_them():
    events = [{"id": str(place), "attributes": {"text": "x" * 60_000}} for place in range(100)]
    blocks = cut(from_events(events, NOW_US), BlockIds())
    assert max(each.size_bytes for each in blocks) <= 1.1 * 2**20 and len(blocks) <= 8
    found = [name for each in blocks for name in decode(each.block_id, bytes(each.data)).get_event_ids().to_pylist()]
    assert found == [str(place) for place in range(100)]


def test_a_few_large_events_among_many_small_ones_make_no_larger_blocks():
    """Sized by the mean alone, the three hundred were one block of 18 MB."""
    large = range(1_000, 1_300)
    events = [
        {"id": str(place), "attributes": {"text": "x" * (60_000 if place in large else 10)}} for place in range(8_000)
    ]
    blocks = cut(from_events(events, NOW_US), BlockIds())
    assert max(each.size_bytes for each in blocks) <= 2.1 * 2**20 and len(blocks) <= 50
    back = [decode(each.block_id, bytes(each.data)).batch for each in blocks]
    assert [each.num_rows for each in back] == [each.events for each in blocks]
    found = [name for batch in back for name in batch.column(0).to_pylist()]
    assert found == [str(place) for place in range(8_000)]


def test_missing_ids_are_derived_from_block_and_row_and_own_ids_are_kept():
    made = Block("f" * 32, from_events([{"id": "mine"}, {}, {}], NOW_US))
    assert made.get_event_ids().to_pylist() == ["mine", "f" * 32 + ":1", "f" * 32 + ":2"]
    assert made.build_explicit_batch().slice(2, 1).column(0).to_pylist() == ["f" * 32 + ":2"]


def test_block_ids_are_32_hex_digits_and_never_twice_over_clients():
    ids = {make() for make in (BlockIds(), BlockIds()) for _ in range(1000)}
    assert len(ids) == 2000
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in ids)


def test_ids_are_unique_over_processes_that_were_forked_from_one():
    """A server that makes its client before its workers: their blocks had the same ids, and whoever handles a
    block once took all but the first for known.
    """
    made = "import os; from queues.events.block import BlockIds; ids = BlockIds(); ids(); child = os.fork()"
    said = "os.write(1, f'{ids()} '.encode()); child and os.wait()"
    command = [sys.executable, "-c", f"{made}; {said}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(set(run.stdout.split())) == 2


@pytest.mark.parametrize(
    ("time", "us"),
    [
        (None, NOW_US),
        (1.5, 1_500_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01 01:00:01+01:00", 1_000_000),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
    ],
)
def test_times_are_taken_in_their_several_forms(time, us):
    assert block.find_newest_time_us(from_events([{"time": time}], NOW_US)) == us


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"time": "soon"}, "time"),
        ({"time": float("nan")}, "time"),
        ({"time": float("inf")}, "time"),
        ({"time": -1}, "time"),
        ({"time": 1e16}, "time"),
        ({"time": True}, "time"),
        ({"time": []}, "time"),
        ({"value": "1"}, "value"),
        ({"value": float("nan")}, "value"),
        ({"value": 10**400}, "value"),
        ({"value": False}, "value"),
        ({"type": 1.5}, "type"),
        ({"key": "k" * 1001}, "key"),
        ({"source": "\ud800"}, "source"),
        ({"attributes": "[1]"}, "attributes"),
        ({"attributes": {"a": float("nan")}}, "attributes"),
        ({"attributes": '{"a": NaN}'}, "attributes"),
        ({"attributes": {"a": "x" * 70_000}}, "attributes"),
        ({"colour": "red"}, "colour"),
        ("text", "event"),
    ],
)
def test_a_malformed_event_is_refused_by_its_place_and_field(event, field):
    with pytest.raises(MalformedEvent) as caught:
        from_events([{}, event], NOW_US)
    assert caught.value.field == f"events[1].{field}"


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"value": [1.0, float("inf")]}, "value"),
        ({"value": ["x"]}, "value"),
        ({"time": ["x"]}, "time"),
        ({"time": [-5]}, "time"),
        ({"time": [1e300]}, "time"),
        ({"attributes": ["[]"]}, "attributes"),
        ({"attributes": ["{}", ""]}, "attributes"),
        ({"attributes": ["{}", None, "{"]}, "attributes"),
        ({"colour": ["red"]}, "colour"),
    ],
)
def test_a_malformed_column_is_refused_by_name(columns, field):
    with pytest.raises(MalformedEvent) as caught:
        from_columns(pa.table(columns), NOW_US)
    assert caught.value.field == field


def test_columns_of_other_types_are_cast_and_missing_ones_filled():
    table = pa.table({"time": [1, None], "value": pa.array([1, 2], pa.int8()), "key": pa.array([5, 6])})
    batch = from_columns(table, NOW_US)
    assert batch.schema.equals(SCHEMA)
    assert batch.column(1).view(pa.int64()).to_pylist() == [1_000_000, NOW_US]
    assert batch.column(4).to_pylist() == ["5", "6"]
    assert batch.column(0).null_count == 2


def test_bytes_that_are_no_block_are_refused():
    for data in (b"", b"not a block", from_events([{}], NOW_US).serialize().to_pybytes()[:40]):
        with pytest.raises(MalformedEvent, match="block"):
            decode("a" * 32, data)
