"""Casts between the kinds of values, as in Spark without ANSI mode: a value that can't be cast is null.

A text is a number if Java parses it as a number. Spaces and control characters around it are ignored. A whole number
can have decimal places, which are cut off. A real number outside the range of whole numbers becomes the nearest limit,
and whole numbers wrap around. TRY_CAST follows ANSI: a value outside the range is null.

A date outside the range of timestamps becomes the nearest timestamp. Spark ends the batch with an error, unless it only
compares the value. In this case, Spark compares days, with the same result.
"""

import math
import re
from calendar import monthrange
from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.rules.arrow_values import (
    MAX_PRECISION,
    Compiled,
    NotInArrowError,
    build,
    compute_by_form,
    compute_numbers,
    compute_texts,
    find_arrow_type,
    make_constant,
    parse_decimal,
)
from workers.pipeline.rules.calendar_numbers import DAY_US, MICROSECONDS, join_days, split_days

WHOLE = ("int", "bigint")
MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1
_LIMITS = {"int": (-(2**31), 2**31 - 1), "bigint": (MIN_LONG, MAX_LONG)}
_BLANKS = "".join(map(chr, range(33))) + "\x7f"  # white space and control characters of Java, in one byte
_JAVA_BLANKS = "".join(map(chr, range(33)))
_WHOLE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?")
_REAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_REAL_FORM = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\z"
_WHOLE_FORMS = {"int": r"\A-?[0-9]{1,9}\z", "bigint": r"\A-?[0-9]{1,18}\z"}
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?Z?)?")


def cast(expression: Compiled, kind: str) -> Compiled:
    """Return an expression cast to a kind. Raises `NotInArrowError`."""
    if expression.kind == kind:
        return expression
    if expression.kind == "void":
        return build(kind, partial(_make_nulls, kind), expression)
    if (expression.kind, kind) == ("string", "timestamp"):
        return _cast_literal_time(expression)
    return build(kind, _find_cast(expression.kind, kind), expression)


def try_cast(expression: Compiled, kind: str) -> Compiled:
    """Return an expression cast to a kind as ANSI requires, with null where that is an error."""
    source = expression.kind
    if (source, kind) in _TRY_CASTS:
        return build(kind, _TRY_CASTS[source, kind], expression)
    if source in (kind, "void") or (source, kind) in _SAME_IN_ANSI:
        return cast(expression, kind)
    raise NotInArrowError(f"try_cast from {source} to {kind}")


def find_common_kind(kinds: Iterable[str], promotes_texts: bool = True) -> str:
    """Return the kind of CASE, coalesce, and similar. promotes_texts: whether one text converts all values to text."""
    ordered = sorted(dict.fromkeys(kinds), key=lambda kind: kind != "string")
    return reduce(partial(_find_wider_kind, promotes_texts=promotes_texts), ordered)


def _find_wider_kind(left: str, right: str, promotes_texts: bool) -> str:
    if left == right or right == "void":
        return left
    if left == "void":
        return right
    kinds = {left, right}
    if kinds <= {"int", "bigint", "double"} or (kinds & {"double"} and any(map(parse_decimal, kinds))):
        return "double" if "double" in kinds else "bigint"
    if kinds == {"date", "timestamp"}:
        return "timestamp"
    decimals = find_decimal(left), find_decimal(right)
    if all(decimals):
        return widen_decimals(*decimals)
    if promotes_texts and "string" in kinds and not kinds & {"boolean", "array<string>"}:
        return "string"
    raise NotInArrowError(f"a choice between {left} and {right}")


def find_decimal(kind: str) -> tuple[int, int] | None:
    """Return the precision and scale that hold all values of a kind; None for kinds without exact numbers."""
    return {"int": (10, 0), "bigint": (20, 0)}.get(kind) or parse_decimal(kind)


def widen_decimals(left: tuple[int, int] | None, right: tuple[int, int] | None) -> str:
    """Return the decimal that holds the values of two others."""
    assert left and right
    scale = max(left[1], right[1])
    precision = max(left[0] - left[1], right[0] - right[1]) + scale
    if precision > MAX_PRECISION:
        raise NotInArrowError(f"decimals of more than {MAX_PRECISION} digits")
    return f"decimal({precision},{scale})"


def _find_cast(source: str, kind: str) -> Callable[..., pa.Array]:
    if (source, kind) in _CASTS:
        return _CASTS[source, kind]
    if parse_decimal(source) and kind == "double":
        return _convert_decimals
    if parse_decimal(kind) and find_decimal(source):
        return lambda values: pc.cast(values, find_arrow_type(kind))
    raise NotInArrowError(f"a cast from {source} to {kind}")


def _make_nulls(kind: str, values: pa.Array) -> pa.Array:
    return pa.nulls(len(values), find_arrow_type(kind))


def _make_arrow_cast(kind: str) -> Callable[[pa.Array], pa.Array]:
    return lambda values: pc.cast(values, find_arrow_type(kind), safe=False)


