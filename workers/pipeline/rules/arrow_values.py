"""Values of rules as Arrow arrays: their kinds, the rows that an expression reads, and distinct texts.

A kind is a type by its name in Spark: string, boolean, int, bigint, double, date, timestamp, decimal(p,s),
array<string>, and void (null without a type).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.events.distinct_texts import DistinctTexts, find_distinct_texts

TIMESTAMP = pa.timestamp("us", tz="UTC")
TEXTS = "array<string>"
ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "void": pa.null(),
    TEXTS: pa.list_(pa.string()),
}
MAX_PRECISION = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)\Z")

Value: TypeAlias = pa.Array | pa.Scalar


class NotInArrowError(Exception):
    """An expression that Arrow does not evaluate exactly as Spark does. Its text completes "because it uses …"."""


@dataclass
class EventColumns:
    """The rows that an expression reads.

    distinct: the known distinct texts of columns; None if a column has too many.
    """

    columns: Mapping[str, pa.Array]
    rows: int
    distinct: dict[str, DistinctTexts | None] = field(default_factory=dict)

    def find_distinct(self, name: str) -> DistinctTexts | None:
        """Return the distinct texts of a column; None if there are more than a quarter of the rows."""
        if name not in self.distinct:
            self.distinct[name] = find_distinct_texts(self.columns[name])
        return self.distinct[name]

    def filter(self, mask: pa.Array) -> "EventColumns":
        """Return the rows where `mask` is true."""
        places = pc.indices_nonzero(pc.fill_null(mask, False))
        if len(places) == self.rows:
            return self
        columns = {name: column.take(places) for name, column in self.columns.items()}
        distinct = {
            name: found and DistinctTexts(found.texts, found.places.take(places))
            for name, found in self.distinct.items()
        }
        return EventColumns(columns, len(places), distinct)

    def replace(self, columns: Mapping[str, pa.Array]) -> "EventColumns":
        """Return the same rows with these columns, which replace all columns."""
        distinct = {
            name: texts
            for name, texts in self.distinct.items()
            if name in columns and columns[name] is self.columns.get(name)
        }
        return EventColumns(columns, self.rows, distinct)


@dataclass(frozen=True)
class Compiled:
    """A compiled expression.

    columns: the columns that it reads. constant: its value if it reads no column. text: the text column if it reads
    only this column. Such an expression is evaluated once for each distinct text.
    """

    kind: str
    evaluate: Callable[[EventColumns], Value]
    columns: frozenset[str] = frozenset()
    constant: pa.Scalar | None = None
    text: str | None = None
    is_column: bool = False

    def compute(self, events: EventColumns) -> pa.Array:
        """Return the value of each row."""
        return as_array(evaluate_by_text(self).evaluate(events), events.rows)


def find_arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a kind."""
    if decimal := parse_decimal(kind):
        return pa.decimal128(*decimal)
    return ARROW_TYPES[kind]


def parse_decimal(kind: str) -> tuple[int, int] | None:
    """Return the precision and the scale of a decimal kind; None for another kind."""
    found = _DECIMAL.match(kind)
    return (int(found[1]), int(found[2])) if found else None


def make_constant(kind: str, value: Any) -> Compiled:
    """Return a constant. value: a Python value or an Arrow scalar."""
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, find_arrow_type(kind))
    return Compiled(kind, lambda _: scalar, constant=scalar)


def make_column(kind: str, name: str) -> Compiled:
    """Return an expression that is a column."""
    text = name if kind == "string" else None
    return Compiled(kind, lambda events: events.columns[name], frozenset({name}), text=text, is_column=True)


def build(kind: str, function: Callable[..., pa.Array], *operands: Compiled) -> Compiled:
    """Return a function of expressions.

    function: takes the values of the operands, at least one of which is an array; the others may be scalars. If all
    operands are constant, it is called once, immediately.
    """
    if all(operand.constant is not None for operand in operands):
        values = [as_array(operand.constant, 1) for operand in operands]
        return make_constant(kind, function(*values)[0])
    columns = frozenset().union(*(operand.columns for operand in operands))
    if len(columns) > 1:
        operands = tuple(evaluate_by_text(operand) for operand in operands)
        return Compiled(kind, _call(function, operands), columns)
    text = next((operand.text for operand in operands if operand.text), None)
    return Compiled(kind, _call(function, operands), columns, text=text)


