"""Plain scalars of YAML, as YAML 1.2 reads them: what has no quotes and is no text.

YAML 1.1 and 1.2 read some scalars as different values: 010 is 8 or 10, 1:30 is 90 or text, 1_000 is 1000 or text. They
are refused with what to write instead. `yes`, `no`, `on`, `off` and dates are text.
"""

import math
import re
from typing import NoReturn

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS = {word: flag for flag in (True, False) for word in (str(flag), str(flag).lower(), str(flag).upper())}
_WHOLE = re.compile(r"[-+]?[0-9]+")
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
    if _WHOLE.fullmatch(text):
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