def _convert_decimals(values: pa.Array) -> pa.Array:
    # Each text is read as the nearest number, which Arrow's own cast does not always return.
    return pc.cast(pc.cast(values, pa.string()), pa.float64())


def parse_whole(text: str, kind: str, exact: bool = False) -> int | None:
    """Return the whole number of a text. exact: whether it must have no decimal places."""
    stripped = text.strip(_BLANKS)
    found = _WHOLE.fullmatch(stripped)
    if not found or stripped in ("", "+", "-") or (exact and found[3] is not None):
        return None
    number = int(found[1] + (found[2] or "0"))
    low, high = _LIMITS[kind]
    return number if low <= number <= high else None


def parse_real(text: str) -> float | None:
    """Return the real number of a text."""
    stripped = text.strip(_JAVA_BLANKS)
    if found := _REAL.fullmatch(stripped):
        return float(found[1])
    if found := _HEXADECIMAL.fullmatch(stripped):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if stripped.startswith("-") else math.inf
    return math.nan if stripped in ("+NaN", "-NaN") else _SPECIAL.get(stripped.lower())


def _parse_boolean(text: str) -> bool | None:
    stripped = text.strip(_BLANKS).lower()
    return True if stripped in _TRUE else False if stripped in _FALSE else None


def _parse_date(text: str) -> int | None:
    """Return the days since 1970-01-01 of a date such as 2026-11-20, 2026-1-2, or 2026; None if it is invalid."""
    found = _DATE.fullmatch(text.strip(_BLANKS))
    if not found:
        return None
    year, month, day = int(found[1] + found[2]), int(found[3] or 1), int(found[4] or 1)
    # Leap years repeat after 400 years.
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(2000 + year % 400, month)[1]:
        return None
    days = int(join_days(np.array(year), np.array(month), np.array(day)))
    return days if abs(days) < 2**31 else None


def _parse_dates(texts: pa.Array) -> pa.Array:
    return pa.array([None if text is None else _parse_date(text) for text in texts.to_pylist()], pa.int32()).view(
        pa.date32()
    )


def _cast_literal_time(expression: Compiled) -> Compiled:
    """Cast a literal such as '2026-11-20 06:00:00'. Texts of columns can name time zones, which only Java knows."""
    if expression.constant is None:
        raise NotInArrowError("a cast of a column from string to timestamp")
    text = expression.constant.as_py()
    if text is None:
        return make_constant("timestamp", None)
    found = _TIMESTAMP.fullmatch(text)
    if not found:
        raise NotInArrowError(f"the time '{text[:40]}'; write it as '2026-11-20 06:00:00'")
    days, (hour, minute, second) = _parse_date(found[1]), (int(part or 0) for part in found.groups()[1:4])
    if days is None or hour > 23 or minute > 59 or second > 59:
        return make_constant("timestamp", None)
    time_us = ((hour * 60 + minute) * 60 + second) * MICROSECONDS + int((found[5] or "").ljust(6, "0"))
    return make_constant("timestamp", pa.scalar(days * DAY_US + time_us).cast(find_arrow_type("timestamp")))


def _parse_whole_numbers(kind: str, texts: pa.Array) -> pa.Array:
    return compute_by_form(
        kind, texts, _WHOLE_FORMS[kind], _make_arrow_cast(kind), lambda text: parse_whole(text, kind), "0"
    )


def _parse_reals(texts: pa.Array) -> pa.Array:
    return compute_by_form("double", texts, _REAL_FORM, _make_arrow_cast("double"), parse_real, "0")


def limit_to_whole(values: np.ndarray, kind: str) -> np.ndarray:
    """Return real numbers as Java casts them: cut off, limited to the range, and 0 for NaN."""
    low, high = _LIMITS[kind]
    whole = np.where(np.isnan(values), 0, np.clip(values, float(low), float(high)))
    # The upper limit of 64 bits is no real number; the next one exceeds it.
    return np.where(whole >= float(high), high, np.where(whole >= float(high), 0, whole).astype(np.int64))


