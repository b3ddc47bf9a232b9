"""The one reader of numbers that others write as text.

Python's `int` and `float` also take 1_000, digits of other scripts, nan and inf, and read thousands of digits for
minutes. A number from outside is plain ASCII: 12, -0.5, 1e-3.
"""

import math
import re
from typing import Any

from common.errors import BadInput

MAX_LENGTH = 400  # of the text: float(2**1000) written out has 302 digits
MAX_DIGITS = 18
MAX_DIGITS_OF_64_BITS = 19
MAX_SHOWN = 40
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def parse_digits(text: str, most: int = MAX_DIGITS) -> int | None:
    """Return the number that at most so many ASCII digits form; None for any other text.

    64 bits hold every number of 18 digits; Python refuses to read thousands of them, and takes digits of other scripts
    for digits.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= most else None


def parse_whole_number(text: str, most: int = MAX_DIGITS) -> int | None:
    """Return the whole number that a text writes, with a sign or without; None for any other text."""
    plain = text.strip()
    return int(plain) if _WHOLE.fullmatch(plain) and len(plain.lstrip("+-")) <= most else None


def parse_decimal_number(text: str) -> float | None:
    """Return the number in plain digits; None for any other text, such as nan, inf, and 1_000."""
    plain = text.strip()
    return float(plain) if len(plain) <= MAX_LENGTH and _DECIMAL.fullmatch(plain) else None


def parse_any_number(text: str) -> int | float | None:
    """Return a whole number as it is written, another finite one as a float, and None for other text."""
    whole = parse_whole_number(text, MAX_DIGITS_OF_64_BITS)
    value = parse_decimal_number(text) if whole is None else whole
    return value if value is not None and math.isfinite(value) else None


def read_number(text: str, field: str) -> float:
    """Return the finite number that a text writes. Raises BadInput naming the field and the text."""
    value = parse_decimal_number(text)
    if value is None or not math.isfinite(value):
        raise BadInput(field, f"must be a number such as 12 or 0.5, not {text[:MAX_SHOWN]!r}.")
    return value


def parse_measured_number(value: Any) -> float:
    """Return a number as other systems report one: a number, or text with NaN and +Inf among it.

    Raises ValueError for other text, TypeError for what is neither.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{type(value).__name__} is not a number")
    if not isinstance(value, str):
        return float(value)
    plain = value.strip()
    if plain.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(plain)
    number = parse_decimal_number(plain)
    if number is None:
        raise ValueError(f"{value[:MAX_SHOWN]!r} is not a number")
    return number


def parse_option_number(text: str) -> float:
    """Return the number of a command's option, for argparse, which names the option and the text.

    The command checks its bounds, which nan and inf are not within.
    """
    return parse_measured_number(text)


def parse_option_whole_number(text: str) -> int:
    """Return the whole number of a command's option, for argparse."""
    value = parse_whole_number(text)
    if value is None:
        raise ValueError
    return value


# argparse says "invalid NAME value".
parse_option_number.__name__, parse_option_whole_number.__name__ = "number", "whole number"
