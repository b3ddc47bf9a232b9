"""Durations, numbers, and times as a form posts them, and forms filled in again.

Errors name the field.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.utils.dateparse import parse_datetime

from common.errors import BadInput
from common.parsing import parse_decimal_number
from console.input.instant import TAKES, is_representable
from workers.steering.overrides import Expiry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ENDLESS, CUSTOM = "endless", "until"
WAS = "was-"  # prefix of a field's original value
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
    """Return a time as addresses contain it and `time_of` parses it.

    It is in UTC, to the second unless it has a fraction.
    """
    utc = moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds").replace("+00:00", "Z")
