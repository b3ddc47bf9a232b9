"""What the fields of a declaration take. Each gives the value, or raises BadInput naming where it stands."""

import math
import re
from collections.abc import Mapping
from typing import Any

from queues.errors import BadInput


def mapping(document: Any, where: str, keys: tuple[str, ...], required: tuple[str, ...]) -> None:
    if not isinstance(document, Mapping):
        raise BadInput(where, f"takes {', '.join(keys)}")
    for key in document:
        if key not in keys:
            raise BadInput(f"{where}.{key}", f"is not known; known are {', '.join(keys)}")
    for key in required:
        if key not in document:
            raise BadInput(f"{where}.{key}", "is missing")


def items(value: Any, where: str, least: int = 1) -> list:
    if not isinstance(value, list) or len(value) < least:
        raise BadInput(where, "takes a list" + (" of at least one" if least else ""))
    return value


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInput(where, f"takes a text, not {value!r}")
    return value


def name(value: Any, where: str, form: re.Pattern) -> str:
    if not isinstance(value, str) or not form.match(value):
        raise BadInput(where, f"takes a name (a lower-case letter, then letters, digits or -), not {value!r}")
    return value


def seconds(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= 86_400:
        raise BadInput(where, f"takes seconds from 0 to 86400, not {value!r}")
    return float(value)


def microseconds(value: Any, where: str) -> int:
    return round(seconds(value, where) * 1_000_000)


def distinct(names: list[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise BadInput(where, f"{name!r} is given twice")
