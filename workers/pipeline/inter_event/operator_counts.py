"""Counts of an operator and its patterns.

The module is lightweight, since everything that shows them imports it.
"""

from dataclasses import dataclass, field


@dataclass
class PatternCount:
    """The counts of a pattern.

    types: event type → events that the pattern received. seconds: time of matching, including its state.
    suppressed: matches that were not emitted. partnerless: received events that could add to no match
    (`matching.partners`). forgotten_bytes: bytes of open matches that were dropped for lack of room. shed: event type →
    events that were shed. control_types: received events of control keys; control_events, control_matches (without
    suppressed ones): the same by group (`shedder`), empty while nothing is shed.
    """

    types: dict[str, int] = field(default_factory=dict)
    matches: int = 0
    suppressed: int = 0
    seconds: float = 0.0
    shed: dict[str, int] = field(default_factory=dict)
    control_types: dict[str, int] = field(default_factory=dict)
    control_events: list[int] = field(default_factory=list)
    control_matches: list[int] = field(default_factory=list)
    partnerless: int = 0
    forgotten_bytes: int = 0

    def add(self, other: "PatternCount") -> None:
        self.matches, self.suppressed = self.matches + other.matches, self.suppressed + other.suppressed
        self.partnerless += other.partnerless
        self.forgotten_bytes += other.forgotten_bytes
        self.seconds += other.seconds
        for name in ("types", "shed", "control_types"):
            add_types(getattr(self, name), getattr(other, name))
        self.control_events = add_counts(self.control_events, other.control_events)
        self.control_matches = add_counts(self.control_matches, other.control_matches)


@dataclass
class OperatorCount:
    """What a task, or a batch, did for an operator.

    events: due rows. late: rows that arrived too late. task: the number of the task, from 1. early_us: all but 5 % of
    its due rows are later.
    """

    operator: str
    task: int = 1
    events: int = 0
    late: int = 0
    seconds: float = 0.0
    early_us: int | None = None
    patterns: dict[str, PatternCount] = field(default_factory=dict)

    @property
    def matches(self) -> int:
        """Return the number of complex events that it emitted."""
        return sum(pattern.matches for pattern in self.patterns.values())

    def build(self, pattern: str) -> PatternCount:
        return self.patterns.setdefault(pattern, PatternCount())

    def add(self, other: "OperatorCount") -> None:
        self.events += other.events
        self.late += other.late
        self.seconds += other.seconds
        known = [value for value in (self.early_us, other.early_us) if value is not None]
        self.early_us = min(known, default=None)
        for name, count in other.patterns.items():
            self.build(name).add(count)


def add_types(own: dict[str, int], others: dict[str, int]) -> None:
    """Add the counts of each event type to `own`."""
    for event_type, events in others.items():
        own[event_type] = own.get(event_type, 0) + events


def add_counts(own: list[int], others: list[int]) -> list[int]:
    """Return the sums by group; an empty list counts nothing."""
    return [a + b for a, b in zip(own, others, strict=True)] if own and others else own or others
