"""The shedding problem of a bottleneck: the offered load, the cost of a match, and the result of a choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from controllers.patterns.application import ArrangedPatterns, Floats, OperatorPattern, Rates
from controllers.patterns.selectivity import Needs

Perspective = Literal["global", "local"]
# Pattern → matches/s of each of its conjunctions, in the order of `parts()`.
Flows = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Overload:
    """A bottleneck and its budget; rates in events/s, `budget` in s of work per s."""

    application: ArrangedPatterns
    arrivals: Mapping[str, Rates]
    operator: str
    budget: float
    weights: Rates
    perspective: Perspective = "global"
    protected: frozenset[str] = frozenset()
    admitted: Mapping[str, Floats] | None = None  # pattern → events/s, of bottlenecks further upstream


@dataclass(frozen=True)
class Table:
    """The events that the bottleneck's shedder admits for a pattern.

    The arrays are in the order of the pattern's types.
    """

    pattern: OperatorPattern
    offered: Floats  # events/s
    admitted: Floats

    @property
    def load(self) -> float:
        """Return the seconds of work per second."""
        return float(self.pattern.seconds * self.admitted.sum())

    def compute_shares(self) -> dict[str, float]:
        """Return type → share dropped, 0 if nothing arrives."""
        offered = np.where(self.offered > 0, self.offered, 1.0)
        dropped = np.where(self.offered > 0, 1 - self.admitted / offered, 0.0)
        return dict(zip(self.pattern.symbols, np.clip(dropped, 0, 1).tolist(), strict=True))


class SheddingProblem:
    """The overload with its constants computed: which types arrive at which rate, and at what cost."""

    def __init__(self, overload: Overload) -> None:
        self.overload, application = overload, overload.application
        self.bottleneck = application.get_patterns(overload.operator)
        affected = application.list_affected(overload.operator)
        local = overload.perspective == "local"
        self.patterns = self.bottleneck if local else affected
        self.varying = frozenset(pattern.emits for pattern in self.patterns)
        self.outside, self.admitted = (application.build_arrival_vectors(overload.arrivals), overload.admitted or {})
        # Output that does not depend on the bottleneck does not change with its shedder.
        names = {pattern.name for pattern in affected}
        apart = [pattern for pattern in application.patterns if pattern.name not in names]
        self.untouched = application.compute_emissions(self.outside, self.admitted, of=apart)
        self.weight = {
            pattern.emits: 1.0 if local else overload.weights.get(pattern.emits, 0.0) for pattern in self.patterns
        }
        protected = application.mask(overload.protected)
        self.protected = {pattern_.name: protected[application.places[pattern_.name]] for pattern_ in self.bottleneck}
        spent = sum(
            pattern_.seconds * float(self.compute_offered(pattern_)[self.protected[pattern_.name]].sum())
            for pattern_ in self.bottleneck
        )
        # The rest after the protected types are processed; never below 0.
        self.budget = max(0.0, overload.budget - spent)

    def compute_cost(self, pattern: OperatorPattern, part: Needs) -> float:
        """Return the seconds of work of a match of this part at the bottleneck."""
        if pattern.operator != self.overload.operator:
            return 0.0
        if pattern.is_plain:
            return float(pattern.seconds * pattern.counts[~self.protected[pattern.name]].sum())
        protected = self.overload.protected
        return pattern.seconds * sum(n for symbol, n in part.counts.items() if symbol not in protected)

    def compute_offered(self, pattern: OperatorPattern) -> Floats:
        """Return the events/s of each type that the pattern takes, except what the variables change."""
        return self.overload.application.compute_offered(pattern, self.outside, self.untouched)

    def build_full_tables(self) -> list[Table]:
        application = self.overload.application
        made = application.compute_emissions(self.outside, self.admitted)
        offered = [application.compute_offered(pattern, self.outside, made) for pattern in self.bottleneck]
        return [Table(pattern, rates, rates) for pattern, rates in zip(self.bottleneck, offered, strict=True)]

    def build_tables(self, flows: Flows) -> list[Table]:
        application, made = self.overload.application, self.untouched.copy()
        tables = []
        for pattern in self.bottleneck:
            offered = application.compute_offered(pattern, self.outside, made)
            admitted = np.minimum(_compute_taken(pattern, flows[pattern.name]), offered)
            table = Table(pattern, offered, np.where(self.protected[pattern.name], offered, admitted))
            made[application.index[pattern.emits]] += pattern.compute_emission(table.admitted)
            tables.append(table)
        return tables


def _compute_taken(pattern: OperatorPattern, flows: Sequence[float]) -> Floats:
    """Return the events/s of each type that the matches take."""
    if pattern.is_plain:
        return pattern.counts * flows[0]
    taken = dict.fromkeys(pattern.symbols, 0.0)
    for part, flow in zip(pattern.needs.list_parts(), flows, strict=True):
        for symbol, count in part.counts.items():
            taken[symbol] += count * flow
    return np.asarray(list(taken.values()))
