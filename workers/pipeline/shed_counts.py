"""How much was shed: pattern → type → events. Counted where an event ends, so that it is counted once."""

import json

ShedCounts = dict[str, dict[str, int]]


def counted(counts: ShedCounts, pattern: str, types: dict[str, int]) -> None:
    """Add what a pattern does without."""
    if not types:
        return
    of_pattern = counts.setdefault(pattern, {})
    for event_type, events in types.items():
        of_pattern[event_type] = of_pattern.get(event_type, 0) + events


def together(texts: list[str]) -> ShedCounts:
    """The counts of all tasks."""
    found: ShedCounts = {}
    for text in texts:
        for pattern, types in json.loads(text or "{}").items():
            counted(found, pattern, types)
    return found


def to_text(counts: ShedCounts) -> str:
    return json.dumps(counts) if counts else ""
