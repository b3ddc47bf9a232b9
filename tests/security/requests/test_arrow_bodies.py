"""An Arrow stream becomes no more than was sent, and its events are checked as those of JSON lines are."""

import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import MalformedEvent
from queues.events.arrow_stream import MAX_BATCHES, read_events, record_batch_header
from queues.segments.segment import Segment
from tests.security.requests.arrow_bodies import END, batch_of, columns, schema_of, stream
from tests.security.requests.producing import ARROW
from tests.security.requests.producing import producer as producer

NOW_US = 1_790_000_000_000_000
MOST = 1_000_000
TEXT = pa.string()
VALUES = pa.schema([("value", pa.float64())])
ALL_NULL = pa.schema([("type", pa.null())])
TWO = struct.pack("<dd", 1.0, 2.0)


def texts(data, *offsets):
    """A column of text with these bytes and offsets, whatever they mean."""
    places = np.array(offsets, np.int32).tobytes()
    start = -(-len(places) // 8) * 8
    body = places.ljust(start, b"\0") + data.ljust(-(-len(data) // 8) * 8, b"\0")
    buffers = [(0, 0), (0, len(places)), (start, len(data))]
    rows = len(offsets) - 1
    return schema_of(pa.schema([("type", TEXT)])) + batch_of(rows, [(rows, 0)], buffers, body) + END


def run_ends():
    return pa.RunEndEncodedArray.from_arrays(pa.array([2**30], pa.int32()), pa.array([1.0]))


REFUSED = {
    "compressed with zstd": (stream(columns(value=np.zeros(1000)), compression="zstd"), "compressed"),
    "a dictionary": (stream(columns(type=pa.array(["a"] * 9).dictionary_encode())), "dictionary"),
    "a list": (stream(columns(attributes=pa.array([[1]]))), "list"),
    "run ends": (stream(columns(value=run_ends())), "run_end"),
    "a view": (stream(columns(type=pa.array(["a"], pa.string_view()))), "string_view"),
    "an extension": (stream(columns(type=pa.array(["1"], pa.json_()))), "type"),
    "an unknown column": (stream(columns(kind=pa.array(["a"]))), "kind"),
    "a column twice": (
        stream(pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["type", "type"])),
        "duplicate column",
    ),
    "no column": (stream(pa.RecordBatch.from_arrays([], names=[])), "no column"),
    "metadata over the limit": (
        stream(columns(type=pa.array(["a"])).replace_schema_metadata({"x": "y" * 200_000})),
        "metadata",
    ),
    "rows from nothing": (schema_of(ALL_NULL) + batch_of(2**40, [(2**40, 2**40)], [], b"") + END, "at most"),
    "rows below nothing": (schema_of(VALUES) + batch_of(-1, [(-1, 0)], [(0, 0), (0, 16)], TWO), "lengths"),
    "more nulls than rows": (schema_of(VALUES) + batch_of(2, [(2, 3)], [(0, 0), (0, 16)], TWO), "lengths"),
    "a buffer behind the body": (schema_of(VALUES) + batch_of(2, [(2, 0)], [(0, 0), (8, 16)], TWO), "buffers"),
    "a buffer twice": (
        schema_of(pa.schema([("value", pa.float64()), ("time", pa.int64())]))
        + batch_of(2, [(2, 0)] * 2, [(0, 0), (0, 16), (0, 0), (0, 16)], TWO),
        "buffers",
    ),
    "a buffer too small for its rows": (schema_of(VALUES) + batch_of(200, [(200, 0)], [(0, 0), (0, 16)], TWO), "body"),
    "too few buffers": (schema_of(VALUES) + batch_of(2, [(2, 0)], [(0, 0)], TWO), "body"),
    "too many buffers": (schema_of(VALUES) + batch_of(2, [(2, 0)], [(0, 0)] * 99, TWO), "header"),
    "a body that is not there": (
        schema_of(VALUES) + batch_of(2, [(2, 0)], [(0, 0), (0, 16)], TWO, body_bytes=2**40),
        "Arrow stream",
    ),
    "a batch before the schema": (batch_of(2, [(2, 0)], [(0, 0), (0, 16)], TWO), "schema"),
    "a schema in place of a batch": (schema_of(VALUES) * 2, "schema"),
    "metadata that is not there": (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "Arrow stream"),
    "offsets that fall": (texts(b"abcdef", 0, 4, 2, 6), "offset"),
    "offsets below 0": (texts(b"abc", -7, 1, 3), "body"),
    "text that is no utf-8": (texts(b"\xff\xfe", 0, 1, 2), "UTF8"),
    "a surrogate": (texts(b"\xed\xa0\x80", 0, 3), "UTF8"),
    "NUL in a text": (stream(columns(key=pa.array(["a\0b"]))), "key"),
    "an empty type": (stream(columns(type=pa.array(["a", ""]))), "type"),
    "a long type": (stream(columns(type=pa.array(["a" * 1_001]))), "1000 characters"),
    "attributes that only look like an object": (stream(columns(attributes=pa.array(["{x}"]))), "object"),
    "attributes over the limit": (stream(columns(attributes=pa.array(['{"a":"' + "x" * 65_536 + '"}']))), "65536"),
    "attributes nested deeply": (stream(columns(attributes=pa.array(['{"a":' + "[" * 900 + "]" * 900 + "}"]))), "254"),
    "infinity": (stream(columns(value=pa.array([np.inf]))), "finite"),
    "a time that overflows into the range": (
        stream(columns(time=pa.array([2**63 // 1_000_000 * 2 + 5], pa.timestamp("s")))),
        "time",
    ),
    "a time before 1970": (stream(columns(time=pa.array([-1], pa.timestamp("us", "UTC")))), "1970"),
    "a time of no number": (stream(columns(time=pa.array([np.nan]))), "time"),
    "record batches without end": (stream(*[columns(value=[1.0])] * (MAX_BATCHES + 1)), "record batches"),
    "a legacy stream of no length": (b"\0\0\0\0" * 4, "Arrow stream"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_stream_is_refused_naming_what_it_takes(case):
    body, says = REFUSED[case]
    before_bytes = pa.total_allocated_bytes()
    with pytest.raises(MalformedEvent) as caught:
        list(read_events(body, NOW_US, MOST))
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500
    assert pa.total_allocated_bytes() - before_bytes < 2**20


@pytest.mark.django_db
@pytest.mark.parametrize("case", ["compressed with zstd", "text that is no utf-8", "rows from nothing"])
def test_the_api_refuses_it_and_stores_nothing(case, producer, nodes):
    answer = producer(REFUSED[case][0], ARROW)
    assert answer.status_code == 400
    assert REFUSED[case][1] in json.dumps(answer.json())
    assert all(Segment(node.client(), "alert").get_counters()["inserted_events"] == 0 for node in nodes.values())


@pytest.mark.django_db
def test_the_api_takes_100_000_events_a_request_and_no_more(producer):
    most = columns(type=pa.nulls(100_000))
    assert producer(stream(most), ARROW).json()["published"] == 100_000
    answer = producer(stream(most, columns(type=pa.nulls(1))), ARROW)
    assert (answer.status_code, "100000 events" in str(answer.json())) == (400, True)


TAKEN = {
    "nothing but nulls": columns(type=pa.nulls(3)),
    "large text": columns(type=pa.array(["ä" * 1_000, None], pa.large_string())),
    "numbers as text": columns(key=pa.array([1, 2], pa.uint64())),
    "half floats": columns(value=np.array([1.5], np.float16)),
    "great integers": columns(value=pa.array([2**62 + 1])),
    "nanoseconds": columns(time=pa.array([1_500], pa.timestamp("ns", "Europe/Berlin"))),
    "times of mixed forms": columns(time=pa.array(["2024-01-01", "2024-01-01T00:00:00+01:00"])),
    "no rows": columns(type=pa.array([], TEXT)),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_plain_stream_is_taken(case):
    read = list(read_events(stream(TAKEN[case], TAKEN[case]), NOW_US, MOST))
    assert sum(batch.num_rows for batch in read) == 2 * TAKEN[case].num_rows
    for batch in read:
        batch.validate(full=True)


BODY = stream(columns(type=pa.array(["cpu", None]), value=pa.array([1.0, 2.0]), attributes=pa.array(["{}", None])))


@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_stream_with_bytes_changed_is_read_or_refused(changes):
    body = bytearray(BODY)
    for place, byte in changes:
        body[place] = byte
    try:
        batches = list(read_events(bytes(body), NOW_US, MOST))
    except MalformedEvent:
        return
    for batch in batches:
        batch.validate(full=True)
        batch.to_pylist()


@given(st.integers(0, len(BODY)))
def test_a_stream_that_breaks_off_is_read_to_there_or_refused(size):
    try:
        list(read_events(BODY[:size], NOW_US, MOST))
    except MalformedEvent as error:
        assert error.field == "body"


@given(st.binary(max_size=300))
def test_a_header_of_any_bytes_is_read_or_refused(metadata):
    try:
        record_batch_header(metadata, 7)
    except MalformedEvent as error:
        assert error.field == "body"
