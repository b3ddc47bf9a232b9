"""Numbers as written: whole numbers are exact at any size, all others are doubles.

Arrow compares a whole number with a double only up to 53 bits, and its addition wraps around at 64. Rows with whole
numbers are therefore computed one by one:

    whole with whole     compared, added, subtracted and multiplied exactly
    whole with double    compared exactly; the result of a calculation is a double
    divided              a double; by 0 infinite, and 0 by 0 unknown

Unknown is None, and so is any result calculated from it or compared with it. A constant that is not a number (0 / 0, 1
/ 0 - 1 / 0) is unknown for all rows.
"""

import ast
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import cycle
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

Number = int | float | None
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
EXACT_IN_DOUBLE = 2**53  # up to here every whole number is a double
UNKNOWN = pa.nulls(1, pa.bool_())[0]  # pa.scalar would import pandas (`queues.events.arrow_alone`)
# A column that mixes doubles and whole numbers, or has whole numbers of more than 64 bits.
WRITTEN = pa.struct([("whole", pa.decimal256(76, 0)), ("real", pa.float64())])
Operation = Callable[[Any, Any], Any]
COMPARISONS: dict[type, Operation] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: dict[type, Operation] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


class CalculationResult(list[Number]):
    """The result of a calculation, one number per row."""


def build_column(values: Sequence[Number]) -> pa.Array:
    """Return JSON numbers as a column that keeps each of them as written."""
    given = [value for value in values if value is not None]
    if all(isinstance(value, float) for value in given):
        return pa.array(values, pa.float64())
    if all(isinstance(value, int) and MIN_INT64 <= value <= MAX_INT64 for value in given):
        return pa.array(values, pa.int64())
    parts = [
        pa.array([value if isinstance(value, kind) else None for value in values], WRITTEN.field(name).type)
        for name, kind in (("whole", int), ("real", float))
    ]
    unknown = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(WRITTEN), mask=unknown)


def is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)


def is_undefined(value: object) -> bool:
    """Return whether a calculated constant is not a number."""
    return isinstance(value, float) and value != value


def is_whole(value: object) -> bool:
    """Return whether the value may be a whole number that no double equals.

    Such values are a column of whole numbers, or a large constant.
    """
    if isinstance(value, pa.Array):
        return bool(pa.types.is_integer(value.type) or value.type == WRITTEN)
    return isinstance(value, CalculationResult) or (type(value) is int and abs(value) > EXACT_IN_DOUBLE)


def are_int64(*values: object) -> bool:
    """Return whether Arrow compares the values exactly: columns of 64 bits with constants that fit into 64 bits."""
    return all(
        value.type == pa.int64()
        if isinstance(value, pa.Array)
        else type(value) is int and MIN_INT64 <= value <= MAX_INT64
        for value in values
    )


def compare(op: ast.cmpop, left: object, right: object) -> pa.BooleanArray | pa.BooleanScalar | bool:
    """Compare row by row; two constants give one result. Raises `pyarrow.ArrowTypeError` if one is not a number."""
    holds = COMPARISONS[type(op)]
    if is_undefined(left) or is_undefined(right):
        return UNKNOWN
    if is_number(left) and is_number(right):
        return bool(holds(left, right))
    return pa.array([None if None in pair else holds(*pair) for pair in _iterate_pairs(left, right)], pa.bool_())


def calculate(op: ast.operator, left: object, right: object) -> CalculationResult | int | float:
    """Calculate row by row; two constants give one number. Raises `pyarrow.ArrowTypeError` if one is not a number."""
    of: Operation = _quotient if isinstance(op, ast.Div) else _wrap_operation(ARITHMETIC[type(op)])
    if is_number(left) and is_number(right):
        number: int | float = of(left, right)
        return number
    return CalculationResult(
        None if None in pair else _drop_undefined(of(*pair)) for pair in _iterate_pairs(left, right)
    )


def _drop_undefined(number: int | float) -> Number:
    """Return None if the value is not a number."""
    return number if number == number else None


def negate(value: pa.Array | CalculationResult | int | float) -> CalculationResult | int | float:
    number: int | float | CalculationResult = (
        -value if is_number(value) else CalculationResult(None if row is None else -row for row in list_numbers(value))
    )
    return number


def is_member(value: object, members: Collection[int | float]) -> pa.BooleanArray | bool:
    """Return whether each row is one of the members. Raises `pyarrow.ArrowTypeError` if it is not a number."""
    numbers = frozenset(members)
    if is_number(value):
        return value in numbers
    return pa.array([None if row is None else row in numbers for row in list_numbers(value)], pa.bool_())


def _iterate_pairs(left: object, right: object) -> Iterator[tuple[Number, Number]]:
    # A constant is paired with every row of the other side.
    sides = [cycle((side,)) if is_number(side) else list_numbers(side) for side in (left, right)]
    return zip(*sides, strict=False)


def list_numbers(value: pa.Array | CalculationResult) -> Sequence[Number]:
    if isinstance(value, CalculationResult):
        return value
    kind = value.type if isinstance(value, pa.Array) else pa.string()
    if kind == WRITTEN:
        parts = zip(value.field("whole").to_pylist(), value.field("real").to_pylist(), strict=True)
        return [real if whole is None else int(whole) for whole, real in parts]
    if not any(of(kind) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)):
        raise pa.ArrowTypeError("a number can only be used with numbers")
    numbers: list[Number] = value.to_pylist()
    return numbers


def _wrap_operation(of: Operation) -> Operation:
    def apply_operation(left: int | float, right: int | float) -> int | float:
        if isinstance(left, float) or isinstance(right, float):
            left, right = _convert_to_double(left), _convert_to_double(right)
        number: int | float = of(left, right)
        return number

    return apply_operation


def _quotient(left: int | float, right: int | float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(_convert_to_double(left)) / np.float64(_convert_to_double(right)))


def _convert_to_double(number: int | float) -> float:
    """Return the nearest double; infinite beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return np.inf if number > 0 else -np.inf
