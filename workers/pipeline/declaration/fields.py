"""What the fields of a declaration take. Each gives the value, or raises BadInput naming where it stands."""

import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from queues.errors import BadInput, Forbidden

MOST_ITEMS = 256
MOST_CHARACTERS = 200
MOST_SHOWN = 80


def mapping(document: Any, where: str, keys: tuple[str, ...], required: tuple[str, ...]) -> None:
    if not isinstance(document, Mapping):
        raise BadInput(where, f"takes {', '.join(keys)}")
    for key in document:
        if key not in keys:
            raise BadInput(f"{where}.{str(key)[:MOST_SHOWN]}", f"is not known; known are {', '.join(keys)}")
    for key in required:
        if key not in document:
            raise BadInput(f"{where}.{key}", "is missing")


def items(value: Any, where: str, least: int = 1, most: int = MOST_ITEMS) -> list[Any]:
    if not isinstance(value, list) or len(value) < least:
        raise BadInput(where, "takes a list" + (" of at least one" if least else ""))
    if len(value) > most:
        raise Forbidden(where, f"takes at most {most}, not {len(value)}")
    return value


def pairs(value: Any, where: str, what: str, most: int) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise BadInput(where, f"takes {what} pairs")
    if len(value) > most:
        raise Forbidden(where, f"takes at most {most}, not {len(value)}")
    return value


def text(value: Any, where: str, most: int = MOST_CHARACTERS) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInput(where, f"takes a text, not {shown(value)}")
    if len(value) > most:
        raise Forbidden(where, f"takes at most {most} characters, not {len(value)}")
    return value


def shown(value: Any) -> str:
    """What was given, short enough for a sentence."""
    told = reprlib.repr(value)
    return told if len(told) <= MOST_SHOWN else f"{told[:MOST_SHOWN]}…"


def name(value: Any, where: str, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.match(value):
        raise BadInput(where, f"takes a name (a letter, then letters, digits, - or _), not {shown(value)}")
    return value


def seconds(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= 86_400:
        raise BadInput(where, f"takes seconds from 0 to 86400, not {shown(value)}")
    return float(value)


def microseconds(value: Any, where: str) -> int:
    return round(seconds(value, where) * 1_000_000)


def distinct(names: list[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(where, f"{name!r} is given twice")
        seen.add(name)
