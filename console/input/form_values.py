"""Values as a form or an address has them: numbers, times, IDs of rows, and digests of what was shown.

Errors name the field.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from django.utils.dateparse import parse_datetime
from pydantic import Field

from common import parsing
from common.errors import BadInput
from common.parsing import parse_decimal_number
from workers.steering.overrides import Expiry

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
TAKES = "must be a time from 1970 to 2199, such as 2026-01-31T12:00:00Z."


def is_representable(moment: datetime) -> bool:
    """Return whether the time is accepted; without a zone it is taken as UTC."""
    return EARLIEST <= (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) < LATEST


Id = Annotated[int, Field(ge=0, lt=2**63)]


def parse_row_id(text: str) -> int | None:
    """Return the ID in a text; None if no database has such an ID."""
    return parsing.parse_digits(text)


def digest_of(shown: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def check_unchanged(name: str, shown: Mapping[str, Any], digest: str) -> None:
    """Raise `BadInput` if the thing is not as it was shown. digest: "" if it was not shown."""
    if digest and digest != digest_of(shown):
        raise BadInput("digest", f"{name} was changed in the meantime. Reload the page and repeat your change.")


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ENDLESS, CUSTOM = "endless", "until"
WAS = "was-"  # prefix of a field's original value
LINE = re.compile(r"line (\d+)\)?\.?$")
FLAGS = {"true": True, "false": False}
Form = TypeVar("Form", bound="DataclassInstance")


def fill_form(form: type[Form], values: Mapping[str, Any]) -> Form:
    """Return the fields of a form with the given values; others stay empty."""
    return form(**{field.name: values.get(field.name, "") for field in fields(form)})


def parse_number(text: str, field: str) -> int | float:
    """Return a finite number; an integer stays an integer."""
    value = parse_decimal_number(text)
    if value is None:
        raise BadInput(field, f"must be a number, not {text[:40]!r}.")
    if not math.isfinite(value):
        raise BadInput(field, "must be a finite number.")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def parse_named_numbers(text: str, field: str) -> dict[str, int | float]:
    """Return the numbers by name of a text such as `orders=2, clicks=0.001`; an empty text has none."""
    numbers: dict[str, int | float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = (word.strip() for word in part.rpartition("="))
        if not name or not equals or name in numbers:
            raise BadInput(field, f"must be NAME=NUMBER, separated by commas and each name once, not {part[:40]!r}.")
        numbers[name] = parse_number(number, field)
    return numbers


def parse_whole_number(text: str, field: str) -> int:
    value = parse_number(text, field)
    if not isinstance(value, int):
        raise BadInput(field, f"must be a whole number, not {text[:40]!r}.")
    return value


def is_untouched(posted: Mapping[str, str], field: str) -> bool:
    """Return whether a field still has its original value, so that it requests no change.

    Other people may have changed the value since. A program sends no `was-FIELD`, so its values are all requests.
    """
    was = posted.get(WAS + field)
    return was is not None and _read(posted.get(field, "")) == _read(was)


def _read(text: str) -> float | str:
    """Return the number in any notation, or the text if it is no number."""
    value = parse_decimal_number(text)
    return text.strip() if value is None else value


def parse_any_value(text: str, field: str) -> int | float | bool | str:
    """Parse a value of undeclared kind: a number, true or false, or else text."""
    words = text.strip()
    try:
        return FLAGS[words] if words in FLAGS else parse_number(words, field)
    except BadInput:
        return words


def parse_minutes(posted: Mapping[str, str]) -> int | float | None:
    """Return `minutes`, or None if absent."""
    text = posted.get("minutes", "").strip()
    return parse_number(text, "minutes") if text and text != CUSTOM else None


def parse_expiry(posted: Mapping[str, str]) -> Expiry:
    """Return the expiry from `minutes`, else from `expires_at`.

    `minutes` is a number, or "endless". `expires_at` is ISO 8601, and UTC without a zone.
    """
    if posted.get("minutes", "").strip() == ENDLESS:
        return Expiry(endless=True)
    text = posted.get("expires_at", "").strip()
    return Expiry(minutes=parse_minutes(posted), expires_at=parse_time(text, "expires_at") if text else None)


def parse_optional_expiry(posted: Mapping[str, str]) -> Expiry:
    """Return the expiry; without minutes and expires_at, there is none."""
    given = posted.get("minutes", "").strip() or posted.get("expires_at", "").strip()
    return parse_expiry(posted) if given else Expiry(endless=True)


def parse_time(text: str, field: str) -> datetime:
    """Return a time with its zone."""
    try:
        parsed = parse_datetime(text)
    except ValueError:
        parsed = None
    if parsed is None:
        raise BadInput(field, f"must be a time such as 2026-01-31T12:00:00Z, not {text[:40]!r}.")
    if not is_representable(parsed):
        raise BadInput(field, TAKES)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def format_iso_time(moment: datetime) -> str:
    """Return a time as addresses contain it and `time_of` parses it: UTC, to the second unless it has a fraction."""
    utc = moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds").replace("+00:00", "Z")


def find_line_number(message: str) -> int | None:
    """Return the line number at the end of a message; None if there is none. Errors of YAML have one."""
    match = LINE.search(message)
    return int(match[1]) if match else None


def find_wrong_line(errors: Mapping[str, Sequence[str]]) -> int | None:
    """Return the line number in the errors of a form."""
    return find_line_number(" ".join(message for messages in errors.values() for message in messages))
