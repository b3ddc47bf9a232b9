"""Random expressions of the rule language, and their comparison with Spark on rows of edge values.

Expressions are typed, so that Spark accepts most of them. Each expression is evaluated in Arrow twice, by distinct text
and row by row. Both results must equal Spark's result in type, nulls, and every bit, except that all NaN values are
equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from workers.pipeline.events.layout import Attribute, Layout
from workers.pipeline.rules.arrow_expressions import compile_expression
from workers.pipeline.rules.arrow_values import Compiled, EventColumns, NotInArrowError
from workers.pipeline.rules.rule_language import parse_expression
from workers.pipeline.rules.rule_sql import convert_expression

ROWS = 400
FEW_ROWS = 48  # too few rows for repeated texts, so they are evaluated row by row
AT_ONCE = 100  # expressions of one query
LAYOUT = Layout(
    ("id", "type", "key", "value", "time"),
    (
        Attribute("address", "text"),
        Attribute("written", "text"),
        Attribute("load", "number"),
        Attribute("user", "integer"),
        Attribute("size", "integer"),
        Attribute("up", "boolean"),
    ),
    ("least",),
)
KINDS = {
    **dict.fromkeys(("id", "type", "key", "address", "written"), "string"),
    **dict.fromkeys(("value", "load", "criterion least"), "double"),
    **dict.fromkeys(("user", "size"), "bigint"),
    "up": "boolean",
    "time": "timestamp",
}
TEXTS = (
    "cpu",
    "load",
    "",
    " ",
    "Cpu,x",
    "a.b.c",
    "web-100%",
    "é😀x",
    "it's",
    "\\",
    "a\nb",
    "  cpu ",
    "x" * 40,
    ",",
    "ß",
)
ADDRESSES = (
    *("92.126.10.7", "92.126.11.5", "10.1.2.3", "255.255.255.255", "0.0.0.0", "256.1.1.1", "1.2.3", "1.2.3.4.5"),
    *("92.126.10.x", "92.126.10.", "92.126.10. 7", "92.126.10.+7", "92.126.10.-1", "92.126.10.999", "92.126.10.7.1"),
    *("", "92.126.10", "1..2.3", "92.126.10.99999999999999999999"),
)
WRITTEN = (
    *(
        "0",
        "1",
        "-1",
        "12",
        "007",
        "+5",
        " 42 ",
        "\t7\n",
        "1.5",
        "-0.0",
        ".5",
        "5.",
        ".",
        "+",
        "-",
        "+.",
        "1e3",
        "1E-5",
    ),
    *("1e999", "-1e999", "4.9e-324", "0x1p3", "1f", "2D", "NaN", "-NaN", "Infinity", "inf", "nan", "1_0"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "00000000000000000000012", "1.7976931348623157e308"),
    *(
        "true",
        " T ",
        "yes",
        "N",
        "0.1",
        "123456789.123456789",
        "2026-11-20",
        "2026-2-3",
        "2026",
        "2026-11",
        "2026-02-30",
    ),
    *("2024-02-29T", "+12026-01-01", "-0044-03-15", "9999-12-31 23", "2026-11-20 06:07:08", "2026-13-01", "0000-01-01"),
)
REALS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 85.5, 1e300, -1e300, 5e-324, float("nan"), float("inf")),
    *(float("-inf"), 2147483647.5, -2147483649.0, 9.3e18, -9.3e18, 2.0**53, 1e-7, 1e7, 0.1, 1_700_000_000.123456),
)
WHOLE = (0, 1, -1, 2, 7, -7, 100, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 86_400, 1_700_000_000)
TIMES_US = (
    *(
        0,
        -1,
        1,
        1_700_000_000_123_456,
        951_782_400_000_000,
        1_709_164_800_000_000,
        -86_400_000_000,
        -62_135_596_800_000_001,
    ),
    *(253_402_300_800_000_000, -2_208_988_800_000_000, 1_767_225_600_000_000, 1_798_761_599_999_999, 86_399_999_999),
)
LEAST = 1.5
DATE_FIELDS = ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "dayofyear", "weekday", "weekofyear")
TIME_FIELDS = ("hour", "minute", "second")


def make_rows(random: Random, rows: int = ROWS) -> pa.RecordBatch:
    """Return rows of edge values, with nulls."""

    def choose(values: Sequence[Any]) -> list[Any]:
        return [random.choice([*values, None]) for _ in range(rows)]

    columns = {
        "id": [f"{random.getrandbits(128):x}"[: random.randint(1, 40)] for _ in range(rows)],
        "type": choose(TEXTS),
        "key": choose((*TEXTS, *WRITTEN)),
        "value": choose(REALS),
        "time": pa.array(choose(TIMES_US), pa.int64()).view(pa.timestamp("us", tz="UTC")),
        "address": choose(ADDRESSES),
        "written": choose(WRITTEN),
        "load": choose(REALS),
        "user": choose(WHOLE),
        "size": choose(WHOLE),
        "up": choose((True, False)),
    }
    batch = pa.RecordBatch.from_pydict(columns, LAYOUT.schema)
    return LAYOUT.add_criteria(batch, {"least": LEAST})


@dataclass
class RandomExpressions:
    """Generates expressions. depth: maximum depth of nested operators."""

    random: Random
    depth: int = 3

    def make(self) -> str:
        kind = self.random.choice(
            (self.condition, self.condition, self.real, self.whole, self.text, self.day, self.time)
        )
        return kind(self.random.randint(1, self.depth))

    def _pick(self, *values: str) -> str:
        return self.random.choice(values)

    def _fill(self, *forms: str, depth: int) -> str:
        """Return one of the forms, each letter of `CRWNTLDM` replaced by an expression of its kind.

        C: condition, R: real, W: whole number, N: any number, T: text, L: literal text, D: date, M: time, I: a small
        literal whole number.
        """
        made: dict[str, Callable[[int], str]] = {
            "C": self.condition,
            "R": self.real,
            "W": self.whole,
            "N": self.number,
            "T": self.text,
            "D": self.day,
            "M": self.time,
            "L": lambda _: self._literal_text(),
            "I": lambda _: str(self.random.choice((0, 1, 2, 3, 5, -1, -2, -4, 40))),
        }
        form = self.random.choice(forms)
        return "".join(made[part](depth - 1) if part in made else part for part in form)

    def _literal_text(self) -> str:
        text = self.random.choice((*TEXTS[:11], "p", "c", "%", "12", "1.5"))
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def number(self, depth: int) -> str:
        return self._fill("R", "W", depth=depth + 1)

    def condition(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("up", "true", "false", "(value > 1)", "(type = 'cpu')", "(user = 7)")
        comparison = self._pick("=", "<>", "<", "<=", ">", ">=", "<=>", "!=")
        return self._fill(
            f"(N {comparison} N)", f"(N {comparison} N)", f"(T {comparison} T)", f"(T {comparison} N)",
            f"(M {comparison} M)", f"(D {comparison} D)", f"(M {comparison} D)", f"(T {comparison} D)",
            f"(C {self._pick('=', '<>', '<=>')} C)", "(C and C)", "(C or C)", "(C and C and C or C)", "(not C)",
            "(N is null)", "(T is not null)", "(C is true)", "(C is not false)", "(N between N and N)",
            "(T in (L, L))", "(T in (L, null))", "(W in (1, 7, -1))", "(N in (R, 1.5))", "(T not in (L, L))",
            "(M between M and M)",
            f"(T like '{self._pick('c%', '%u', '%p%', '_pu', 'a_b', 'w%0', '%', '')}')", "(T not like 'c%')",
            "isnan(R)", "isnull(N)", "isnotnull(T)", "startswith(T, T)", "endswith(T, L)", "contains(T, L)",
            "if(C, C, C)", "coalesce(C, C)", "(case when C then C when C then C else C end)", "nullif(C, C)",
            "cast(N as boolean)", "cast(T as boolean)", "try_cast(T as boolean)", "(T = null)", "(null <=> N)",
            f"in_subnet(address, '{self._pick('92.126.10.0/24', '0.0.0.0/0', '92.126.10.0/23', '10.0.0.0/8')}')",
            f"in_subnet(written, '{self._pick('0.0.0.0/0', '0.0.0.0/1', '92.126.10.7/32')}')",
            f"(C {comparison} C)", f"(up = {self._pick('1', '0', 'user')})", "(value is true)",
            "in_subnet(key, '0.0.0.0/2')",
            depth=depth,
        )  # fmt: skip

    def real(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("value", "load", ":least", "1.5", "-2.5", "0.05", "1e3", "0e0", "1e300", "value", "load")
        return self._fill(
            "(R + R)", "(R - R)", "(R * R)", "(R / R)", "(W / W)", "(R % R)", "(R * W)", "(- R)", "abs(R)", "sqrt(R)",
            "sign(R)", "radians(R)", "degrees(R)", "nanvl(R, R)", "coalesce(R, R)", "nullif(R, N)", "greatest(R, R)",
            "least(R, N)", "cast(T as double)", "cast(W as double)", "cast(C as double)", "cast(M as double)",
            "(case when C then R else R end)", "if(C, R, N)", "nvl2(T, R, R)", "try_cast(T as double)", "(T + N)",
            "(T / 2)", "mod(R, R)", "pmod(R, R)", "round(R, 1)", "ln(R)", "pow(R, 2)", "cbrt(R)", "bround(R)",
            "(case when C then 0.5 when C then 2 else value end)", "coalesce(value, 0.5)", "cast(1.5 as double)",
            depth=depth,
        )  # fmt: skip

    def whole(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("user", "size", "0", "1", "-1", "7", "2147483647", "3000000000", "3L", "user", "size")
        field = self._pick(*DATE_FIELDS, *TIME_FIELDS)
        return self._fill(
            "(W + W)", "(W - W)", "(W * W)", "(W div W)", "(W % W)", "pmod(W, W)", "mod(W, 7)", "(- W)", "abs(W)",
            "ceil(R)", "floor(R)", "ceiling(W)", "length(T)", "char_length(T)", "ascii(T)", "crc32(T)", "instr(T, L)",
            "locate(L, T)", "locate(L, T, I)", "locate(T, T)", "size(split(T, ','))",
            "size(coalesce(split(T, ','), split(T, 'p')))", "size(if(C, split(T, ','), split(T, ' ')))",
            "cast(T as int)",
            "cast(T as bigint)", "cast(R as int)", "cast(R as bigint)", "cast(W as int)", "cast(W as bigint)",
            "cast(C as int)", "cast(M as bigint)", "cast(M as int)", "try_cast(T as int)", "try_cast(T as bigint)",
            "try_cast(R as int)", "try_cast(R as bigint)", "try_cast(W as int)", "datediff(D, D)", "unix_seconds(M)",
            "unix_millis(M)", "unix_micros(M)", f"{field}(M)", f"{field}(M)",
            f"{field}(D)" if field in DATE_FIELDS else f"{field}(M)", "greatest(W, W)",
            "least(W, W, 3)", "coalesce(W, W)", "ifnull(W, 0)", "nullif(W, N)", "(case when C then W else W end)",
            "(case W when 7 then 1 when 0 then 2 end)", "if(C, W, W)", "xxhash64(T)", "xxhash64(id, T)", "hash(T)",
            depth=depth,
        )  # fmt: skip

    def text(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("type", "key", "written", "address", self._literal_text(), "type", "key")
        return self._fill(
            "(T || T)", "(T || '-' || T)", "concat(T, T)", "concat(T, W)", "concat_ws('-', T, T)", "concat_ws(T, T, L)",
            "trim(T)", "ltrim(T)", "rtrim(T)", "reverse(T)", "substring(T, I)", "substring(T, I, I)", "substr(T, I, W)",
            "substring(T, W, I)", "left(T, I)", "right(T, I)", "left(T, W)", "right(T, W)", "lpad(T, 5, 'ab')",
            "rpad(T, 4, L)", "lpad(T, 0, '0')", "replace(T, 'c', 'k')", "replace(T, 'pu', '')", "replace(T, '', '')",
            "translate(T, 'cpé', 'k')", "split(T, ',')[0]", "split(T, '\\\\.')[1]", "split(T, 'p')[7]",
            "split(T, ',', 2)[1]", "split(T, ',', 1)[0]", "element_at(split(T, '\\\\.'), 1)",
            "element_at(split(T, '\\\\.'), -2)", "cast(W as string)", "cast(C as string)", "cast(D as string)",
            "cast(M as string)", "coalesce(T, T)", "nullif(T, L)", "nvl(T, 'x')", "nvl2(T, T, L)", "greatest(T, T)",
            "least(T, L)", "if(C, T, T)", "(case when C then T else T end)", "(case T when 'cpu' then T end)",
            "(case when C then T else W end)", "lower(T)", "upper(T)", "initcap(T)", "cast(R as string)",
            "get_json_object(T, '$.a')", "try_cast(W as string)",
            depth=depth,
        )  # fmt: skip

    def day(self, depth: int) -> str:
        if depth <= 0:
            return self._pick("to_date(time)", "date '2026-11-20'", "date '2024-02-29'", "cast(time as date)")
        return self._fill(
            "to_date(M)", "cast(M as date)", "cast(written as date)", "to_date(T)", "coalesce(D, D)", "if(C, D, D)",
            "greatest(D, D)", "nullif(D, D)", "try_cast(written as date)", "(case when C then D end)",
            depth=depth,
        )  # fmt: skip

    def time(self, depth: int) -> str:
        unit = self._pick("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        if depth <= 0:
            return self._pick("time", "time", "timestamp '2026-01-01 00:00:00'", "timestamp '1969-12-31 23:59:59.5'")
        return self._fill(
            "M", "cast(to_date(M) as timestamp)", "timestamp_seconds(load)", "timestamp_micros(W)",
            "cast(N as timestamp)", "cast(C as timestamp)", "coalesce(M, M)", "if(C, M, D)", "least(M, M)",
            f"date_trunc('{unit}', M)",
            "timestamp_seconds(86400)", "timestamp_millis(cast(W as int))",
            depth=depth,
        )  # fmt: skip


@dataclass
class Comparison:
    """The outcome of a comparison.

    in_arrow, other: numbers of expressions that run in Arrow, and only in Spark. refused: number of expressions that
    Spark rejects or ends with an error. differences: (expression, description of the difference).
    """

    in_arrow: int = 0
    other: int = 0
    refused: int = 0
    differences: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: "Comparison") -> None:
        self.in_arrow += other.in_arrow
        self.other += other.other
        self.refused += other.refused
        self.differences += other.differences

    @property
    def arrow_share(self) -> float:
        return self.in_arrow / max(1, self.in_arrow + self.other)


def compare_with_spark(spark: SparkSession, texts: Sequence[str], rows: pa.RecordBatch) -> Comparison:
    """Evaluate the expressions in Arrow and in Spark, and compare the results."""
    comparison = Comparison()
    events = spark.createDataFrame(pa.Table.from_batches([rows])).cache()
    compiled: list[tuple[str, Compiled]] = []
    for text in texts:
        try:
            compiled.append((text, compile_expression(parse_expression(text, "rule").tree, KINDS)))
        except NotInArrowError:
            comparison.other += 1
    for start in range(0, len(compiled), AT_ONCE):
        _compare_group(events, compiled[start : start + AT_ONCE], rows, comparison)
    events.unpersist()
    return comparison


def _compare_group(
    events: DataFrame, compiled: list[tuple[str, Compiled]], rows: pa.RecordBatch, comparison: Comparison
) -> None:
    columns = [
        convert_expression(parse_expression(text, "rule")).alias(f"c{place}")
        for place, (text, _) in enumerate(compiled)
    ]
    try:
        asked = events.select(*columns)
        kinds = [spark_field.dataType.simpleString() for spark_field in asked.schema]
        results = asked.toArrow().combine_chunks()
    except (PySparkException, Py4JError):
        if len(compiled) == 1:
            comparison.refused += 1
            return
        half = len(compiled) // 2
        _compare_group(events, compiled[:half], rows, comparison)
        _compare_group(events, compiled[half:], rows, comparison)
        return
    all_events = EventColumns({name: rows.column(name) for name in rows.schema.names}, rows.num_rows)
    few = rows.slice(0, FEW_ROWS)
    few_events = EventColumns({name: few.column(name) for name in few.schema.names}, few.num_rows)
    for (text, expression), kind, column in zip(compiled, kinds, results.columns, strict=True):
        comparison.in_arrow += 1
        expected = column.chunk(0) if column.num_chunks else column.combine_chunks()
        if expression.kind != kind:
            comparison.differences.append((text, f"type {expression.kind}, in Spark {kind}"))
            continue
        for evaluated in (all_events, few_events):
            difference = _evaluate_and_compare(expression, evaluated, expected.slice(0, evaluated.rows), rows)
            if difference:
                comparison.differences.append((text, difference))
                break


def _evaluate_and_compare(
    expression: Compiled, frame: EventColumns, expected: pa.Array, rows: pa.RecordBatch
) -> str | None:
    try:
        own = expression.compute(frame)
        own.validate(full=True)
    except Exception as error:  # an expression that ends with any error is a difference
        return f"{type(error).__name__}: {error}"
    return find_difference(own, expected, rows)


def find_difference(own: pa.Array, expected: pa.Array, rows: pa.RecordBatch) -> str | None:
    """Describe the first difference between two results; None if they are equal."""
    if pa.types.is_floating(own.type) and pa.types.is_floating(expected.type):
        left, right = (_get_bits(values) for values in (own, expected))
        absent = np.asarray(own.is_null()) != np.asarray(expected.is_null())
        different = absent | (np.asarray(own.is_valid()) & (left != right))
        places = np.flatnonzero(different).tolist()
    else:
        if own.type != expected.type:
            expected = expected.cast(own.type)
        if own.equals(expected):
            return None
        places = [place for place in range(len(own)) if own[place] != expected[place]]
    if not places:
        return None
    place = places[0]
    row = {name: _show(rows.column(name)[place]) for name in rows.schema.names}
    return f"{_show(own[place])}, in Spark {_show(expected[place])}, at {row}"


def _show(value: pa.Scalar) -> object:
    """Return a value for a message. Python's own times end with the year 9999."""
    return value.value if isinstance(value, pa.TimestampScalar | pa.Date32Scalar) else value.as_py()


def _get_bits(values: pa.Array) -> np.ndarray:
    numbers = np.array(values.fill_null(0.0).to_numpy(zero_copy_only=False))
    numbers[np.isnan(numbers)] = np.nan
    bits: np.ndarray = numbers.view(np.int64)
    return bits
