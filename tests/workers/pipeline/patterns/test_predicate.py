"""What a symbol may demand of an event, and what is refused."""

import pyarrow as pa
import pytest

from queues.errors import BadInput
from workers.pipeline.patterns.predicate import parse, previous_of

TYPES = {"value": pa.float64(), "count": pa.int64(), "type": pa.string(), "name": pa.string()}


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("value > 2", {"value": 3.0}, True),
        ("value > 2", {"value": None}, False),
        ("not (value > 2)", {"value": None}, False),
        ("value > 2 or type == 'a'", {"value": None, "type": "a"}, True),
        ("type in ('a', 'b')", {"type": "b"}, True),
        ("type not in ('a', 'b')", {"type": None}, False),
        ("'ill' in name", {"name": "mill-1"}, True),
        ("'ill' not in name", {"name": "mill-1"}, False),
        ("'ill' not in name", {"name": None}, False),
        ("value * 2 - 1 >= 5", {"value": 3.0}, True),
        ("count / 2 > 1", {"count": 3}, True),
        ("count / 0 > 1", {"count": 3}, True),
        ("-value < 0", {"value": 3.0}, True),
        ("true", {}, True),
        ("value != 1 and false", {"value": 2.0}, False),
        ("value = 2", {"value": 2.0}, True),
        ("value >= 3 and 3 >= value and value != 4", {"value": 3.0}, True),
        ("(value > 5 and value < 3) or value == 1", {"value": 1.0}, True),
        ("value > 1 and not (value > 1 and value < 1)", {"value": 2.0}, True),
        ("value <> 2 OR type = 'a = b'", {"value": 2.0, "type": "a = b"}, True),
        ("NOT value <= 2 AND type='AND'", {"value": 3.0, "type": "AND"}, True),
    ],
)
def test_a_condition_holds_as_written_and_never_of_the_unknown(text, event, expected):
    predicate = parse(text, "define.A")
    columns = {name: pa.array([event.get(name)], TYPES[name]) for name in predicate.columns}
    assert predicate.mask(columns, 1).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("text", "before", "expected"),
    [
        ("value < prev(value)", 3.0, True),
        ("value < prev(value)", 1.0, False),
        ("value < prev(value)", None, False),
        ("not (value < prev(value))", None, False),
        ("value - prev(value) = -1", 3.0, True),
    ],
)
def test_a_comparison_with_the_event_before_is_false_where_there_is_none(text, before, expected):
    predicate = parse(text, "define.A")
    assert (predicate.columns, predicate.previous) == ({"value"}, {"value"})
    columns = {"value": pa.array([2.0]), previous_of("value"): pa.array([before], pa.float64())}
    assert predicate.mask(columns, 1).to_pylist() == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "value >",
        "value > 'a",
        "(" * 300 + "1 = 1" + ")" * 300,
        "value",
        "__import__('os')",
        "a.b > 1",
        "1 < value < 2",
        "value in x",
        "value in ()",
        "value in (1, 'a')",
        "value and 1",
        "prev(3) > 1",
        "prev(value, 2) > 1",
        "value > 1e999",
        "value > 99999999999999999999",
        "'a' > 3",
        "false",
        "1 > 2",
        "value > 5 and value < 3",
        "value > 5 and value <= 5",
        "value >= 5 and (type == 'a' and 5 > value)",
        "type == 'a' and type == 'b'",
        "type == 'a' and type != 'a'",
        "value == 3 and value > 3",
        "value < 3 and value == 'low'",
        "(value > 5 and value < 3) or (value > 6 and value < 4)",
    ],
)
def test_what_is_no_condition_or_never_true_is_refused_and_the_field_is_named(text):
    with pytest.raises(BadInput, match=r"define\.A") as refused:
        parse(text, "define.A")
    assert refused.value.field == "define.A"
