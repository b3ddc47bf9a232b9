"""Checks of the fields of a declaration.

Each returns the value, or raises `BadInput` that names its position.
"""

import re
from collections.abc import Mapping
from typing import Any

from common import checks
from common.errors import BadInput

MAX_ITEMS = 256
MAX_CHARACTERS = 200


def check_mapping(document: object, where: str, keys: tuple[str, ...], required: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise BadInput(where, f"must be an object with the fields {', '.join(keys)}")
    checks.refuse_unknown(document, keys, where, message="is unknown; known names: {known}")
    for key in required:
        if key not in document:
            raise BadInput(f"{where}.{key}", "is missing")
    return document


def validate_items(value: object, where: str, least: int = 1, most: int = MAX_ITEMS) -> list[Any]:
    if not isinstance(value, list) or len(value) < least:
        raise BadInput(where, "must be a list" + (" of at least one item" if least else ""))
    checks.refuse_longer(value, most, where)
    return value


def validate_pairs(value: object, where: str, what: str, most: int) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise BadInput(where, f"must be an object of {what} pairs")
    checks.refuse_longer(value, most, where)
    return value


def validate_text(value: object, where: str, most: int = MAX_CHARACTERS) -> str:
    checks.accept_text(blank=False).validate(value, where)
    text = str(value)
    checks.refuse_longer(text, most, where, " characters")
    return text


def validate_name(value: object, where: str, form: re.Pattern[str]) -> str:
    return str(
        checks.accept_matching_text(form, "a name (a letter, then letters, digits, -, or _)").validate(value, where)
    )


def validate_seconds(value: object, where: str) -> float:
    return float(checks.accept_number(0, 86_400, "a number of seconds").validate(value, where))


def convert_to_microseconds(value: object, where: str) -> int:
    return round(validate_seconds(value, where) * 1_000_000)


def check_distinct_names(names: list[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(where, f"{name!r} is used twice; names must be unique")
        seen.add(name)
