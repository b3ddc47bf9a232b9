"""What runs in Arrow gives what Spark gives, in type, nulls, and every bit."""

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.pipeline.random_rules import (
    ADDRESSES,
    KINDS,
    REALS,
    TEXTS,
    WRITTEN,
    RandomExpressions,
    compare_with_spark,
    make_rows,
)
from workers.pipeline.rules.arrow_casts import parse_real, parse_whole
from workers.pipeline.rules.arrow_expressions import compile_expression
from workers.pipeline.rules.arrow_values import EventColumns, NotInArrowError
from workers.pipeline.rules.calendar_numbers import find_week, find_weekday, join_days, split_days
from workers.pipeline.rules.rule_functions import FUNCTIONS
from workers.pipeline.rules.rule_language import parse_expression

SHORT, LONG = 60, 600
ON_SPARK = (
    *("lower", "upper", "lcase", "ucase", "initcap", "exp", "ln", "log10", "log2", "log1p", "pow", "power", "cbrt"),
    *("sin", "cos", "tan", "atan2", "round", "bround", "hash", "get_json_object"),
)


def evaluate(text: str, **columns: list) -> list:
    arrays = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    compiled = compile_expression(parse_expression(text, "keep").tree, dict.fromkeys(columns, "string"))
    return compiled.compute(EventColumns(arrays, len(next(iter(arrays.values()))))).to_pylist()


def make_texts(seed: int, count: int) -> list[str]:
    source = RandomExpressions(Random(seed))
    return [source.make() for _ in range(count)]


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("seed", "count"), [(1, SHORT), pytest.param(2, LONG, marks=pytest.mark.slow)])
def test_random_expressions_give_what_they_give_in_spark(spark, seed, count):
    comparison = compare_with_spark(spark, make_texts(seed, count), make_rows(Random(seed)))
    assert comparison.differences == []
    assert comparison.arrow_share > 0.7


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_every_comparison_and_cast_of_edge_values_gives_what_it_gives_in_spark(spark):
    columns = ("type", "written", "value", "user", "up", "time", "to_date(time)", "cast(user as int)", "1.5", "null")
    pairs = [(left, right) for left in columns for right in columns]
    texts = [
        f"{left} {operator} {right}" for left, right in pairs for operator in ("=", "<", ">=", "<=>", "+", "/", "%")
    ]
    texts += [
        f"{function}({left}, {right})" for left, right in pairs for function in ("coalesce", "greatest", "nullif")
    ]
    kinds = ("string", "boolean", "int", "bigint", "double", "date", "timestamp")
    texts += [f"{cast}({column} as {kind})" for column in columns for kind in kinds for cast in ("cast", "try_cast")]
    places = ("0", "-1", "1", "5", "cast(null as int)")
    texts += [f"locate({part}, type, {place})" for part in ("''", "'p'", "key") for place in places]
    midnight = "cast(to_date(timestamp_seconds(load)) as timestamp)"
    texts += [f"{midnight} {operator} {other}" for operator in ("<", "<=", "<>") for other in ("time", "'2026-01-01'")]
    texts += [f"time between timestamp_seconds(load) and {midnight}", "time > cast(cast(user as timestamp) as date)"]
    comparison = compare_with_spark(spark, texts, make_rows(Random(3)))
    assert comparison.differences == []


def test_expressions_compile_or_say_what_only_spark_evaluates():
    compiled, refused = 0, 0
    for text in make_texts(4, 300):
        try:
            compile_expression(parse_expression(text, "keep").tree, KINDS)
            compiled += 1
        except NotInArrowError as reason:
            assert str(reason)
            refused += 1
    assert compiled > refused


@pytest.mark.parametrize("name", sorted(ON_SPARK))
def test_functions_that_depend_on_java_stay_on_spark(name):
    least = FUNCTIONS[name].least
    given_arguments = {"get_json_object": "type, '$.a'"}.get(name, ", ".join(["value"] * least))
    with pytest.raises(NotInArrowError, match=rf"^{name}\(\)$"):
        compile_expression(parse_expression(f"{name}({given_arguments})", "keep").tree, KINDS)


def test_texts_that_repeat_give_what_texts_that_do_not_repeat_give():
    once = ["cpu", "load", None, "web-1", ""]
    for text in ("type like 'c%' or type is null", "coalesce(type, 'x') || '-'", "length(type)", "split(type, '-')[1]"):
        assert evaluate(text, type=once * 100) == evaluate(text, type=once) * 100


def test_conditions_have_three_values():
    assert evaluate("type = 'a' and key = 'b'", type=["a", "x", None], key=[None, None, "b"]) == [None, False, None]
    assert evaluate("type in ('a', null)", type=["a", "b", None]) == [True, None, None]


def test_rows_without_a_text_keep_their_place_when_texts_are_joined():
    assert evaluate("concat_ws('-', type, key)", type=["a", None], key=["b", None]) == ["a-b", ""]


@given(st.integers(-(10**7), 10**7))
def test_days_are_split_and_joined_again(days):
    array = pa.array([days]).to_numpy()
    year, month, day = split_days(array)
    assert join_days(year, month, day).tolist() == [days]
    assert 1 <= month[0] <= 12
    assert 1 <= day[0] <= 31


@given(st.dates())
def test_the_calendar_is_pythons(date):
    days = pa.array([date]).view(pa.int32()).to_numpy()
    assert [part.tolist() for part in split_days(days)] == [[date.year], [date.month], [date.day]]
    assert (find_weekday(days)[0], find_week(days)[0]) == (date.weekday(), date.isocalendar().week)


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_are_read_if_64_bits_hold_them(number):
    fits = -(2**63) <= number < 2**63
    assert parse_whole(f" {number}.9 ", "bigint") == (number if fits else None)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_real_numbers_are_read_to_the_last_bit(number):
    assert parse_real(f"\t{number!r}d") == number


def test_the_edge_values_have_no_repetitions():
    for values in (TEXTS, WRITTEN, ADDRESSES):
        assert len(set(values)) == len(values)
    assert len({repr(value) for value in REALS}) == len(REALS)