def _call(function: Callable[..., pa.Array], operands: Sequence[Compiled]) -> Callable[[EventColumns], pa.Array]:
    def evaluate(events: EventColumns) -> pa.Array:
        return function(*[operand.evaluate(events) for operand in operands])

    return evaluate


def evaluate_by_text(expression: Compiled) -> Compiled:
    """Return an expression that is evaluated once for each distinct text if it reads only one text column."""
    name = expression.text
    if name is None or expression.is_column:
        return expression

    def evaluate(events: EventColumns) -> Value:
        distinct = events.find_distinct(name)
        if distinct is None:
            return expression.evaluate(events)
        values = expression.evaluate(EventColumns({name: distinct.texts}, len(distinct.texts), {name: None}))
        return values.take(distinct.places)

    return Compiled(expression.kind, evaluate, expression.columns)


def as_array(value: Value, rows: int) -> pa.Array:
    """Return a value as an array."""
    if isinstance(value, pa.Scalar):
        return pa.nulls(rows, value.type) if not value.is_valid else pa.repeat(value, rows)
    return value


def as_arrays(*values: Value) -> list[pa.Array]:
    """Return values, at least one of which is an array, as arrays of equal length."""
    rows = next(len(value) for value in values if not isinstance(value, pa.Scalar))
    return [as_array(value, rows) for value in values]


def compute_numbers(
    kind: str, function: Callable[..., np.ndarray | tuple[np.ndarray, np.ndarray]], *values: Value
) -> pa.Array:
    """Return a function of numbers, with null where an argument is null.

    Times are whole numbers of µs, and dates are whole numbers of days. function: takes NumPy arrays, and returns the
    results, or a tuple of the results and a mask of nulls.
    """
    arrays = as_arrays(*values)
    nulls: np.ndarray | None = None
    for array in arrays:
        if array.null_count:
            absent = pc.is_null(array).to_numpy(zero_copy_only=False)
            nulls = absent if nulls is None else nulls | absent
    with np.errstate(all="ignore"):
        result = function(*map(to_numpy, arrays))
    if isinstance(result, tuple):
        result, absent = result
        nulls = absent if nulls is None else nulls | absent
    return from_numpy(kind, result, nulls)


def to_numpy(array: pa.Array) -> np.ndarray:
    """Return numbers as a NumPy array, with 0 for null."""
    if array.type == TIMESTAMP:
        array = array.view(pa.int64())
    elif array.type == pa.date32():
        array = array.view(pa.int32())
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(0).cast(array.type))
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values


def from_numpy(kind: str, values: np.ndarray, nulls: np.ndarray | None = None) -> pa.Array:
    """Return numbers of a kind; null where `nulls`."""
    if kind == "timestamp":
        return pa.array(values.astype(np.int64, copy=False), pa.int64(), mask=nulls).view(TIMESTAMP)
    if kind == "date":
        return pa.array(values.astype(np.int32, copy=False), pa.int32(), mask=nulls).view(pa.date32())
    wanted = {"int": np.int32, "bigint": np.int64, "double": np.float64, "boolean": np.bool_}[kind]
    return pa.array(values.astype(wanted, copy=False), find_arrow_type(kind), mask=nulls)


def compute_texts(kind: str, function: Callable[..., Any], *values: Value) -> pa.Array:
    """Return a function of Python values, with null where an argument is null."""
    columns = [array.to_pylist() for array in as_arrays(*values)]
    results = [None if None in row else function(*row) for row in zip(*columns, strict=True)]
    return pa.array(results, find_arrow_type(kind))


def compute_by_form(
    kind: str,
    texts: pa.Array,
    form: str,
    usual: Callable[[pa.Array], pa.Array],
    other: Callable[[str], Any],
    stand_in: str,
) -> pa.Array:
    """Return a function of texts: `usual` for those that match the regular expression `form`, `other` for the rest.

    stand_in: a text that matches the form. It is passed to `usual` in place of texts that don't match.
    """
    regular = pc.fill_null(pc.match_substring_regex(texts, form), False)
    results = usual(pc.if_else(regular, texts, stand_in))
    rest = pc.and_(pc.invert(regular), pc.is_valid(texts))
    if pc.any(rest).as_py():
        results = pc.replace_with_mask(results, rest, compute_texts(kind, other, texts.filter(rest)))
    if texts.null_count:
        results = pc.if_else(pc.is_valid(texts), results, pa.scalar(None, results.type))
    return results
