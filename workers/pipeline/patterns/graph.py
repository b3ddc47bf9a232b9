"""The operator graph: operators have patterns, patterns emit types, and edges connect emitters with readers.

A complex event goes to every pattern that names its type, in any operator; one that no pattern reads goes to a sink.
The graph has no cycles, so a batch processes it level by level with the same watermark: an operator of a level then has
everything that the earlier levels produce for this batch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from zlib import crc32

import numpy as np
import pyarrow as pa

from common.errors import BadInput
from controllers.patterns.expression import Choice, Conjunction, Expression, HiddenItem, Item, Repeat, Sequence, Symbol
from workers.pipeline.patterns.pattern import Pattern

KEY_GROUPS = 64


@dataclass(frozen=True)
class Operator:
    """An operator. key: its patterns relate events that have the same value in this column."""

    name: str
    key: str
    patterns: tuple[Pattern, ...]

    @property
    def emits(self) -> frozenset[str]:
        return frozenset(pattern.emits for pattern in self.patterns)

    def reads(self, event_type: str) -> bool:
        return event_type in self.types

    @cached_property
    def types(self) -> frozenset[str]:
        """Return the event types that its patterns name."""
        return frozenset().union(*map(list_named_types, self.patterns))


@dataclass(frozen=True)
class Edge:
    """Complex events of a type, from the operator that emits them to one that reads them."""

    source: str
    target: str
    type: str


@dataclass(frozen=True)
class Graph:
    """The operators and their edges. Raises `BadInput` if operators read one another's events in a cycle."""

    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        self.levels  # noqa: B018  a cycle is found when the levels are
        for pattern in self.patterns:
            if pattern.emits in self.inner_types and not ends_with_an_event(pattern.expression):
                raise BadInput(
                    f"operators ({pattern.name})",
                    "emits to another operator, but its last step may stay open until the window ends: "
                    "its complex events would be out of order. End the pattern with an event",
                )
            if pattern.emits in self.inner_types and is_decided_late(pattern):
                raise BadInput(
                    f"operators ({pattern.name})",
                    "emits to another operator, but a match may wait for a longer branch of its OR, and then"
                    " be out of order. Make each branch a pattern, or set contiguity: relaxed and consume: once",
                )
            if pattern.emits in self.inner_types and may_complete_behind(pattern):
                raise BadInput(
                    f"operators ({pattern.name})",
                    "emits to another operator, but its matches can be out of order: a match can wait for an earlier"
                    " start whose condition between events can still be met. Set consume: once",
                )

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        readers: dict[str, list[str]] = {}
        for target in self.operators:
            for event_type in target.types:
                readers.setdefault(event_type, []).append(target.name)
        return tuple(
            Edge(source.name, target, event_type)
            for source in self.operators
            for event_type in sorted(source.emits)
            for target in readers.get(event_type, ())
        )

    @cached_property
    def inner_types(self) -> frozenset[str]:
        """Return the types that an operator emits for another."""
        return frozenset(edge.type for edge in self.edges)

    @cached_property
    def routes(self) -> tuple[str, ...]:
        """Return the key columns, in order of first use. The rows of a result are stored once for each."""
        return tuple(dict.fromkeys(operator.key for operator in self.operators))

    @cached_property
    def levels(self) -> tuple[tuple[Operator, ...], ...]:
        """Return the operators level by level in processing order. Those of one level don't read one another."""
        order = TopologicalSorter[str]({operator.name: () for operator in self.operators})
        for edge in self.edges:
            order.add(edge.target, edge.source)
        try:
            order.prepare()
        except CycleError as error:
            circle = " → ".join(error.args[1])
            raise BadInput("operators", f"read one another's events in a cycle: {circle}") from None
        levels: list[tuple[Operator, ...]] = []
        while ready := set(order.get_ready()):
            levels.append(tuple(operator for operator in self.operators if operator.name in ready))
            order.done(*ready)
        return tuple(levels)

    def get_operator(self, name: str) -> Operator:
        return next(operator for operator in self.operators if operator.name == name)

    def reads_source(self, operator: Operator) -> bool:
        """Return whether an event that no operator has emitted may satisfy a symbol of the operator."""
        return any(
            not (named := pattern.defines[symbol].types) or not named <= self.inner_types
            for pattern in operator.patterns
            for symbol in pattern.symbols
        )

    def list_route_patterns(self, route: str) -> tuple[Pattern, ...]:
        return tuple(p for operator in self.operators if operator.key == route for p in operator.patterns)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return tuple(pattern for operator in self.operators for pattern in operator.patterns)

    @property
    def columns(self) -> frozenset[str]:
        """Return the columns of incoming events that the patterns read. Measures are columns of complex events only."""
        return frozenset().union(*(pattern.columns for pattern in self.patterns)) - self.inner_measures

    @cached_property
    def inner_measures(self) -> frozenset[str]:
        """Return the measures of the complex events that an operator emits for another."""
        emitters = (pattern for pattern in self.patterns if pattern.emits in self.inner_types)
        return frozenset().union(*(pattern.measures for pattern in emitters))


