"""What a symbol may demand of an event, and what is refused."""

from decimal import Decimal

import pyarrow as pa
import pytest

from common.errors import BadInput
from workers.pipeline.patterns import exact_numbers
from workers.pipeline.patterns.predicate import format_previous_name, parse

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
        ("not (count / 0 > 1)", {"count": 0}, False),
        ("not (value / 0 > 1)", {"value": 0.0}, False),
        ("not (value / 0 - value / 0 > 1)", {"value": 1.0}, False),
        ("not (count / 0 - count / 0 > 1)", {"count": 1}, False),
        ("not (value / 0 * 0 > 1)", {"value": 1.0}, False),
        ("value > 2 or not (1 / 0 - 1 / 0 > 1)", {"value": 1.0}, False),
        ("value > 2 or 0 / 0 not in (1, 2)", {"value": 1.0}, False),
        ("not (value > 0 / 0)", {"value": 1.0}, False),
        ("not (count > 0 / 0)", {"count": 1}, False),
        ("not (value in (1, 2))", {"value": None}, False),
        ("-value < 0", {"value": 3.0}, True),
        ("true", {}, True),
        ("value != 1 and false", {"value": 2.0}, False),
        ("value = 2", {"value": 2.0}, True),
        ("value >= 3 and 3 >= value and value != 4", {"value": 3.0}, True),
        ("(value > 5 and value < 3) or value == 1", {"value": 1.0}, True),
        ("value > 1 and not (value > 1 and value < 1)", {"value": 2.0}, True),
        ("value <> 2 OR type = 'a = b'", {"value": 2.0, "type": "a = b"}, True),
        ("NOT value <= 2 AND type='AND'", {"value": 3.0, "type": "AND"}, True),
        ("value in (-3, 2)", {"value": -3.0}, True),
        ("(1 = 1) in (true, false)", {}, True),
        ("(not true) in (true, false)", {}, True),
        ("(value > 2) = true and value not in (1, -2.5)", {"value": 3.0}, True),
    ],
)
def test_a_condition_holds_as_written_and_never_of_the_unknown(text, event, expected):
    predicate = parse(text, "define.A")
    columns = {name: pa.array([event.get(name)], TYPES[name]) for name in predicate.columns}
    assert predicate.mask(columns, 1).to_pylist() == [expected]


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("n > 9223372036854775806", [MOST, MOST - 1, None], [True, False, False]),
        ("n = 9007199254740993", [2**53 + 1, 2**53], [True, False]),
        ("n >= -9223372036854775808", [-(2**63), None], [True, False]),
        ("n > 18446744073709551614", [2**64 - 1, 2**64 - 2], [True, False]),
        ("n in (9223372036854775807, 1)", [MOST, MOST - 1, 1, None], [True, False, True, False]),
        ("n not in (9223372036854775807, 1)", [MOST, MOST - 1, None], [False, True, False]),
        # A sum does not wrap around, and is exact; half of one is a double.
        ("n + 1 > 0", [MOST, -1], [True, False]),
        ("n - 9223372036854775806 = 1", [MOST, MOST - 1], [True, False]),
        ("n * 3 - n = n + n", [MOST, 2**53 + 1], [True, True]),
        ("n / 2 > 4611686018427387903", [MOST], [True]),
        ("-n < -9223372036854775806", [MOST, MOST - 1], [True, False]),
        ("n / 0 > 1", [1, 0, -1], [True, False, False]),
        # Beside doubles each stays what it is.
        ("n > 9007199254740992", [2**53 + 1, 9007199254740992.0, 1e300, 0.5], [True, False, True, False]),
        ("n > 9007199254740992.0", [2**53 + 1, 2**53], [True, False]),
        ("n > 2.5", [2, 3], [False, True]),
        ("n > 2.5", [2, MOST], [False, True]),
    ],
)
def test_whole_numbers_are_compared_and_added_exactly(text, values, expected):
    mask = parse(text, "define.A").mask({"n": exact_numbers.build_column(values)}, len(values))
    assert mask.to_pylist() == expected


def test_a_decimal_that_a_rule_has_made_is_a_number():
    columns = {"half": pa.array([Decimal("1.5"), None]), "share": pa.array([2.0, 2.0])}
    for text in ("half / 3 < 1", "share / half > 1"):
        assert parse(text, "define.A").mask(columns, 2).to_pylist() == [True, False], text


def test_a_number_of_a_row_says_the_same_whatever_stands_in_the_other_rows():
    predicate = parse("n - m <= 1 and n > 9007199254740992", "define.A")
    rows = [(2**53 + 1, 2**53), (1.5, 0.25), (MOST, MOST - 1), (MOST, -MOST), (None, 1), (2**70, 2**70 - 1)]
    columns = [exact_numbers.build_column([row[side] for row in rows]) for side in (0, 1)]
    together = predicate.mask({"n": columns[0], "m": columns[1]}, len(rows)).to_pylist()
    apart = [
        predicate.mask({"n": exact_numbers.build_column([n]), "m": exact_numbers.build_column([m])}, 1)[0].as_py()
        for n, m in rows
    ]
    assert together == apart == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    "text",
    [
        "n > 'a'",
        "n == true",
        "n in (true, false)",
        "n in ('a', 'b')",
        "type in (1, 2)",
        "share > 1 and type not in (true, false)",
        "type > 9223372036854775807",
        "n - type > 1",
        "n / type > 1",
        "type / 2 > 1",
        "share / 'a' > 1",
        "(share > 1) / 2 > 0",
    ],
)
def test_a_whole_number_goes_with_numbers_only(text):
    predicate = parse(text, "define.A")
    columns = {"n": pa.array([MOST]), "type": pa.array(["3"]), "share": pa.array([1.5])}
    with pytest.raises(pa.ArrowException):
        predicate.mask({name: columns[name] for name in predicate.columns}, 1)


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
    columns = {"value": pa.array([2.0]), format_previous_name("value"): pa.array([before], pa.float64())}
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
        *(f"value in ({item}, 2)" for item in ("1e999", "None", "...", "2j", "b'x'", "true", "-true")),
        "value in ('a', -'b')",
        "'a' in true",
        "'a' in false and value > 1",
        "name == '\\ud800'",
        "'\\ud800' in name",
        "name in ('\\ud800', 'v')",
        "'a' / 'b' == 1",
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
