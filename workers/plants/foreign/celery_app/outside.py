"""What workers and senders of events report about themselves, bounded: text and counts from outside."""

from typing import Any

from common.checks import is_number, is_whole

MAX_NAME = 255  # the maximum length in AMQP
MAX_VALUE = 10**12


def parse_name(value: Any) -> str:
    """Return a name, or "" if the value is not a name or is too long."""
    return parse_text(value) if isinstance(value, str) and len(value) <= MAX_NAME else ""


def parse_text(value: Any) -> str:
    """Return any text as Unicode, or "" if it is not text.

    JSON can contain half of a surrogate pair, which can't be stored.
    """
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def count_of(value: Any) -> int | None:
    """Return a whole number from 0 that is a possible count."""
    return int(value) if is_whole(value, 0, MAX_VALUE) else None


def parse_seconds(value: Any) -> float | None:
    """Return a time or a duration."""
    return float(value) if is_number(value, 0, MAX_VALUE) else None
