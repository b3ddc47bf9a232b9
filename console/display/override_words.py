"""Overrides in words: their expiry, and what they replace."""

from collections.abc import Iterable, Mapping
from typing import Any

from queues import checks
from workers.models import Override
from workers.steering.expiry import time_words


def describe_end(override: Override) -> str:
    """Return when an override reverts, as the end of a sentence."""
    end = override.expires_at
    return f"until {time_words(end, override.created_at)}" if end else "without expiry"


def instead_words(overrides: Iterable[Override]) -> str:
    """Return what newer overrides replace, in words."""
    rows = [row for override in overrides for row in override.replaces]
    words = [
        f"{row['owner']}'s {short(row['value'])} on {row['scope']}{' (ended)' if row['ended'] else ''}"
        for row in rows
    ]
    return f" Replaces {', '.join(words)}." if words else ""


def title_of(override: Override) -> str:
    """Return its name as the start of a sentence."""
    return override.name.replace("_", " ").capitalize()


def describe_ended(ended: Override, again: Override | None = None) -> str:
    """Return that an override has ended, and what is in force in its place."""
    if again is not None:
        value, owner = short(again.value), again.owner.get_username()
        return f"{title_of(ended)} is {value} again, set by {owner} {describe_end(again)}."
    back = "" if ended.instead_of is None else f": back to {short(ended.instead_of)}"
    return f"{title_of(ended)} ended{back}."


def short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {short(each)}" for name, each in value.items()) or "nothing"
    if checks.FLAG.accepts(value):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) and abs(value) < 1e6 else str(value)