def _convert_reals(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return limit_to_whole(values * MICROSECONDS, "bigint"), ~np.isfinite(values)


def _convert_seconds(seconds: np.ndarray) -> np.ndarray:
    limit = MAX_LONG // MICROSECONDS
    times = seconds.astype(np.int64) * MICROSECONDS
    return np.where(seconds > limit, MAX_LONG, np.where(seconds < -limit, MIN_LONG, times))


def _convert_dates(days: np.ndarray) -> np.ndarray:
    limit = MAX_LONG // DAY_US
    times = days.astype(np.int64) * DAY_US
    return np.where(days > limit, MAX_LONG, np.where(days < -limit, MIN_LONG, times))


def _fit_whole(values: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers that fit a whole number, and a mask of the numbers that do not."""
    low, high = _LIMITS[kind]
    if values.dtype == np.float64:
        fits = (np.floor(values) <= float(high)) & (np.ceil(values) >= float(low))
        return limit_to_whole(values, kind), ~fits
    return values, (values < low) | (values > high)


def _format_dates(values: pa.Array) -> pa.Array:
    return _format(values.view(pa.int32()), _format_days)


def _format_times(values: pa.Array) -> pa.Array:
    return _format(values.view(pa.int64()), _format_microseconds)


def _format(values: pa.Array, form: Callable[[np.ndarray], list[str]]) -> pa.Array:
    texts = pa.array(form(pc.fill_null(values, 0).to_numpy(zero_copy_only=False)), pa.string())
    return pc.if_else(pc.is_valid(values), texts, pa.scalar(None, pa.string()))


def _format_days(days: np.ndarray) -> list[str]:
    columns = [part.tolist() for part in split_days(days)]
    return [f"{_format_year(year)}-{month:02}-{day:02}" for year, month, day in zip(*columns, strict=True)]


def _format_year(year: int) -> str:
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}"


def _format_microseconds(times_us: np.ndarray) -> list[str]:
    days = times_us // DAY_US
    dates = _format_days(days)
    texts = []
    for date, rest in zip(dates, (times_us - days * DAY_US).tolist(), strict=True):
        seconds, fraction = divmod(rest, MICROSECONDS)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        texts.append(f"{date} {clock}.{fraction:06}".rstrip("0") if fraction else f"{date} {clock}")
    return texts


def _make_number_cast(kind: str, function: Callable[..., Any]) -> Callable[[pa.Array], pa.Array]:
    return lambda values: compute_numbers(kind, function, values)


_CASTS: dict[tuple[str, str], Callable[[pa.Array], pa.Array]] = {
    ("string", "int"): partial(_parse_whole_numbers, "int"),
    ("string", "bigint"): partial(_parse_whole_numbers, "bigint"),
    ("string", "double"): _parse_reals,
    ("string", "boolean"): lambda texts: compute_texts("boolean", _parse_boolean, texts),
    ("string", "date"): _parse_dates,
    ("int", "bigint"): _make_arrow_cast("bigint"),
    ("int", "double"): _make_arrow_cast("double"),
    ("bigint", "double"): _make_number_cast("double", lambda values: values.astype(np.float64)),
    ("bigint", "int"): _make_number_cast("int", lambda values: values.astype(np.int32)),
    ("double", "int"): _make_number_cast("int", lambda values: limit_to_whole(values, "int")),
    ("double", "bigint"): _make_number_cast("bigint", lambda values: limit_to_whole(values, "bigint")),
    **{
        (kind, "boolean"): _make_number_cast("boolean", lambda values: values != 0)
        for kind in ("int", "bigint", "double")
    },
    **{("boolean", kind): _make_number_cast(kind, lambda values: values) for kind in ("int", "bigint", "double")},
    ("boolean", "string"): _make_arrow_cast("string"),
    ("boolean", "timestamp"): _make_number_cast("timestamp", lambda values: values),
    ("int", "string"): _make_arrow_cast("string"),
    ("bigint", "string"): _make_arrow_cast("string"),
    ("int", "timestamp"): _make_number_cast("timestamp", _convert_seconds),
    ("bigint", "timestamp"): _make_number_cast("timestamp", _convert_seconds),
    ("double", "timestamp"): _make_number_cast("timestamp", _convert_reals),
    ("date", "timestamp"): _make_number_cast("timestamp", _convert_dates),
    ("date", "string"): _format_dates,
    ("timestamp", "string"): _format_times,
    ("timestamp", "date"): _make_number_cast("date", lambda times: times // DAY_US),
    ("timestamp", "bigint"): _make_number_cast("bigint", lambda times: times // MICROSECONDS),
    ("timestamp", "int"): _make_number_cast("int", lambda times: _fit_whole(times // MICROSECONDS, "int")),
    ("timestamp", "double"): _make_number_cast("double", lambda times: times / float(MICROSECONDS)),
    ("timestamp", "boolean"): _make_number_cast("boolean", lambda times: times != 0),
    **{("date", kind): partial(_make_nulls, kind) for kind in ("int", "bigint", "double", "boolean")},
}
_TRY_CASTS: dict[tuple[str, str], Callable[[pa.Array], pa.Array]] = {
    **{("string", kind): partial(compute_texts, kind, partial(parse_whole, kind=kind, exact=True)) for kind in WHOLE},
    ("bigint", "int"): _make_number_cast("int", lambda values: _fit_whole(values, "int")),
    ("double", "int"): _make_number_cast("int", lambda values: _fit_whole(values, "int")),
    ("double", "bigint"): _make_number_cast("bigint", lambda values: _fit_whole(values, "bigint")),
}
_SAME_IN_ANSI = {
    *((source, kind) for source, kind in _CASTS if kind in ("string", "boolean") and source != "date"),
    ("date", "string"),
    ("string", "double"),
    ("string", "date"),
    ("int", "bigint"),
    ("int", "double"),
    ("bigint", "double"),
    ("boolean", "int"),
    ("boolean", "bigint"),
    ("boolean", "double"),
    ("int", "timestamp"),
    ("date", "timestamp"),
    ("timestamp", "date"),
    ("timestamp", "int"),
    ("timestamp", "bigint"),
    ("timestamp", "double"),
}
