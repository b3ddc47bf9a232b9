"""The board's record of shedding: how much in total and now, and what it costs.

Not thread-safe: the caller holds the board's lock.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from workers.documents.pipeline import RecallEstimate
from workers.pipeline.inter_event.operator_counts import OperatorCount, PatternCount
from workers.pipeline.shedding.recall import recall_of
from workers.pipeline.shedding.shed_counts import ShedCounts, add_count, limit_types
from workers.pipeline.shedding.shedder import CONTROL_GROUPS

RECALL_WINDOW_SECONDS = 120.0  # long enough that a small share of the keys has matches to estimate from


@dataclass(frozen=True)
class _Batch:
    """What one batch adds. events, matches: without control keys."""

    at: float
    pattern: str
    control_events: list[int]
    control_matches: list[int]
    events: int
    matches: int


class ShedRecord:
    """Times are the board's monotonic seconds."""

    def __init__(self, before: ShedCounts, beginnings: Mapping[str, frozenset[str]]) -> None:
        """Start from the counts of an earlier process.

        before: these counts. beginnings: pattern → the patterns at the start of its chain, of whose events its matches
        are made in the end (`traced_keys`).
        """
        self._beginnings = beginnings
        self.totals: ShedCounts = {name: dict(types) for name, types in before.items()}
        self._lately: deque[tuple[float, ShedCounts]] = deque()
        self._batches: deque[_Batch] = deque()

    def record_replica(self, at: float, shed: ShedCounts) -> None:
        """Record what replicas did not send. No pattern has seen it, and none of it has a control key."""
        self._add(at, shed)
        for name, types in shed.items():
            self._batches.append(_Batch(at, name, [], [], sum(types.values()), 0))

    def record_operators(self, at: float, operators: Iterable[OperatorCount], sheds: bool) -> None:
        """Record what a batch of operators did. sheds: whether a table was in force."""
        counts = {name: each for operator in operators for name, each in operator.patterns.items()}
        self._add(at, {name: each.shed for name, each in counts.items() if each.shed})
        if sheds:
            self._batches += [_build_batch(at, name, each) for name, each in counts.items()]

    def forget(self, now: float, window_seconds: float) -> None:
        while self._lately and self._lately[0][0] < now - window_seconds:
            self._lately.popleft()
        while self._batches and self._batches[0].at < now - RECALL_WINDOW_SECONDS:
            self._batches.popleft()

    def get_recent_counts(self, pattern: str) -> dict[str, int]:
        """Return the events shed in the window by type."""
        counts: ShedCounts = {}
        for _, shed in self._lately:
            add_count(counts, pattern, shed.get(pattern, {}))
        return counts.get(pattern, {})

    def recall(self, pattern: str) -> RecallEstimate | None:
        """Return the `Recall` of a pattern's whole matches; None while nothing is known."""
        made, given = (
            list(self._iterate_batches({pattern})),
            list(self._iterate_batches(self._beginnings.get(pattern, frozenset()))),
        )
        if not any(count.control_events for count in given):
            return None
        result = recall_of(
            _sum_by_group(count.control_matches for count in made),
            _sum_by_group(count.control_events for count in given),
            sum(count.matches for count in made),
            sum(count.events for count in given),
        )
        return None if result is None else RecallEstimate(**vars(result))

    def _iterate_batches(self, patterns: Collection[str]) -> Iterator[_Batch]:
        return (batch for batch in self._batches if batch.pattern in patterns)

    def _add(self, at: float, shed: ShedCounts) -> None:
        if shed:
            self._lately.append((at, shed))
            for name, types in shed.items():
                add_count(self.totals, name, types)
                self.totals[name] = limit_types(self.totals[name])


def _build_batch(at: float, name: str, count: PatternCount) -> _Batch:
    offered = sum(count.types.values()) + sum(count.shed.values())
    events, matches = offered - sum(count.control_events), count.matches - sum(count.control_matches)
    return _Batch(at, name, count.control_events, count.control_matches, events, matches)


def _sum_by_group(groups: Iterable[list[int]]) -> list[int]:
    """Return the sums by group; an empty list counts nothing."""
    sums = [0] * CONTROL_GROUPS
    for group in groups:
        sums = [a + b for a, b in zip(sums, group, strict=True)] if group else sums
    return sums