def check_symbols(graph: Graph, types: frozenset[str], places: Mapping[str, str]) -> None:
    """Raise `BadInput` if a pattern names a type that neither arrives nor is emitted.

    places: pattern → its position in the declaration.
    """
    emitted = frozenset(pattern.emits for pattern in graph.patterns)
    for pattern in graph.patterns:
        for event_type in sorted(list_named_types(pattern) - types - emitted):
            raise BadInput(
                f"{places[pattern.name]}.pattern",
                f"waits for {event_type!r}, which is neither in types "
                f"({', '.join(sorted(types))}) nor emitted by a pattern",
            )


def ends_with_an_event(expression: Expression) -> bool:
    """Return whether a match is complete when its last event arrives, not only when the window is over."""
    return not expression.at_last and _ends_firmly(expression.root)


def is_decided_late(pattern: Pattern) -> bool:
    """Return whether a complete match may be held back because another branch of an OR may still be taken.

    That is the case if an event is in one match only, or if every event counts.
    """
    one_way = pattern.is_relaxed and pattern.consume != "skip-past-last"
    return not one_way and _has_branches(pattern.expression.root)


def may_complete_behind(pattern: Pattern) -> bool:
    """Return whether a complete match can be delayed because an earlier start can still match.

    With conditions between events, a later start can be complete first, unless all events follow directly.
    """
    is_direct = pattern.plain is not None and not pattern.is_relaxed
    return pattern.consume == "skip-past-last" and bool(pattern.bound_conditions) and not is_direct


def _has_branches(item: Item) -> bool:
    match item:
        case Choice(items):
            return not all(isinstance(part, Symbol) for part in items)
        case Sequence(items) | Conjunction(items):
            return any(map(_has_branches, items))
        case Repeat(inner, _, _, _) | HiddenItem(inner):
            return _has_branches(inner)
    return False


def _ends_firmly(item: Item) -> bool:
    match item:
        case Symbol():
            return True
        case Sequence(items):
            return _ends_firmly(items[-1])
        case Conjunction(items) | Choice(items):
            return all(_ends_firmly(part) for part in items)
        case Repeat(inner, least, most, _):
            return least == most and _ends_firmly(inner)
        case HiddenItem(inner):
            return _ends_firmly(inner)
    return False


def list_named_types(pattern: Pattern) -> frozenset[str]:
    """Return the event types that its conditions request by name."""
    return frozenset().union(*(pattern.defines[symbol].types for symbol in pattern.symbols))


def compute_key_group(key: str) -> int:
    """Return the key group of a key: the same in every process and every release."""
    return crc32(key.encode()) % KEY_GROUPS


def compute_key_groups(keys: pa.Array) -> np.ndarray:
    """Return uint8 per row; keys are texts without nulls. Each distinct key is computed once."""
    encoded = keys.dictionary_encode()
    groups = np.array([compute_key_group(key) for key in encoded.dictionary.to_pylist()], np.uint8)
    return groups[encoded.indices.to_numpy(zero_copy_only=False)] if len(keys) else groups


def distribute_groups(tasks: int, groups: Iterable[int]) -> list[tuple[int, ...]]:
    """Distribute the groups over `tasks` tasks, by ranges of equal width."""
    shares: dict[int, list[int]] = {}
    for group in sorted(groups):
        shares.setdefault(group * tasks // KEY_GROUPS, []).append(group)
    return [tuple(share) for share in shares.values()]
