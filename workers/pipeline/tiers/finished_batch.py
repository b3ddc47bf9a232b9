"""The measurements of finished batches of both tiers. Everything that shows them imports this module."""

from dataclasses import dataclass, field
from typing import Any

from workers.pipeline.matching.surplus import Survivors
from workers.pipeline.patterns.graph import Graph, Operator
from workers.pipeline.patterns.shedding import ShedCounts
from workers.pipeline.tiers.combining import CombinedOffset


@dataclass(frozen=True)
class ReplicaBatch:
    """One finished batch of a replica. at: monotonic seconds. response_seconds: from dispatch to result."""

    at: float
    batch: int
    events: int
    retained: int
    size_bytes: int
    seconds: float
    rules: list[dict[str, Any]]
    response_seconds: float
    shed: ShedCounts = field(default_factory=dict)


@dataclass
class PatternCount:
    """The counts of a pattern.

    types: event type → events that the pattern received. seconds: time of matching, including its state.
    suppressed: matches that were not emitted. partnerless: received events that could add to no match
    (`matching.partners`). excess: how often an open match lost branches because it had too many. forgotten_bytes: bytes
    of open matches that were dropped for lack of room. shed: event type → events that were shed. control_types:
    received events of control keys; control_events, control_matches (without
    suppressed ones): the same by group (`shedder`), empty while nothing is shed. survivors: see `matching.surplus`.
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
    excess: int = 0
    forgotten_bytes: int = 0
    survivors: Survivors = field(default_factory=Survivors)

    def add(self, other: "PatternCount") -> None:
        for name in ("matches", "suppressed", "partnerless", "excess", "forgotten_bytes", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("types", "shed", "control_types"):
            add_types(getattr(self, name), getattr(other, name))
        self.survivors.add(other.survivors)
        self.control_events = add_counts(self.control_events, other.control_events)
        self.control_matches = add_counts(self.control_matches, other.control_matches)


@dataclass
class OperatorCount:
    """The work that a task, or a batch, did for an operator.

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
        return sum(pattern.matches for pattern in self.patterns.values())

    def build(self, pattern: str) -> PatternCount:
        return self.patterns.setdefault(pattern, PatternCount())

    def add(self, other: "OperatorCount") -> None:
        self.events += other.events
        self.late += other.late
        self.seconds += other.seconds
        self.early_us = min((us for us in (self.early_us, other.early_us) if us is not None), default=None)
        for name, count in other.patterns.items():
            self.build(name).add(count)


def add_types(own: dict[str, int], others: dict[str, int]) -> None:
    """Add the counts of each event type to `own`."""
    for event_type, events in others.items():
        own[event_type] = own.get(event_type, 0) + events


def add_counts(own: list[int], others: list[int]) -> list[int]:
    """Return the sums by group; an empty list counts nothing."""
    return [a + b for a, b in zip(own, others, strict=True)] if own and others else own or others


@dataclass(frozen=True)
class InterEventBatch:
    """One finished inter-event batch. operators: the counts of each operator. worked: the same, task by task."""

    at: float
    batch: int
    combined: CombinedOffset
    operators: dict[str, OperatorCount]
    worked: tuple[OperatorCount, ...]
    seconds: float

    @property
    def alerts(self) -> int:
        return sum(operator.matches for operator in self.operators.values())

    def count_tasks(self, operator: str) -> int:
        """Return how many tasks the operator ran on."""
        return sum(count.operator == operator for count in self.worked)

    def count_inputs(self, operator: Operator, graph: Graph) -> int:
        """Return the rows that arrived at the operator with this batch.

        These are the rows of its route that are read for the first time, and those that earlier operators have emitted.
        """
        fresh = sum(blob.rows for result in self.combined.fresh for blob in result.blobs if blob.route == operator.key)
        emitted = (
            self.operators[edge.source].patterns[pattern.name].matches
            for edge in graph.edges
            if edge.target == operator.name and edge.source in self.operators
            for pattern in graph.get_operator(edge.source).patterns
            if pattern.emits == edge.type and pattern.name in self.operators[edge.source].patterns
        )
        return fresh + sum(emitted)

    def list_waits(self, behind_seconds: float) -> list[tuple[int, float]]:
        """Return the rows of each result that it read first, and how long they waited for it (s).

        behind_seconds: from the monotonic clock to that of the control server.
        """
        began = self.at - self.seconds + behind_seconds
        return [
            (sum(blob.rows for blob in result.blobs), max(0.0, began - result.published_seconds))
            for result in self.combined.fresh
            if result.published_seconds is not None
        ]

    @property
    def overhead_seconds(self) -> float:
        """Return the time of the batch besides that of its operators one after the other, each on parallel tasks.

        Operators of a level that run in parallel add up to more than they took, hence the lower bound of 0.
        """
        work_seconds = (operator.seconds / max(1, self.count_tasks(name)) for name, operator in self.operators.items())
        return max(0.0, self.seconds - sum(work_seconds))

    def compute_p95_age(self, now_seconds: float) -> tuple[float, int] | None:
        """Return the maximum age of all but the oldest 5 % of its events, and their number; None without events."""
        oldest = [operator.early_us for operator in self.operators.values() if operator.early_us is not None]
        events = max((operator.events for operator in self.operators.values()), default=0)
        return (now_seconds - min(oldest) / 1e6, events) if oldest else None
