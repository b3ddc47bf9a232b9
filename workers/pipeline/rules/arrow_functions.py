"""The functions of rules on Arrow arrays, with the results of Spark's functions.

`FUNCTIONS` contains the supported functions. Each function takes compiled arguments, casts them as Spark casts them,
and returns a compiled expression. Spark evaluates the functions whose results depend on Java's tables or libraries
(lower and upper case, logarithms, rounding).
"""

import zlib
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.events.text_hashes import SEED, hash_texts
from workers.pipeline.rules.arrow_casts import (
    MAX_LONG,
    MIN_LONG,
    WHOLE,
    cast,
    find_common_kind,
    limit_to_whole,
    parse_whole,
)
from workers.pipeline.rules.arrow_operators import (
    REAL_KINDS,
    choose,
    compare,
    compute_remainder,
    is_less,
    negate_condition,
)
from workers.pipeline.rules.arrow_values import (
    TEXTS,
    Compiled,
    NotInArrowError,
    Value,
    as_arrays,
    build,
    compute_numbers,
    compute_texts,
    make_constant,
)
from workers.pipeline.rules.calendar_numbers import (
    DAY_US,
    MICROSECONDS,
    find_day_of_year,
    find_week,
    find_weekday,
    join_days,
    split_days,
)
from workers.pipeline.rules.reference import parse_subnet

MAX_INT = 2**31 - 1
_UNITS_US = {"second": MICROSECONDS, "minute": 60 * MICROSECONDS, "hour": 3600 * MICROSECONDS, "day": DAY_US}
Build = Callable[..., Compiled]


def _make_text_function(kind: str, function: Callable[..., Any], arguments: Sequence[str] = ("string",)) -> Build:
    """Return a function of Python values, whose arguments are cast to `arguments`."""

    def compile_call(*given: Compiled) -> Compiled:
        operands = [cast(operand, wanted) for operand, wanted in zip(given, arguments, strict=False)]
        return build(kind, partial(compute_texts, kind, function), *operands)

    return compile_call


def _make_arrow_function(kind: str, function: Callable[..., pa.Array], arguments: Sequence[str] = ("string",)) -> Build:
    def compile_call(*given: Compiled) -> Compiled:
        return build(kind, function, *[cast(operand, wanted) for operand, wanted in zip(given, arguments, strict=True)])

    return compile_call


def _compute_absolute(operand: Compiled) -> Compiled:
    number = _as_number(operand, "abs")
    return build(number.kind, pc.abs, number)


def _as_number(operand: Compiled, name: str) -> Compiled:
    if operand.kind in REAL_KINDS:
        return operand
    if operand.kind in ("string", "void"):
        return cast(operand, "double")
    raise NotInArrowError(f"{name} of {operand.kind}")


def _to_whole(rounded: Callable[[np.ndarray], np.ndarray]) -> Build:
    def compile_call(operand: Compiled) -> Compiled:
        number = _as_number(operand, "ceil or floor")
        if number.kind in WHOLE:
            return cast(number, "bigint")
        return build(
            "bigint",
            partial(compute_numbers, "bigint", lambda numbers: limit_to_whole(rounded(numbers), "bigint")),
            number,
        )

    return compile_call


def _as_real(operand: Compiled) -> Compiled:
    """Cast an argument for a function that takes real numbers. Spark rejects Booleans and times."""
    if operand.kind in ("boolean", "date", "timestamp", TEXTS):
        raise NotInArrowError(f"a conversion from {operand.kind} to a real number")
    return cast(operand, "double")


def _make_real_function(kind: str, function: Callable[..., pa.Array]) -> Build:
    return lambda *given: build(kind, function, *map(_as_real, given))


def _replace_nan(left: Value, right: Value) -> pa.Array:
    first, second = as_arrays(left, right)
    return pc.if_else(pc.is_nan(first), second, first)


def _cast_to_date(operand: Compiled) -> Compiled:
    return cast(operand, "date")


def _make_date_function(function: Callable[[np.ndarray], np.ndarray]) -> Build:
    def compile_call(operand: Compiled) -> Compiled:
        if operand.kind not in ("date", "timestamp", "string", "void"):
            raise NotInArrowError(f"a conversion from {operand.kind} to a date")
        return build("int", partial(compute_numbers, "int", function), _cast_to_date(operand))

    return compile_call


