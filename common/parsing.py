"""The one reader of numbers that others write as text.

Python's `int` and `float` also take 1_000, digits of other scripts, nan and inf, and read thousands of digits for
minutes. A number from outside is plain ASCII: 12, -0.5, 1e-3.
"""

import csv
import math
import re
import shlex
from collections.abc import Collection
from typing import NoReturn

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


def parse_measured_number(value: object) -> float:
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


# Lists of words that a person writes in one line, as in an environment variable.


def split_words(text: str, name: str) -> list[str]:
    """Return the words between blanks. Quotes keep a word with blanks together, as in a shell.

    A backslash is literal, since names of Windows domains contain it. Raises `BadInput` that names `name`.
    """
    reader = shlex.shlex(text, posix=True)
    reader.whitespace_split = True
    reader.commenters = reader.escape = ""
    try:
        return list(reader)
    except ValueError:
        raise BadInput(name, "has an unclosed quotation mark.") from None


# Plain scalars of YAML, as YAML 1.2 reads them: what has no quotes and is no text.
#
# YAML 1.1 and 1.2 read some scalars as different values: 010 is 8 or 10, 1:30 is 90 or text, 1_000 is 1000 or text.
# They are refused with what to write instead. `yes`, `no`, `on`, `off` and dates are text.

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS = {word: flag for flag in (True, False) for word in (str(flag), str(flag).lower(), str(flag).upper())}
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]+")
_OF_BASE = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_UNDERSCORES = re.compile(r"[-+]?(?:[0-9][0-9_]*)?\.?[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?0[xb][0-9a-fA-F_]+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(?::[0-5]?[0-9])+(?:\.[0-9]*)?")
_BINARY = re.compile(r"[-+]?0b[01]+")


def read_plain_scalar(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar. Raises ValueError saying what to write instead."""
    if text in _NULL:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if _WHOLE_NUMBER.fullmatch(text):
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits.startswith("0"):
            plain = digits.lstrip("0") or "0"
            _refuse(text, f"starts with 0, which YAML 1.1 reads as octal; write {plain}")
        return int(text)
    if _OF_BASE.fullmatch(text):
        return int(text, 0)
    if _REAL.fullmatch(text):
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"must be a finite number, not {text!r}")
        return value
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"must be a finite number, not {text!r}")
    if _SEXAGESIMAL.fullmatch(text):
        _refuse(text, "is a base-60 number in YAML 1.1; write the seconds or minutes as one number")
    if _BINARY.fullmatch(text):
        _refuse(text, "is a binary number in YAML 1.1; write it in decimal digits")
    if "_" in text and _UNDERSCORES.fullmatch(text):
        _refuse(text, f"has underscores; write {text.replace('_', '')}")
    return text


def _refuse(text: str, why: str) -> NoReturn:
    raise ValueError(f"{text} {why}, or put it in quotes if it is text")


# What separates the cells of a CSV file: spreadsheets write commas, semicolons or tabs.

SEPARATORS = ",;\t|"
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


def split_header_cells(line: str, separator: str) -> list[str]:
    """Return the names of a header line, without blanks around them. Raises csv.Error."""
    rows = list(csv.reader([line], delimiter=separator, strict=True))
    return [name.strip() for name in rows[0]] if rows else []


def detect_separator(line: str, known: Collection[str] = ()) -> str:
    """Return what separates the names of a header line: what gives the most known names, then the most names.

    `known`: names in lower case. A comma where nothing speaks for another one.
    """
    best, most = ",", (0, 1)
    for separator in SEPARATORS:
        try:
            names = split_header_cells(line, separator)
        except csv.Error:
            continue
        score = (sum(name.lower() in known for name in names), len(names))
        if score > most:
            best, most = separator, score
    return best


def describe_separator(line: str) -> str:
    """Return a sentence for a file that takes commas and has others; "" for one that has commas."""
    separator = detect_separator(line)
    if separator == ",":
        return ""
    return f"; its cells are separated by {NAMES[separator]}, but the file must use commas"


def convert_decimal_comma(cell: str) -> str:
    """Return a number with a decimal comma (1,5) as others write it (1.5); any other cell as it is."""
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell.strip()) else cell


def format_one_line(text: str) -> str:
    """Return a text as one line, without line breaks and other control characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
