"""Times that are given as numbers: in the unit that their column names, or that their size says.

Seconds since 1970 are below 1e11, milliseconds below 1e14, microseconds below 1e17, nanoseconds from there on. No
number has two meanings before the year 2200. Whole numbers are computed exactly. What is finer than a microsecond is
cut off, as it is of an ISO 8601 text with nine digits.
"""

import math
from typing import Any

import numpy as np

MIN_TIME_US = 0
MAX_TIME_US = 7_258_118_400_000_000  # 2200-01-01
# ns of one unit, by the end of a column's name.
UNITS_NS = {"_ns": 1, "_us": 1_000, "_ms": 1_000_000, "_s": 1_000_000_000}
# ns of one unit, by the size of a number: the first that it reaches.
_SIZES = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (0.0, 1_000_000_000))


def find_unit_ns(column: str) -> int | None:
    """Return the nanoseconds of one unit of a time column by its name; None: by the size of each number."""
    return next((unit for suffix, unit in UNITS_NS.items() if column.endswith(suffix)), None)


def convert_number_to_us(number: float, unit: int | None = None) -> int:
    """Return the µs since 1970 of a number. Raises ValueError for one that is no time from 1970 to 2199."""
    if not math.isfinite(number):
        raise ValueError("the time is not finite")
    unit = unit or next(each for size, each in _SIZES if abs(number) >= size)
    if isinstance(number, int) or unit < 1_000:
        time_us = int(number) * unit // 1_000
    else:
        time_us = round(number * (unit // 1_000))
    if not MIN_TIME_US <= time_us < MAX_TIME_US:
        raise ValueError("the time is not from 1970 to 2199")
    return time_us


def convert_numbers_to_us(numbers: Any, unit: int | None = None) -> Any:
    """Return `number_us` of an array of int64 or float64, as int64. Raises ValueError for the same."""
    size = np.abs(numbers.astype(np.float64))
    units = np.select([size >= least for least, _ in _SIZES], [each for _, each in _SIZES], 1)
    units = np.full(len(numbers), unit) if unit else units
    with np.errstate(over="ignore"):
        is_known = size * units < MAX_TIME_US * 1e3  # also refuses NaN, and what int64 can't hold
    if not is_known.all():
        raise ValueError("a time is not from 1970 to 2199")
    if numbers.dtype.kind == "f":
        numbers = np.where(units < 1_000, np.trunc(numbers), np.rint(numbers * (units // 1_000)))
        return np.where(units < 1_000, numbers // 1_000, numbers).astype(np.int64)
    return np.where(units < 1_000, numbers // 1_000, numbers * (units // 1_000))
