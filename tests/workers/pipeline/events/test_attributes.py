"""Attributes are read from JSON as if each event were read alone."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.pipeline.events.layout import Attribute, _parse_row, extract

ATTRIBUTES = (
    Attribute("level", "number"),
    Attribute("site", "text"),
    Attribute("user", "integer"),
    Attribute("up", "boolean", required=True),
)
values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
objects = st.dictionaries(st.sampled_from(["level", "site", "user", "up", "other"]), values).map(json.dumps)
right = st.fixed_dictionaries(
    {"level": st.integers(-9, 9) | st.floats(-9, 9), "site": st.text(), "user": st.integers(0, 9), "up": st.booleans()}
).map(json.dumps)
odd = st.sampled_from(
    [
        "",
        "{}",
        "[]",
        "1",
        "{",
        "}",
        '{"up": true}, {}',
        '{"up": true',
        '"level": 1}',
        "null",
        '{"up": true, "up": 1}',
        "\\",
    ]
)


def assert_read_alone(texts):
    columns, faults = extract(pa.array(texts, pa.string()), ATTRIBUTES)
    rows = [_parse_row(text, ATTRIBUTES) for text in texts]
    assert faults.to_pylist() == [fault for _, fault in rows]
    for place, column in enumerate(columns):
        assert column.to_pylist() == [row[place] for row, _ in rows]


@given(st.lists(st.one_of(objects, odd, st.none()), max_size=12))
def test_faulty_attributes_do_not_change_those_of_other_events(texts):
    assert_read_alone(texts)


@given(st.lists(right, min_size=1, max_size=12), st.integers(1, 9))
def test_attributes_that_repeat_are_read_as_those_that_do_not(texts, times):
    assert_read_alone(texts * times)


@pytest.mark.parametrize(
    "texts",
    [
        ['{"up": true}, {}', '{"up": true', '"level": 1}'],  # together as many objects as texts
        ['{"up": true, "site": "\\ud800"}', '{"up": true}'],
        ['{"up": true, "level": 36893488147419103232}'],
        ['{"up": true, "user": 9223372036854775808}', '{"up": true, "user": 9223372036854775807}'],
    ],
)
def test_texts_that_are_wrong_alone_are_not_right_together(texts):
    assert_read_alone(texts)


def test_no_event_has_no_attributes():
    assert_read_alone([])
