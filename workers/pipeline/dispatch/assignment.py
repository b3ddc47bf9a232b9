"""What a replica is given to work: ranges of containers, cut by the replicas' shares. Pure arithmetic.

A dispatch cuts what it admits into one contiguous piece for each replica, as large as its share; what a piece
has too little or too much (blocks stay whole, and a small dispatch goes to one replica only) is owed to the
next dispatch, so that shares hold on average whatever the sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.cursor import BEGINNING, VERSION, Cursor, Entry, check_version

LEAST_PIECE_EVENTS = 2_000  # below it a batch of its own costs more than it gains
MOST_OWED_EVENTS = 200_000.0


class AssignedRange(NamedTuple):
    """Entries of one container (`queue/node`), after one id and through another."""

    container: str
    after: str
    through: str
    events: int


@dataclass(frozen=True)
class Assignment:
    """One replica's piece of one dispatch. watermark_us: how far event time is settled as long as this piece
    is not worked: the watermark of the dispatch before. at_seconds: when it was dispatched (1970).
    """

    tick: int
    parts: tuple[AssignedRange, ...]
    watermark_us: int | None
    controls: Controls
    at_seconds: float = 0.0

    @property
    def events(self) -> int:
        return sum(part.events for part in self.parts)

    def to_document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "tick": self.tick,
            "parts": [list(part) for part in self.parts],
            "watermark_us": self.watermark_us,
            "controls": self.controls.to_document(),
            "at_seconds": self.at_seconds,
        }

    @classmethod
    def from_document(cls, document: Any) -> "Assignment":
        """Raises BadInput when it is not of this version."""
        check_version(document, "assignment")
        parts = tuple(AssignedRange(*part) for part in document["parts"])
        controls = Controls().apply_changes(document["controls"])
        return cls(document["tick"], parts, document["watermark_us"], controls, document["at_seconds"])


def divide(
    start: Cursor,
    end: Cursor,
    admitted: Mapping[str, tuple[Entry, ...]],
    shares: Mapping[str, float],
    now_seconds: float,
) -> tuple[dict[str, Assignment], dict[str, float]]:
    """(replica → its assignment, what each replica is owed now). shares: replica → share, at least one
    above 0.

    Every admitted entry is in exactly one assignment.
    """
    waiting = [part for name, entries in sorted(admitted.items()) for part in _chain(start, name, entries)]
    left = sum(part.events for part in waiting)
    whole = sum(shares.values())
    targets = {
        name: share / whole * left + start.owed.get(name, 0.0) for name, share in shares.items() if share > 0
    }
    given: dict[str, Assignment] = {}
    place = 0
    order = sorted(targets, key=lambda name: (-targets[name], name))
    for name in order:
        first, taken = place, 0
        last = name == order[-1]
        while place < len(waiting) and (last or left < LEAST_PIECE_EVENTS or taken < targets[name]):
            taken, left = taken + waiting[place].events, left - waiting[place].events
            place += 1
        targets[name] = max(-MOST_OWED_EVENTS, min(MOST_OWED_EVENTS, targets[name] - taken))
        if place > first:  # of events that can't be read there may be none to count
            parts = _join_ranges(waiting[first:place])
            given[name] = Assignment(end.tick, parts, start.watermark_us, end.controls, now_seconds)
    return given, targets


def _chain(start: Cursor, container: str, entries: tuple[Entry, ...]) -> list[AssignedRange]:
    """Each entry as a range of its own, beginning where the one before ends."""
    after = [start.ids.get(container, BEGINNING), *(entry[0] for entry in entries)]
    return [
        AssignedRange(container, before, through, events)
        for before, (through, events, _) in zip(after, entries, strict=False)
    ]


def _join_ranges(parts: list[AssignedRange]) -> tuple[AssignedRange, ...]:
    """Ranges that follow one another in a container, as one."""
    joined: list[AssignedRange] = []
    for part in parts:
        if joined and joined[-1].container == part.container:
            before = joined.pop()
            part = AssignedRange(part.container, before.after, part.through, before.events + part.events)
        joined.append(part)
    return tuple(joined)
