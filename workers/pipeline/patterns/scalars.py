"""Expressions of conditions and measures as functions of single events.

They give the same results as `predicate` for columns. None is unknown, and so is a calculation or comparison with None.
Whole numbers are exact. A result that is not a number is unknown.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from workers.pipeline.patterns import exact_numbers
from workers.pipeline.patterns.exact_numbers import ARITHMETIC, COMPARISONS

Row = tuple[Any, ...]  # values of an event
Bound = tuple[Any, ...]  # values of the events that an attempt has bound (`bindings`)
Scalar = Callable[[Row, Bound], Any]
_WORDS = {"true": True, "false": False}


def compile_scalar(tree: ast.expr, names: Mapping[str, Scalar]) -> Scalar:
    """Return an expression as a function. names: column, `prev(column)`, or reference → the function of its value."""
    match tree:
        case ast.Constant(value=value):
            return lambda row, bound: value
        case ast.Name(id=name):
            return names[name] if name not in _WORDS else compile_scalar(ast.Constant(value=_WORDS[name]), names)
        case ast.Call(args=[ast.Name(id=name)]):
            return names[f"prev({name})"]
        case ast.BoolOp(op=op, values=values):
            parts = [compile_scalar(value, names) for value in values]
            return _join(parts, decides=isinstance(op, ast.Or))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _negate(compile_scalar(operand, names))
        case ast.UnaryOp(operand=operand):
            return _subtract_from_zero(compile_scalar(operand, names))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _apply(divide, compile_scalar(left, names), compile_scalar(right, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _apply(
                _calculate_with(ARITHMETIC[type(op)]), compile_scalar(left, names), compile_scalar(right, names)
            )
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
            return _compile_membership(left, isinstance(op, ast.In), right, names)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _apply(COMPARISONS[type(op)], compile_scalar(left, names), compile_scalar(right, names))
    raise AssertionError(f"unchecked expression {ast.dump(tree)}")


def _compile_membership(left: ast.expr, is_in: bool, right: ast.expr, names: Mapping[str, Scalar]) -> Scalar:
    value = compile_scalar(left, names)
    if isinstance(right, ast.Name):
        return _apply(lambda part, whole: (part in whole) == is_in, value, compile_scalar(right, names))
    members = frozenset(compile_scalar(item, names)((), ()) for item in right.elts)  # type: ignore[attr-defined]
    return _apply(lambda item, _: (item in members) == is_in, value, lambda row, bound: True)


def _apply(function: Callable[[Any, Any], Any], left: Scalar, right: Scalar) -> Scalar:
    def apply_known(row: Row, bound: Bound) -> Any:
        first = left(row, bound)
        if first is None:
            return None
        second = right(row, bound)
        return None if second is None else function(first, second)

    return apply_known


def _join(parts: list[Scalar], decides: bool) -> Scalar:
    """Return `or` if True decides, and `and` if False does (Kleene's logic)."""

    def join(row: Row, bound: Bound) -> bool | None:
        result: bool | None = not decides
        for part in parts:
            value: bool | None = part(row, bound)
            if value is decides:
                return value
            if value is None:
                result = None
        return result

    return join


def _negate(operand: Scalar) -> Scalar:
    def negate(row: Row, bound: Bound) -> bool | None:
        value = operand(row, bound)
        return None if value is None else not value

    return negate


def _subtract_from_zero(operand: Scalar) -> Scalar:
    def negate(row: Row, bound: Bound) -> Any:
        value = operand(row, bound)
        return None if value is None else -value

    return negate


def _calculate_with(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    calculate = _widen(function)

    def calculate_known(left: Any, right: Any) -> Any:
        return drop_undefined(calculate(left, right))

    return calculate_known


def _widen(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a calculation that converts whole numbers beyond the largest double to infinity where it needs doubles."""

    def calculate(left: Any, right: Any) -> Any:
        try:
            return function(left, right)
        except OverflowError:
            return function(convert_to_double(left), convert_to_double(right))

    return calculate


add = _widen(operator.add)


def drop_undefined(value: Any) -> Any:
    """Return the value, or None if it is not a number."""
    return value if value == value else None


def divide(left: Any, right: Any) -> float | None:
    """Return the quotient as a double: infinite by 0, and None for 0 by 0."""
    dividend, divisor = convert_to_double(left), convert_to_double(right)
    if divisor == 0:
        quotient = math.nan if dividend == 0 else math.copysign(math.inf, dividend) * math.copysign(1, divisor)
    else:
        quotient = dividend / divisor
    return drop_undefined(quotient)  # type: ignore[no-any-return]


def convert_to_double(number: int | float) -> float:
    """Return the nearest double; infinite beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def read_place(place: int) -> Scalar:
    """Return a function that returns the value at an index of an event's row."""
    return lambda row, bound: row[place]


def list_values(column: pa.Array) -> list[Any]:
    """Return a column as values that conditions calculate with."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == exact_numbers.WRITTEN:
        return list(exact_numbers.list_numbers(column))
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(column.type):
        return [None if value is None else _convert_decimal(value) for value in values]
    return values


def _convert_decimal(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
