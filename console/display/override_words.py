"""Overrides in words: their expiry, and what they replace."""

from collections.abc import Iterable, Mapping

from common import checks
from workers.models import Override
from workers.steering.scope import format_time


def describe_end(override: Override) -> str:
    """Return when an override reverts, as the end of a sentence."""
    end = override.expires_at
    return f"until {format_time(end, override.created_at)}" if end else "without expiry"


def describe_replaced_overrides(overrides: Iterable[Override]) -> str:
    """Return what newer overrides replace, in words."""
    rows = [row for override in overrides for row in override.replaces]
    words = [
        f"{row['owner']}'s {format_short_value(row['value'])} on {row['scope']}{' (ended)' if row['ended'] else ''}"
        for row in rows
    ]
    return f" Replaces {', '.join(words)}." if words else ""


def format_override_title(override: Override) -> str:
    """Return its name as the start of a sentence."""
    return override.name.replace("_", " ").capitalize()


def describe_ended(ended: Override, again: Override | None = None) -> str:
    """Return that an override has ended, and what is in force in its place."""
    if again is not None:
        value, owner = format_short_value(again.value), again.owner.get_username()
        return f"{format_override_title(ended)} is {value} again, set by {owner} {describe_end(again)}."
    back = "" if ended.instead_of is None else f": back to {format_short_value(ended.instead_of)}"
    return f"{format_override_title(ended)} ended{back}."


def format_short_value(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_short_value(item)}" for name, item in value.items()) or "nothing"
    if checks.FLAG.accepts(value):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) and abs(value) < 1e6 else str(value)
