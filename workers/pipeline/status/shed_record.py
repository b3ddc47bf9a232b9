"""The board's record of shedding: how much in total and now, and what it costs.

The cost is estimated at run time from the control keys, whose matches are all found.

    recall = (n_o / E_o) / (n_s / E_s)

n: matches, E: events of use that were offered, s: of the control keys, o: of all others. The interval treats matches as
Poisson: given n_s + n_o, n_o is binomial (Clopper and Pearson's exact interval). Keys differ, so matches come in
clumps. The clumping is measured in the groups in which the control keys are counted (random groups; the variance of n_g
- n_s E_g / E_s over the Poisson variance), and the counts are reduced by it.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import scipy

from workers.documents.pipeline import RecallEstimate
from workers.pipeline.patterns.shedding import CONTROL_GROUPS, ShedCounts, add_count, limit_types
from workers.pipeline.tiers.finished_batch import OperatorCount

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Recall:
    """An estimate and its interval, as shares from 0. high may be None: no bound. matches: matches of control keys."""

    estimate: float
    low: float
    high: float | None
    matches: int


def recall_of(
    control_matches: Sequence[int], control_events: Sequence[int], matches: int, events: int
) -> Recall | None:
    """Return the recall, or None if there is no basis for an estimate.

    `control_*`: per group of control keys; the others: of all other keys. An estimate above 1 is chance, and
    shown as 1.
    """
    of_control, offered = sum(control_matches), sum(control_events)
    if not of_control or not offered or not events:
        return None
    odds = events / offered  # number of matches of others per match of a control key, if none is lost
    clumps = compute_clumping(control_matches, control_events)
    # Bounds of the share of the other keys in all matches, and from them of the ratio of both match rates.
    counted, others, tail = of_control / clumps, matches / clumps, (1 - CONFIDENCE) / 2
    low = float(scipy.special.betaincinv(others, counted + 1, tail)) if others else 0.0
    high = float(scipy.special.betaincinv(others + 1, counted, 1 - tail))
    return Recall(
        min(1.0, matches / (of_control * odds)),
        min(1.0, low / (1 - low) / odds),
        min(1.0, high / (1 - high) / odds) if high < 1 else None,
        of_control,
    )


def compute_clumping(matches: Sequence[int], events: Sequence[int]) -> float:
    """Return the ratio of the variance between groups to the Poisson variance; at least 1."""
    whole, offered = sum(matches), sum(events)
    groups = [(n, e) for n, e in zip(matches, events, strict=True) if e]
    if len(groups) < 2:
        return 1.0
    excess = sum((n - whole * e / offered) ** 2 / (whole * e / offered) for n, e in groups)
    return max(1.0, excess / (len(groups) - 1))


RECALL_WINDOW_SECONDS = 120.0  # long enough that a small share of the keys has matches to estimate from


@dataclass(frozen=True)
class _Batch:
    """The counts that one batch adds. events, matches: without control keys."""

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
        counts = {name: pattern for operator in operators for name, pattern in operator.patterns.items()}
        self._add(at, {name: pattern.shed for name, pattern in counts.items() if pattern.shed})
        for name, pattern in counts.items() if sheds else ():
            offered = sum(pattern.types.values()) + sum(pattern.shed.values())
            events, matches = offered - sum(pattern.control_events), pattern.matches - sum(pattern.control_matches)
            self._batches.append(_Batch(at, name, pattern.control_events, pattern.control_matches, events, matches))

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
        beginnings = self._beginnings.get(pattern, frozenset())
        made = [batch for batch in self._batches if batch.pattern == pattern]
        given = [batch for batch in self._batches if batch.pattern in beginnings]
        if not any(count.control_events for count in given):
            return None
        result = recall_of(
            _sum_by_group(count.control_matches for count in made),
            _sum_by_group(count.control_events for count in given),
            sum(count.matches for count in made),
            sum(count.events for count in given),
        )
        return None if result is None else RecallEstimate(**vars(result))

    def _add(self, at: float, shed: ShedCounts) -> None:
        if shed:
            self._lately.append((at, shed))
            for name, types in shed.items():
                add_count(self.totals, name, types)
                self.totals[name] = limit_types(self.totals[name])


def _sum_by_group(groups: Iterable[list[int]]) -> list[int]:
    """Return the sums by group; an empty list counts nothing."""
    sums = [0] * CONTROL_GROUPS
    for group in groups:
        sums = [a + b for a, b in zip(sums, group, strict=True)] if group else sums
    return sums
