"""The assignments of replicas: ranges of containers, cut by the replicas' shares. Pure arithmetic.

A dispatch cuts what it admits into one contiguous piece for each replica, in proportion to its share. Blocks stay
whole, and a small dispatch goes to one replica only; the difference is carried over to the next dispatch, so that the
shares are right on average for any sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.cursor import BEGINNING, VERSION, Cursor, Entry, check_version

MIN_PIECE_EVENTS = 2_000  # fewer events are not worth a batch of their own
MAX_OWED_EVENTS = 200_000.0


class AssignedRange(NamedTuple):
    """Entries of one container (`queue/node`), after one id and up to and including another."""

    container: str
    after: str
    through: str
    events: int


@dataclass(frozen=True)
class Assignment:
    """The piece of one dispatch that one replica processes.

    watermark_us: the settled event time while this piece is not processed, which is the watermark of the previous
    dispatch. at_seconds: when it was dispatched (seconds since 1970).
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
        """Build from a stored document. Raises `BadInput` if it is of another version."""
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
    """Divide the admitted entries, and return each replica's assignment and the events now owed to it.

    Every admitted entry is in exactly one assignment. shares: replica → share, at least one of them above 0.
    """
    waiting = [part for name, entries in sorted(admitted.items()) for part in _chain(start, name, entries)]
    left = sum(part.events for part in waiting)
    whole = sum(shares.values())
    targets = {name: share / whole * left + start.owed.get(name, 0.0) for name, share in shares.items() if share > 0}
    given: dict[str, Assignment] = {}
    place = 0
    order = sorted(targets, key=lambda name: (-targets[name], name))
    for name in order:
        first, taken = place, 0
        last = name == order[-1]
        while place < len(waiting) and (last or left < MIN_PIECE_EVENTS or taken < targets[name]):
            taken, left = taken + waiting[place].events, left - waiting[place].events
            place += 1
        targets[name] = max(-MAX_OWED_EVENTS, min(MAX_OWED_EVENTS, targets[name] - taken))
        if place > first:  # unreadable entries may count no events
            parts = _join_ranges(waiting[first:place])
            given[name] = Assignment(end.tick, parts, start.watermark_us, end.controls, now_seconds)
    return given, targets


def _chain(start: Cursor, container: str, entries: tuple[Entry, ...]) -> list[AssignedRange]:
    """Return each entry as a range of its own that starts where the previous one ends."""
    after = [start.ids.get(container, BEGINNING), *(entry[0] for entry in entries)]
    return [
        AssignedRange(container, before, through, events)
        for before, (through, events, _) in zip(after, entries, strict=False)
    ]


def _join_ranges(parts: list[AssignedRange]) -> tuple[AssignedRange, ...]:
    """Join consecutive ranges of a container."""
    joined: list[AssignedRange] = []
    for part in parts:
        if joined and joined[-1].container == part.container:
            before = joined.pop()
            part = AssignedRange(part.container, before.after, part.through, before.events + part.events)
        joined.append(part)
    return tuple(joined)