def _make_time_function(kind: str, function: Callable[[np.ndarray], np.ndarray], casts: bool = True) -> Build:
    def compile_call(operand: Compiled) -> Compiled:
        if operand.kind != "timestamp" and (not casts or operand.kind not in ("date", "string", "void")):
            raise NotInArrowError(f"a conversion from {operand.kind} to a time")
        return build(kind, partial(compute_numbers, kind, function), cast(operand, "timestamp"))

    return compile_call


def _make_timestamp_function(unit_us: int) -> Build:
    def compile_call(operand: Compiled) -> Compiled:
        if operand.kind == "double" and unit_us == MICROSECONDS:
            return cast(operand, "timestamp")
        if operand.kind not in WHOLE:
            raise NotInArrowError(f"a conversion from {operand.kind} to a time")

        def scale(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            wide = numbers.astype(np.int64)
            return wide * unit_us, (wide > MAX_LONG // unit_us) | (wide < -((MAX_LONG + 1) // unit_us))

        return build("timestamp", partial(compute_numbers, "timestamp", scale), operand)

    return compile_call


def _subtract_dates(end: Compiled, start: Compiled) -> Compiled:
    for operand in (end, start):
        if operand.kind not in ("date", "timestamp", "string", "void"):
            raise NotInArrowError(f"a conversion from {operand.kind} to a date")
    subtract = partial(compute_numbers, "int", lambda left, right: left - right)
    return build("int", subtract, _cast_to_date(end), _cast_to_date(start))


def _trim(function: Callable[..., pa.Array]) -> Build:
    return _make_arrow_function("string", lambda texts: function(texts, characters=" "))


def _cut_text(text: str, start: int, length: int = MAX_INT) -> str:
    """Return a part of a text: `start` counts from 1, from the end if negative; 0 is the first character."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = min(max(first + length, -MAX_INT - 1), MAX_INT)
    return text[max(first, 0) : max(end, 0)] if end > first else ""


def _compile_cut(*given: Compiled) -> Compiled:
    text, places = cast(given[0], "string"), [cast(place, "int") for place in given[1:]]
    constants: list[int] = [place.constant.as_py() for place in places if place.constant is not None]
    if len(constants) == len(places) and None not in constants and constants[0] >= 0:
        start = max(constants[0] - 1, 0)
        stop = min(start + max(constants[1], 0) if len(constants) == 2 else MAX_INT, MAX_INT)
        return build("string", lambda texts: pc.utf8_slice_codeunits(texts, start=start, stop=stop), text)
    return build("string", partial(compute_texts, "string", _cut_text), text, *places)


def _take_left(text: Compiled, length: Compiled) -> Compiled:
    return _compile_cut(text, make_constant("int", 1), length)


def _take_right(text: str, length: int) -> str:
    return "" if length <= 0 else text[-length:]


def _locate(part: str, text: str, start: int = 1) -> int:
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


def _compile_locate(*given: Compiled) -> Compiled:
    part, text, *start = given
    operands = [cast(part, "string"), cast(text, "string"), *(cast(place, "int") for place in start)]

    def locate(*values: Value) -> pa.Array:
        found = compute_texts("int", _locate, *values)
        if len(values) < 3:
            return found
        # Spark returns 0, not null, if the start position is null.
        return pc.if_else(pc.is_null(as_arrays(*values)[2]), pa.scalar(0, pa.int32()), found)

    return build("int", locate, *operands)


def _pad(text: str, length: int, padding: str, left: bool) -> str:
    missing = length - len(text)
    if missing <= 0 or not padding:
        return text[:length]
    filled = (padding * (missing // len(padding) + 1))[:missing]
    return filled + text if left else text + filled


def _compile_pad(left: bool) -> Build:
    return _make_text_function("string", partial(_pad, left=left), ("string", "int", "string"))


def _replace(text: Compiled, searched: Compiled, replacement: Compiled) -> Compiled:
    old, new = _get_text(searched), _get_text(replacement)
    if not old:
        return cast(text, "string")
    return build(
        "string", lambda texts: pc.replace_substring(texts, pattern=old, replacement=new), cast(text, "string")
    )


def _translate(text: Compiled, searched: Compiled, replacement: Compiled) -> Compiled:
    old, new = _get_text(searched), _get_text(replacement)
    if "\0" in old + new:
        raise NotInArrowError("translate of a null character")
    table: dict[int, str] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place] if place < len(new) else "")
    return build("string", partial(compute_texts, "string", lambda value: value.translate(table)), cast(text, "string"))


def _get_text(literal: Compiled) -> str:
    assert literal.constant is not None  # the language allows literals only
    return str(literal.constant.as_py())


def _concatenate(*given: Compiled) -> Compiled:
    operands = [cast(operand, "string") for operand in given]
    if len(operands) == 1:
        return operands[0]
    return build("string", lambda *texts: pc.binary_join_element_wise(*texts, ""), *operands)


def _join_with_separator(*given: Compiled) -> Compiled:
    if any(operand.kind == TEXTS for operand in given):
        raise NotInArrowError("concat_ws of a list")
    separator, *operands = [cast(operand, "string") for operand in given]

    def join(separators: Value, *texts: Value) -> pa.Array:
        if isinstance(separators, pa.Scalar) and separators.is_valid:
            first, *others = as_arrays(*texts)
            # Arrow loses the rows in which all texts are null.
            absent = reduce(pc.and_, [pc.is_null(text) for text in (first, *others)])
            return pc.binary_join_element_wise(pc.if_else(absent, "", first), *others, separators, null_handling="skip")
        rows = zip(*(array.to_pylist() for array in as_arrays(separators, *texts)), strict=True)
        return pa.array([_join_texts(*row) for row in rows], pa.string())

    return build("string", join, separator, *operands)


def _join_texts(separator: str | None, *texts: str | None) -> str | None:
    return None if separator is None else separator.join(text for text in texts if text is not None)


def _split(text: Compiled, delimiter: Compiled, limit: Compiled | None = None) -> Compiled:
    written = _get_text(delimiter)
    pattern, escaped = "", False
    for character in written:  # `\\.` is a literal dot
        escaped = character == "\\" and not escaped
        pattern += "" if escaped else character
    most = limit.constant.as_py() if limit is not None and limit.constant is not None else -1
    splits = most - 1 if most > 0 else None

    def split(texts: pa.Array) -> pa.Array:
        if splits == 0:
            offsets = np.arange(len(texts) + 1, dtype=np.int32)
            lists = pa.ListArray.from_arrays(offsets, texts)
            return pc.if_else(pc.is_valid(texts), lists, pa.scalar(None, lists.type))
        return pc.split_pattern(texts, pattern=pattern, max_splits=splits)

    return build(TEXTS, split, cast(text, "string"))


def take_item(texts: Compiled, place: int) -> Compiled:
    """Return the item of each list at an index, from the end if negative; null if there is none."""

    def take(lists: pa.Array) -> pa.Array:
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        places = starts + place if place >= 0 else starts + lengths + place
        absent = (lengths <= place) if place >= 0 else (lengths < -place)
        return lists.flatten().take(pa.array(places, mask=absent))

    if texts.kind != TEXTS:
        raise NotInArrowError(f"an item of {texts.kind}")
    return build("string", take, texts)


def _find_element(texts: Compiled, place: Compiled) -> Compiled:
    number = place.constant.as_py() if place.constant is not None and place.kind in WHOLE else 0
    if not number:
        raise NotInArrowError("element_at with an index that is 0 or not a literal")
    return take_item(texts, number - 1 if number > 0 else number)


def _count_items(texts: Compiled) -> Compiled:
    if texts.kind != TEXTS:
        raise NotInArrowError(f"the size of {texts.kind}")
    return build("int", lambda lists: pc.fill_null(pc.list_value_length(lists), -1), texts)


def coalesce(*given: Compiled) -> Compiled:
    kind = find_common_kind(operand.kind for operand in given)
    operands = [cast(operand, kind) for operand in given]
    if len(operands) == 1:
        return operands[0]
    return build(kind, lambda *values: pc.coalesce(*as_arrays(*values)), *operands)


def _choose_extreme(greatest: bool) -> Build:
    """Return the greatest, or least, value that is not null. NaN is greater than every number."""

    def compile_call(*given: Compiled) -> Compiled:
        kind = find_common_kind((operand.kind for operand in given), promotes_texts=False)
        if kind in ("void", TEXTS):
            raise NotInArrowError(f"greatest or least of {kind}")

        def choose_extreme(*values: Value) -> pa.Array:
            best, *others = as_arrays(*values)
            for value in others:
                better = is_less(kind, best, value) if greatest else is_less(kind, value, best)
                best = pc.if_else(pc.fill_null(better, False), value, pc.coalesce(best, value))
            return best

        return build(kind, choose_extreme, *[cast(operand, kind) for operand in given])

    return compile_call


def is_null(operand: Compiled) -> Compiled:
    return build("boolean", lambda values: pc.is_null(values), operand)


def _is_nan(operand: Compiled) -> Compiled:
    return build("boolean", lambda values: pc.fill_null(pc.is_nan(values), False), _as_real(operand))


def _remove_equal(left: Compiled, right: Compiled) -> Compiled:
    equal = compare("=", left, right)

    def remove(same: Value, values: Value) -> pa.Array:
        where, kept = as_arrays(same, values)
        return pc.if_else(pc.fill_null(where, False), pa.scalar(None, kept.type), kept)

    return build(left.kind, remove, equal, left)


def match_subnet(address: Compiled, subnet: str) -> Compiled:
    """Return whether an address is in a subnet (see `rule_sql.convert_address_to_number`)."""
    if address.kind != "string":
        raise NotInArrowError(f"a subnet of {address.kind}")
    low, prefix_length = parse_subnet(subnet, "in_subnet")
    free_bits = 32 - prefix_length
    begins = ".".join(str(low >> shift & 255) for shift in (24, 16, 8, 0)[: prefix_length // 8])

    def is_inside(text: str) -> bool | None:
        number = 1
        for part in text.split("."):
            read = parse_whole(part, "bigint")
            if read is None:
                return None
            number = _wrap(number * 256 + read)
        return _wrap(number - 256**4) >> free_bits == low >> free_bits

    def match(texts: pa.Array) -> pa.Array:
        begun = pc.starts_with(texts, begins)
        inside = compute_texts("boolean", is_inside, texts.filter(pc.fill_null(begun, False)))
        return pc.replace_with_mask(begun, pc.fill_null(begun, False), inside)

    return build("boolean", match, address)


def _wrap(number: int) -> int:
    """Return a whole number wrapped around to 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def _compute_pmod(left: Compiled, right: Compiled) -> Compiled:
    rest = compute_remainder(left, right)
    divisor = cast(right, rest.kind)

    def make_positive(rests: np.ndarray, divisors: np.ndarray) -> np.ndarray:
        safe = np.where(divisors == 0, 1, divisors)
        return np.where(rests < 0, np.fmod(rests + divisors, safe), rests)

    return build(rest.kind, partial(compute_numbers, rest.kind, make_positive), rest, divisor)


def _compute_degrees(texts: Value) -> pa.Array:
    return pc.multiply(texts, pa.scalar(57.29577951308232))


def _compute_hash(*given: Compiled) -> Compiled:
    if any(operand.kind != "string" for operand in given):
        raise NotInArrowError("xxhash64 of values other than strings")

    def compute(*values: Value) -> pa.Array:
        texts = as_arrays(*values)
        hashes = np.full(len(texts[0]), SEED, np.int64)
        for column in texts:
            hashes = hash_texts(column, hashes)
        return pa.array(hashes)

    return build("bigint", compute, *given)


def _truncate(unit: Compiled, operand: Compiled) -> Compiled:
    """Return the start of the unit that contains a time."""
    if operand.kind not in ("timestamp", "date", "string", "void"):
        raise NotInArrowError(f"a conversion from {operand.kind} to a time")
    truncate = partial(_truncate_times, _get_text(unit).lower())
    return build("timestamp", partial(compute_numbers, "timestamp", truncate), cast(operand, "timestamp"))


def _truncate_times(unit: str, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if unit in _UNITS_US:
        starts = times // _UNITS_US[unit] * _UNITS_US[unit]
        return starts, starts > times  # wrapped around
    days = times // DAY_US
    year, month, _ = split_days(days)
    first = {"year": np.ones_like(month), "quarter": (month - 1) // 3 * 3 + 1, "month": month}
    starts = days - find_weekday(days) if unit == "week" else join_days(year, first[unit], np.ones_like(month))
    return starts * DAY_US, starts < MIN_LONG // DAY_US + 1


def _find_sign(numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers == 0, numbers, np.sign(numbers))


def _clock(unit_seconds: int, modulus: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda times: times // (unit_seconds * MICROSECONDS) % modulus


FUNCTIONS: dict[str, Build] = {
    "abs": _compute_absolute,
    "ceil": _to_whole(np.ceil),
    "ceiling": _to_whole(np.ceil),
    "floor": _to_whole(np.floor),
    "sqrt": _make_real_function("double", pc.sqrt),
    "sign": _make_real_function("double", partial(compute_numbers, "double", _find_sign)),
    "signum": _make_real_function("double", partial(compute_numbers, "double", _find_sign)),
    "radians": _make_real_function("double", lambda values: pc.multiply(values, pa.scalar(0.017453292519943295))),
    "degrees": _make_real_function("double", _compute_degrees),
    "isnan": _is_nan,
    "nanvl": _make_real_function("double", _replace_nan),
    "isnull": is_null,
    "isnotnull": lambda operand: negate_condition(is_null(operand)),
    "coalesce": coalesce,
    "ifnull": coalesce,
    "nvl": coalesce,
    "nullif": _remove_equal,
    "if": lambda condition, then, other: choose([(condition, then)], other),
    "nvl2": lambda tested, then, other: choose([(negate_condition(is_null(tested)), then)], other),
    "greatest": _choose_extreme(True),
    "least": _choose_extreme(False),
    "mod": compute_remainder,
    "pmod": _compute_pmod,
    "trim": _trim(pc.utf8_trim),
    "ltrim": _trim(pc.utf8_ltrim),
    "rtrim": _trim(pc.utf8_rtrim),
    **dict.fromkeys(("length", "char_length", "character_length"), _make_arrow_function("int", pc.utf8_length)),
    "reverse": _make_arrow_function("string", pc.utf8_reverse),
    "ascii": _make_text_function("int", lambda text: ord(text[0]) if text else 0),
    "startswith": _make_text_function("boolean", str.startswith, ("string", "string")),
    "endswith": _make_text_function("boolean", str.endswith, ("string", "string")),
    "contains": _make_text_function("boolean", lambda text, part: part in text, ("string", "string")),
    "instr": lambda text, part: _compile_locate(part, text),
    "locate": _compile_locate,
    "substring": _compile_cut,
    "substr": _compile_cut,
    "left": _take_left,
    "right": _make_text_function("string", _take_right, ("string", "int")),
    "lpad": _compile_pad(left=True),
    "rpad": _compile_pad(left=False),
    "replace": _replace,
    "translate": _translate,
    "concat": _concatenate,
    "concat_ws": _join_with_separator,
    "split": _split,
    "element_at": _find_element,
    "size": _count_items,
    "year": _make_date_function(lambda days: split_days(days)[0]),
    "quarter": _make_date_function(lambda days: (split_days(days)[1] + 2) // 3),
    "month": _make_date_function(lambda days: split_days(days)[1]),
    "day": _make_date_function(lambda days: split_days(days)[2]),
    "dayofmonth": _make_date_function(lambda days: split_days(days)[2]),
    "dayofweek": _make_date_function(lambda days: (find_weekday(days) + 1) % 7 + 1),
    "dayofyear": _make_date_function(find_day_of_year),
    "weekday": _make_date_function(find_weekday),
    "weekofyear": _make_date_function(find_week),
    "hour": _make_time_function("int", _clock(3600, 24)),
    "minute": _make_time_function("int", _clock(60, 60)),
    "second": _make_time_function("int", _clock(1, 60)),
    "unix_seconds": _make_time_function("bigint", lambda times: times // MICROSECONDS, casts=False),
    "unix_millis": _make_time_function("bigint", lambda times: times // 1000, casts=False),
    "unix_micros": _make_time_function("bigint", lambda times: times, casts=False),
    "timestamp_seconds": _make_timestamp_function(MICROSECONDS),
    "timestamp_millis": _make_timestamp_function(1000),
    "timestamp_micros": _make_timestamp_function(1),
    "datediff": _subtract_dates,
    "date_trunc": _truncate,
    "xxhash64": _compute_hash,
}


def _to_date(operand: Compiled) -> Compiled:
    if operand.kind not in ("date", "timestamp", "string", "void"):
        raise NotInArrowError(f"a conversion from {operand.kind} to a date")
    return _cast_to_date(operand)


def _compute_checksum(operand: Compiled) -> Compiled:
    if operand.kind not in ("string", "void"):
        raise NotInArrowError(f"crc32 of {operand.kind}")
    return build(
        "bigint", partial(compute_texts, "bigint", lambda text: zlib.crc32(text.encode())), cast(operand, "string")
    )


FUNCTIONS |= {"to_date": _to_date, "crc32": _compute_checksum}
