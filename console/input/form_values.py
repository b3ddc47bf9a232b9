"""How long, and how much: numbers and times as a form posts them, every error naming its field; and a form
filled in again.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.utils.dateparse import parse_datetime

from console.input.instant import TAKES, is_representable
from queues.errors import BadInput
from queues.text.numbers import decimal_number
from workers.steering.expiry import Expiry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ENDLESS, CUSTOM = "endless", "until"
WAS = "was-"  # before a field's name: what its page had filled it with
FLAGS = {"true": True, "false": False}
Form = TypeVar("Form", bound="DataclassInstance")


def filled_form(form: type[Form], values: Mapping[str, Any]) -> Form:
    """The fields of a form with what is given of them; what is not stays empty."""
    return form(**{each.name: values.get(each.name, "") for each in fields(form)})


def number_of(text: str, field: str) -> int | float:
    """A finite number; a whole one stays whole."""
    value = decimal_number(text)
    if value is None:
        raise BadInput(field, f"takes a number, not {text[:40]!r}.")
    if not math.isfinite(value):
        raise BadInput(field, "takes a finite number.")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def is_untouched(posted: Mapping[str, str], field: str) -> bool:
    """Whether a field says what its page had filled it with: then it asks for nothing, whatever somebody else
    has put in force since. A program says nothing of `was-FIELD`: what it posts it asks for.
    """
    was = posted.get(WAS + field)
    return was is not None and _read(posted.get(field, "")) == _read(was)


def _read(text: str) -> float | str:
    """The number, however it is written; else the words."""
    value = decimal_number(text)
    return text.strip() if value is None else value


def any_value(text: str, field: str) -> int | float | bool | str:
    """What no declaration says the kind of: a number where it reads as one, true or false, else words."""
    words = text.strip()
    try:
        return FLAGS[words] if words in FLAGS else number_of(words, field)
    except BadInput:
        return words


def minutes_of(posted: Mapping[str, str]) -> int | float | None:
    """`minutes`, or None when it is not there."""
    text = posted.get("minutes", "").strip()
    return number_of(text, "minutes") if text and text != CUSTOM else None


def expiry_of(posted: Mapping[str, str]) -> Expiry:
    """`minutes` (a number, or "endless"), else `expires_at` (ISO 8601; UTC when it names no zone)."""
    if posted.get("minutes", "").strip() == ENDLESS:
        return Expiry(endless=True)
    text = posted.get("expires_at", "").strip()
    return Expiry(
        minutes=minutes_of(posted),
        expires_at=time_of(text, "expires_at") if text else None,
    )


def time_of(text: str, field: str) -> datetime:
    """A time with its zone."""
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise BadInput(field, f"takes a time such as 2026-01-31T12:00:00Z, not {text[:40]!r}.")
    if not is_representable(found):
        raise BadInput(field, TAKES)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def iso(moment: datetime) -> str:
    """A time as addresses hold it, and `time_of` reads it: UTC, to the second unless it has a fraction."""
    utc = moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds").replace("+00:00", "Z")
