"""Control keys of the last operator, traced back to the events that its matches are made of.

A complex event's source is the key it was found by. If an operator groups complex events by `source`, its keys are
therefore those of the previous operator, whatever column that one reads them from. A key is a control key by its text:
all events of a control key's match have that key, and none of them was shed. The number of matches that the other keys
would have follows from the events at the start of the chain, which are counted before any is shed (the last operator
receives only what is left):

    recall of whole matches = (n_o / E_o) / (n_s / E_s)     n: matches at the end, E: events at the beginning

By key, a key keeps its shed decision for as long as the longest window along its chain requires (`periods`). A match of
the last operator is therefore found as a whole or not at all, and not lost because the decision on a part changed.

By any other column (the pattern's name, the type), complex events of all keys are grouped. No sample of keys has whole
matches then, and nothing is estimated.
"""

from collections.abc import Mapping

from workers.pipeline.patterns.graph import Graph, Operator, list_named_types
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.shedding.shedder import ROTATION_WINDOWS, DecisionPeriod

BY_KEY_BEFORE = "source"  # the column of a complex event that holds the key it was found by


def find_chain_starts(graph: Graph) -> Mapping[str, frozenset[str]]:
    """Return, per pattern, the patterns at the start of its chains, or itself if it reads no complex events.

    Empty if keys are lost on the way.
    """
    emitters, starts = _list_emitters(graph), dict[str, frozenset[str]]()
    for operator in (level_operator for level in graph.levels for level_operator in level):
        for pattern in operator.patterns:
            before = [starts[name] for kind in _read(pattern, operator) for name in emitters.get(kind, ())]
            if not before:
                starts[pattern.name] = frozenset({pattern.name})
            elif operator.key == BY_KEY_BEFORE and all(before):
                starts[pattern.name] = frozenset().union(*before)
            else:
                starts[pattern.name] = frozenset()
    return starts


def compute_periods(graph: Graph) -> Mapping[str, DecisionPeriod]:
    """Return, per pattern, how long a key of it keeps its shed decision.

    That is ROTATION_WINDOWS of the longest window: its own, or one of those that continue with what it emits by the
    same keys.
    """
    emitters, longest_us = (
        _list_emitters(graph),
        {graph_pattern.name: max(1, graph_pattern.within_us) for graph_pattern in graph.patterns},
    )
    periods_by_pattern: dict[str, DecisionPeriod] = {}
    for number, level in reversed(list(enumerate(graph.levels))):
        for operator in level:
            for pattern in operator.patterns:
                own_us = longest_us[pattern.name]
                periods_by_pattern[pattern.name] = DecisionPeriod(ROTATION_WINDOWS * own_us, number)
                for name in (emitter for kind in _read(pattern, operator) for emitter in emitters.get(kind, ())):
                    if operator.key == BY_KEY_BEFORE:
                        longest_us[name] = max(longest_us[name], own_us)
    return periods_by_pattern


def _read(pattern: Pattern, operator: Operator) -> frozenset[str]:
    """Return the types that the pattern may take.

    A condition that names none takes everything that its operator receives.
    """
    names_all = all(pattern.defines[symbol].types for symbol in pattern.symbols)
    return list_named_types(pattern) if names_all else operator.types


def _list_emitters(graph: Graph) -> dict[str, list[str]]:
    """Return the patterns that emit each type."""
    emitters: dict[str, list[str]] = {}
    for pattern in graph.patterns:
        emitters.setdefault(pattern.emits, []).append(pattern.name)
    return emitters
