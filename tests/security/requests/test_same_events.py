"""Every way in takes the same events and refuses the same: mappings, JSON lines, and columns of Arrow."""

import io

import orjson
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import BadInput
from queues.events.arrow_stream import read_events
from queues.events.block import MAX_ATTRIBUTES, MAX_TEXT, from_columns, from_events
from queues.events.lines import EventLines
from tests.security.requests.arrow_bodies import stream

NOW_US = 1_790_000_000_000_000
TEXTS = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(["", "\0", "a\0", "x" * MAX_TEXT, "x" * (MAX_TEXT + 1), "ä" * MAX_TEXT, "é" * 1_001]),
)
TIMES = st.one_of(
    st.none(), st.floats(), st.sampled_from([0.0, -1.0, -1e-7, 7_258_118_399.999, 7_258_118_400.0, 1e300, 1.7e9])
)
VALUES = st.one_of(st.none(), st.floats())
LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
OBJECTS = st.recursive(
    LEAVES | st.text('ab\\u"{}[]\0', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)
ATTRIBUTES = st.one_of(
    st.none(), st.dictionaries(st.text("ab", max_size=2), OBJECTS, max_size=3).map(lambda each: orjson_text(each)),
    st.text('{}[]":,1a\\ ', max_size=8),
    st.sampled_from(
        [
            '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud800"}', '{"a":"\\u0000"}', '{"a":' + "9" * 5_000 + "}",
            '{"a":' + "[" * 250 + "]" * 250 + "}", '{"a":' + "[" * 300 + "]" * 300 + "}",
            '{"a":' + "[" * 3_000 + "]" * 3_000 + "}", '{"a":"' + "x" * MAX_ATTRIBUTES + '"}',
            '{"a":"' + "ä" * (MAX_ATTRIBUTES - 8) + '"}', "[]", "{}{}", "",
        ],
    ),
)  # fmt: skip


def orjson_text(document):
    try:
        return orjson.dumps(document).decode()
    except TypeError:  # an integer of more than 64 bits
        return "{}"


EVENTS = st.fixed_dictionaries(
    {
        "id": TEXTS, "time": TIMES, "type": TEXTS, "source": TEXTS, "key": TEXTS, "value": VALUES,
        "attributes": ATTRIBUTES,
    },
)  # fmt: skip
TYPES = {"time": pa.float64(), "value": pa.float64()}
PLAIN = dict.fromkeys(("id", "time", "type", "source", "key", "value", "attributes"))


def as_columns(event):
    return pa.RecordBatch.from_pydict({name: pa.array([event[name]], TYPES.get(name, pa.string())) for name in PLAIN})


def outcome(read):
    """The events that were read; None: refused."""
    try:
        return read()
    except BadInput:
        return None


def ways(event):
    batch = as_columns(event)
    return {
        "mapping": outcome(lambda: from_events([event], NOW_US).to_pylist()),
        "columns": outcome(lambda: from_columns(batch, NOW_US).to_pylist()),
        "arrow": outcome(lambda: pa.Table.from_batches(read_events(stream(batch), NOW_US, 9)).to_pylist()),
    }


@given(EVENTS)
@example(PLAIN | {"time": float("nan")})
@example(PLAIN | {"value": float("inf")})
@example(PLAIN | {"type": ""})
def test_mappings_and_columns_take_and_refuse_the_same_events(event):
    found = ways(event)
    assert found["mapping"] == found["columns"] == found["arrow"]


@given(TEXTS, TEXTS, TEXTS, TEXTS, ATTRIBUTES, st.one_of(st.none(), st.floats(-1e300, 1e300)))
def test_json_lines_take_and_refuse_what_arrow_does(own_id, kind, source, key, attributes, value):
    event = {"id": own_id, "type": kind, "source": source, "key": key, "value": value, "attributes": attributes}
    lines = EventLines(io.BytesIO(orjson.dumps(event)), format="jsonl", clock=lambda: NOW_US / 1e6)
    rows = [row for batch in lines for row in batch.to_pylist()]
    arrow = ways(event | {"time": None})["arrow"]
    assert (rows or None) == arrow
    assert lines.rejected == (arrow is None)


@given(st.lists(EVENTS, min_size=2, max_size=6))
def test_columns_are_refused_when_one_of_their_events_is(events):
    one_by_one = [outcome(lambda event=event: from_events([event], NOW_US)) for event in events]
    batch = pa.RecordBatch.from_batches([]) if not events else pa.concat_batches(list(map(as_columns, events)))
    together = outcome(lambda: from_columns(batch, NOW_US).to_pylist())
    assert (together is None) == any(each is None for each in one_by_one)


@given(
    st.one_of(
        st.datetimes(timezones=st.timezones()).map(lambda each: each.isoformat()),
        st.datetimes().map(lambda each: each.isoformat(" ")),
        st.dates().map(str),
        st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "now", "", "1", "2024-W01"]),
        st.text("0123456789-:TZ+. ", max_size=26),
    )
)
def test_times_as_text_are_read_alike(text):
    event = PLAIN | {"time": text}
    batch = pa.RecordBatch.from_pydict({"time": pa.array([text])})
    columns = outcome(lambda: [row["time"] for row in from_columns(batch, NOW_US).to_pylist()])
    mapping = outcome(lambda: [row["time"] for row in from_events([event], NOW_US).to_pylist()])
    assert columns == mapping
