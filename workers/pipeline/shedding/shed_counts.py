"""How much was shed: pattern → type → events.

An event is counted where it is dropped, so that it is counted once.
"""

import json
from collections.abc import Collection

MAX_TYPES = 32  # types counted by name for one pattern, besides those that it names itself
MAX_NAME = 80  # characters of a type that the pattern does not name: the snapshot of every page contains it
OTHERS = "(other types)"
ShedCounts = dict[str, dict[str, int]]


def limit_types(types: dict[str, int], named: Collection[str] = ()) -> dict[str, int]:
    """Return the named types and the most frequent others, with all the rest as one.

    Producers may invent any number of types, each as long as an event.
    """
    types = _shorten_names(types, named)
    others = {each: number for each, number in types.items() if each not in named and each != OTHERS}
    if len(others) <= MAX_TYPES:
        return types
    frequent = sorted(others, key=lambda event_type: -others[event_type])[:MAX_TYPES]
    limited = {each: number for each, number in types.items() if each in named} | {
        event_type: others[event_type] for event_type in frequent
    }
    limited[OTHERS] = sum(types.values()) - sum(limited.values())
    return limited


def _shorten_names(types: dict[str, int], named: Collection[str]) -> dict[str, int]:
    """Return the types with the names of those that are not `named` cut to MAX_NAME characters."""
    shortened: dict[str, int] = {}
    for each, number in types.items():
        name = each if each in named or len(each) <= MAX_NAME else f"{each[: MAX_NAME - 1]}…"
        shortened[name] = shortened.get(name, 0) + number
    return shortened


def add_count(counts: ShedCounts, pattern: str, types: dict[str, int]) -> None:
    """Add the events that a pattern sheds."""
    if not types:
        return
    of_pattern = counts.setdefault(pattern, {})
    for event_type, events in types.items():
        of_pattern[event_type] = of_pattern.get(event_type, 0) + events


def sum_task_counts(texts: list[str]) -> ShedCounts:
    """Return the sum of the counts of all tasks."""
    sums: ShedCounts = {}
    for text in texts:
        for pattern, types in json.loads(text or "{}").items():
            add_count(sums, pattern, types)
    return sums


def to_text(counts: ShedCounts) -> str:
    return json.dumps(counts) if counts else ""
