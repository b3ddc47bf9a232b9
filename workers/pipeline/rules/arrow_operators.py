"""Operators of rules on Arrow arrays, as in Spark: conditions, comparisons, choices, and arithmetic.

Conditions have three values. NaN equals NaN and is greater than every other number. Whole numbers wrap around, and a
division by zero is null.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.rules.arrow_casts import WHOLE, cast, find_common_kind, find_decimal, widen_decimals
from workers.pipeline.rules.arrow_values import (
    TEXTS,
    Compiled,
    NotInArrowError,
    Value,
    as_arrays,
    build,
    compute_numbers,
    make_constant,
    parse_decimal,
)

REAL_KINDS = ("int", "bigint", "double")


def join_conditions(kind: str, operands: Sequence[Compiled]) -> Compiled:
    """Join conditions by "and" or "or"."""
    join = pc.and_kleene if kind == "and" else pc.or_kleene
    parts = [as_condition(operand) for operand in operands]

    def evaluate(*values: Value) -> pa.Array:
        result = values[0]
        for value in values[1:]:
            result = join(result, value)
        return result

    # Conditions on the same columns come first, so that those on one text column are evaluated by distinct text.
    groups: dict[frozenset[str], list[Compiled]] = {}
    for part in parts:
        groups.setdefault(part.columns, []).append(part)
    joined = [build("boolean", evaluate, *group) if len(group) > 1 else group[0] for group in groups.values()]
    return build("boolean", evaluate, *joined) if len(joined) > 1 else joined[0]


def as_condition(operand: Compiled) -> Compiled:
    if operand.kind not in ("boolean", "void"):
        raise NotInArrowError(f"a condition of type {operand.kind}")
    return cast(operand, "boolean")


def negate_condition(operand: Compiled) -> Compiled:
    return build("boolean", pc.invert, as_condition(operand))


def compare(operator: str, left: Compiled, right: Compiled) -> Compiled:
    """Compare two values: `=`, `!=`, `<`, `<=`, `>`, `>=`, or `<=>` (equal, or both null)."""
    kind = _find_compared_kind(left, right, equality=operator in ("=", "!=", "<=>"))
    if kind == "void":
        return make_constant("boolean", True if operator == "<=>" else None)
    return build("boolean", partial(_COMPARISONS[operator], kind), cast(left, kind), cast(right, kind))


def _find_compared_kind(left: Compiled, right: Compiled, equality: bool) -> str:
    kinds = [left.kind, right.kind]
    if TEXTS in kinds:
        raise NotInArrowError("a comparison of lists")
    if left.kind == right.kind or "void" in kinds:
        return kinds[0] if kinds[0] != "void" else kinds[1]
    if "string" in kinds:
        other = next(kind for kind in kinds if kind != "string")
        return "double" if parse_decimal(other) else other
    if "boolean" in kinds:
        other = next(kind for kind in kinds if kind != "boolean")
        if equality and other in REAL_KINDS:
            return other
        raise NotInArrowError(f"a comparison of boolean with {other}")
    decimals = [find_decimal(kind) for kind in kinds]
    if any(map(parse_decimal, kinds)) and all(decimals):
        return widen_decimals(*decimals)
    return find_common_kind(kinds, promotes_texts=False)


def _is_equal(kind: str, left: Value, right: Value) -> pa.Array:
    equal = pc.equal(left, right)
    if kind != "double" or _is_number(left) or _is_number(right):
        return equal
    return pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def is_less(kind: str, left: Value, right: Value) -> pa.Array:
    """Return whether values are less than others. NaN is greater than every number."""
    less = pc.less(left, right)
    if kind != "double" or _is_number(right):
        return less
    return pc.or_(less, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def _is_number(value: Value) -> bool:
    """Return whether a value is a constant other than NaN and null."""
    return isinstance(value, pa.Scalar) and value.is_valid and value.as_py() == value.as_py()


def _is_same(kind: str, left: Value, right: Value) -> pa.Array:
    equal = pc.fill_null(_is_equal(kind, left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


_COMPARISONS: dict[str, Callable[[str, Value, Value], pa.Array]] = {
    "=": _is_equal,
    "!=": lambda kind, left, right: pc.invert(_is_equal(kind, left, right)),
    "<": is_less,
    ">": lambda kind, left, right: is_less(kind, right, left),
    "<=": lambda kind, left, right: pc.invert(is_less(kind, right, left)),
    ">=": lambda kind, left, right: pc.invert(is_less(kind, left, right)),
    "<=>": _is_same,
}


def is_in(tested: Compiled, values: Sequence[Compiled]) -> Compiled:
    """Return whether a value is in a list; null if it is not in the list and one of the values is null."""
    kind = find_common_kind([tested.kind, *(value.kind for value in values)])
    if kind in ("void", TEXTS):
        raise NotInArrowError(f"IN with {kind}")
    first, *others = [cast(operand, kind) for operand in (tested, *values)]
    if any(operand.constant is None for operand in others) or kind == "double":
        return join_conditions("or", [compare("=", first, other) for other in others])
    listed = [operand.constant for operand in others if operand.constant is not None]
    known = pa.array([scalar.as_py() for scalar in listed if scalar.is_valid], listed[0].type)
    has_null = any(not scalar.is_valid for scalar in listed)

    def find(searched: pa.Array) -> pa.Array:
        found = pc.is_in(searched, value_set=known)
        unknown = pc.invert(found) if has_null else pc.is_null(searched)
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)

    return build("boolean", find, first)


def choose(branches: Sequence[tuple[Compiled, Compiled]], default: Compiled) -> Compiled:
    """Return the value of the first branch whose condition is true, or the default."""
    for condition, _ in branches:
        if condition.kind != "boolean":
            raise NotInArrowError(f"a condition of type {condition.kind}")
    kind = find_common_kind([*(value.kind for _, value in branches), default.kind])
    operands = [default if kind == default.kind else cast(default, kind)]
    for condition, value in reversed(branches):
        operands += [condition, cast(value, kind)]

    def evaluate(*values: Value) -> pa.Array:
        result, *pairs = as_arrays(*values)
        for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
            result = pc.if_else(pc.fill_null(condition, False), value, result)
        return result

    return build(kind, evaluate, *operands)


def add(left: Compiled, right: Compiled) -> Compiled:
    return _calculate(pc.add, left, right)


def subtract(left: Compiled, right: Compiled) -> Compiled:
    return _calculate(pc.subtract, left, right)


def multiply(left: Compiled, right: Compiled) -> Compiled:
    return _calculate(pc.multiply, left, right)


def _calculate(operation: Callable[[Value, Value], pa.Array], left: Compiled, right: Compiled) -> Compiled:
    kind = _find_calculated_kind(left.kind, right.kind)
    return build(kind, operation, cast(left, kind), cast(right, kind))


def _find_calculated_kind(left: str, right: str) -> str:
    kinds = {left, right}
    for kind in kinds:
        if kind in ("boolean", "date", "timestamp", TEXTS):
            raise NotInArrowError(f"arithmetic with {kind}")
    if kinds <= {"string", "double", "void"} or "string" in kinds or "double" in kinds:
        return "double"
    if any(map(parse_decimal, kinds)):
        raise NotInArrowError("arithmetic with decimal numbers; write them in the form 1.5e0")
    return "bigint" if "bigint" in kinds else "int"


def divide(left: Compiled, right: Compiled) -> Compiled:
    """Divide as real numbers; null if the divisor is 0."""
    _find_calculated_kind(left.kind, right.kind)

    def evaluate(dividend: np.ndarray, divisor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return dividend / divisor, divisor == 0

    return build("double", partial(compute_numbers, "double", evaluate), cast(left, "double"), cast(right, "double"))


def divide_whole(left: Compiled, right: Compiled) -> Compiled:
    """Divide whole numbers, cut off to a whole number; null if the divisor is 0."""
    if not {left.kind, right.kind} <= {*WHOLE, "void"} or left.kind == right.kind == "void":
        raise NotInArrowError(f"DIV of {left.kind} and {right.kind}")

    def evaluate(dividend: np.ndarray, divisor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _divide_cut(dividend, divisor), divisor == 0

    return build("bigint", partial(compute_numbers, "bigint", evaluate), cast(left, "bigint"), cast(right, "bigint"))


def _divide_cut(dividend: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    """Divide toward zero. The smallest number divided by -1 is itself, as in Java."""
    safe = np.where((divisor == 0) | (divisor == -1), 1, divisor)
    quotient = dividend // safe
    quotient += (dividend % safe != 0) & ((dividend < 0) != (safe < 0))
    return np.where(divisor == -1, -dividend, quotient)


def compute_remainder(left: Compiled, right: Compiled) -> Compiled:
    """Return the remainder, with the sign of the dividend; null if the divisor is 0."""
    kind = _find_calculated_kind(left.kind, right.kind)

    def evaluate(dividend: np.ndarray, divisor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        absent = divisor == 0
        if dividend.dtype != np.float64:
            divisor = np.where(absent | (divisor == -1), 1, divisor)
        return np.fmod(dividend, divisor), absent

    return build(kind, partial(compute_numbers, kind, evaluate), cast(left, kind), cast(right, kind))


def negate(operand: Compiled) -> Compiled:
    if operand.constant is not None and (decimal := parse_decimal(operand.kind)):
        return make_constant(operand.kind, pa.scalar(-operand.constant.as_py(), pa.decimal128(*decimal)))
    if operand.kind in ("string", "void"):
        operand = cast(operand, "double")
    if operand.kind not in REAL_KINDS:
        raise NotInArrowError(f"the negative of {operand.kind}")
    return build(operand.kind, pc.negate, operand)
