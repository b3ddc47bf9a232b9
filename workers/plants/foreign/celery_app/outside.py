"""What workers and whoever sends events say of themselves, bounded: text and counts from outside."""

from typing import Any

from queues.checks import is_number, is_whole

LONGEST_NAME = 255  # as AMQP takes it
MOST = 10**12


def name_of(value: Any) -> str:
    """A name; "" for what is none, or too long for one."""
    return text_of(value) if isinstance(value, str) and len(value) <= LONGEST_NAME else ""


def text_of(value: Any) -> str:
    """Any text, as Unicode; "" for no text. JSON can hold half of a surrogate pair, which can't be stored."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def count_of(value: Any) -> int | None:
    """A whole number from 0 that may be a count."""
    return int(value) if is_whole(value, 0, MOST) else None


def seconds_of(value: Any) -> float | None:
    """A time, or a span of it."""
    return float(value) if is_number(value, 0, MOST) else None
