"""A CEP application as load shedding sees it: which patterns take which types, and what they emit.

A type arrives from outside, with a rate at an operator, or is emitted by patterns; every pattern that names it receives
it. One match of pattern p takes `counts` events and makes correction * outputs events of the type `emits` (Röger,
equation 14's f; the correction is ERRATA E24's, measured online). Processing one event in p costs `seconds`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np
import numpy.typing as npt

from common.errors import BadInput
from controllers.patterns.selectivity import Needs, compute_output_rate

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Rates = Mapping[str, float]


@dataclass(frozen=True)
class OperatorPattern:
    """A pattern at its operator. `limit` bounds its output in events/s; None means no bound."""

    name: str
    operator: str
    needs: Needs
    emits: str
    seconds: float
    outputs: float = 1.0
    correction: float = 1.0
    limit: float | None = None

    @property
    def gain(self) -> float:
        return self.outputs * self.correction

    @property
    def is_plain(self) -> bool:
        """Return whether it is one conjunction without alternatives."""
        return not self.needs.groups

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        return self.needs.symbols

    @cached_property
    def counts(self) -> Floats:
        return np.fromiter(self.needs.counts.values(), float, len(self.needs.counts))

    def compute_emission(self, rates: Floats) -> float:
        if self.is_plain:
            matches = float((rates / self.counts).min())
        else:
            matches = compute_output_rate(self.needs, dict(zip(self.symbols, rates.tolist(), strict=True)))
        made = self.gain * matches
        return made if self.limit is None else min(made, self.limit)


@dataclass(frozen=True)
class ArrangedPatterns:
    """Patterns in an order in which each follows the patterns whose output it takes; see `arrange`.

    Values that depend on the patterns alone are computed once; with 10,000 types they are most of the work.
    """

    patterns: tuple[OperatorPattern, ...]

    @cached_property
    def emitters(self) -> Mapping[str, tuple[OperatorPattern, ...]]:
        emitters: dict[str, tuple[OperatorPattern, ...]] = {}
        for pattern in self.patterns:
            emitters[pattern.emits] = (*emitters.get(pattern.emits, ()), pattern)
        return emitters

    @cached_property
    def consumers(self) -> Mapping[str, tuple[OperatorPattern, ...]]:
        consumers: dict[str, tuple[OperatorPattern, ...]] = dict.fromkeys(self.emitters, ())
        for pattern in self.patterns:
            for symbol in consumers.keys() & set(pattern.symbols):
                consumers[symbol] = (*consumers[symbol], pattern)
        return consumers

    @cached_property
    def operators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(pattern.operator for pattern in self.patterns))

    @cached_property
    def index(self) -> Mapping[str, int]:
        taken = (symbol for pattern in self.patterns for symbol in pattern.symbols)
        return {symbol: at for at, symbol in enumerate(dict.fromkeys((*self.emitters, *taken)))}

    @cached_property
    def places(self) -> Mapping[str, Places]:
        return {
            pattern.name: np.fromiter(map(self.index.__getitem__, pattern.symbols), np.intp)
            for pattern in self.patterns
        }

    def get_patterns(self, operator: str) -> tuple[OperatorPattern, ...]:
        return tuple(pattern for pattern in self.patterns if pattern.operator == operator)

    def list_affected(self, operator: str) -> tuple[OperatorPattern, ...]:
        """Return the operator's patterns and all that take their output, directly or through others."""
        names = {pattern.name for pattern in self.get_patterns(operator)}
        for pattern in self.patterns:
            if pattern.name in names:
                names |= {consumer.name for consumer in self.consumers[pattern.emits]}
        return tuple(pattern for pattern in self.patterns if pattern.name in names)

    def build_arrival_vectors(self, arrivals: Mapping[str, Rates]) -> dict[str, Floats]:
        vectors = {}
        for operator in self.operators:
            rates = {symbol: rate for symbol, rate in arrivals.get(operator, {}).items() if symbol in self.index}
            vector = np.zeros(len(self.index))
            vector[np.fromiter(map(self.index.__getitem__, rates), np.intp)] = list(rates.values())
            vectors[operator] = vector
        return vectors

    def mask(self, symbols: Iterable[str]) -> Flags:
        mask = np.zeros(len(self.index), dtype=bool)
        mask[[self.index[symbol] for symbol in symbols if symbol in self.index]] = True
        return mask

    def compute_emissions(
        self, outside: Mapping[str, Floats], admitted: Mapping[str, Floats], of: Sequence[OperatorPattern] | None = None
    ) -> Floats:
        """Return a vector of events/s of every emitted type.

        The vector follows from the selectivities between sources and sinks. `outside`: operator → vector, as `vectors`
        makes them. `admitted`: pattern → events/s of each of its symbols that its shedder lets through; a pattern
        without an entry gets all. `of`: restricts the result to these patterns.
        """
        made = np.zeros(len(self.index))
        for pattern in self.patterns if of is None else of:
            rates = admitted.get(pattern.name)
            if rates is None:
                rates = self.compute_offered(pattern, outside, made)
            made[self.index[pattern.emits]] += pattern.compute_emission(rates)
        return made

    def compute_offered(self, pattern: OperatorPattern, outside: Mapping[str, Floats], emitted: Floats) -> Floats:
        """Return the events/s of each of a pattern's symbols, from outside and inside."""
        places = self.places[pattern.name]
        rates: Floats = outside[pattern.operator][places] + emitted[places]
        return rates


def arrange(patterns: Sequence[OperatorPattern], field: str = "patterns") -> ArrangedPatterns:
    """Arrange patterns, given in any order, into an application.

    Raise `BadInput` naming the field if names are duplicate, or if there is a cycle, because a pattern's output would
    depend on itself.
    """
    if not patterns:
        raise BadInput(field, "must have at least one pattern")
    emitters: dict[str, list[str]] = {}
    names = set[str]()
    for at, pattern in enumerate(patterns):
        if pattern.name in names:
            raise BadInput(f"{field}[{at}].name", f"{pattern.name} appears twice; names must differ")
        names.add(pattern.name)
        emitters.setdefault(pattern.emits, []).append(pattern.name)
    order: TopologicalSorter[str] = TopologicalSorter()
    for pattern in patterns:
        order.add(
            pattern.name, *(name for symbol in dict.fromkeys(pattern.symbols) for name in emitters.get(symbol, ()))
        )
    try:
        order.prepare()
    except CycleError as error:
        cycle = ", ".join(pattern.name for pattern in patterns if pattern.name in error.args[1])
        raise BadInput(field, f"must not form a cycle; the output of {cycle} leads back to them") from None
    placed = list[OperatorPattern]()
    while ready := set(order.get_ready()):
        placed += [pattern for pattern in patterns if pattern.name in ready]
        order.done(*ready)
    return ArrangedPatterns(tuple(placed))
