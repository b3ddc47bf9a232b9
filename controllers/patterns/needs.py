"""The events that one match of a pattern needs, as load shedding sees it.

The order is ignored: a SEQ needs what an AND needs (Röger, VII-C, the remark on sequences). Nested SEQ and AND
therefore merge into one conjunction whose counts add up (ERRATA E22: AND(A, SEQ(A;A;B)) needs A three times). An OR
stays a group of alternatives. A repeated item counts with its minimum; an item that may or must be absent does not
count.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from controllers.patterns import expression
from controllers.patterns.expression import AbsentSymbol, Choice, HiddenItem, Item, Repeat, Symbol


@dataclass(frozen=True)
class Needs:
    """The needs of one match: `counts[type]` events of each type, and one alternative of every group."""

    counts: Mapping[str, float]
    groups: tuple[tuple["Needs", ...], ...] = ()

    @property
    def size(self) -> float:
        """Return the number of events that one match takes, without those of the groups."""
        return sum(self.counts.values())

    def list_parts(self) -> tuple["Needs", ...]:
        below = (part for group in self.groups for alternative in group for part in alternative.list_parts())
        return (self, *below)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Return the types that it may take, in order of appearance and without duplicates."""
        return tuple(dict.fromkeys(symbol for part in self.list_parts() for symbol in part.counts))


@lru_cache(maxsize=4096)
def needs_of(text: str, field: str = "expression") -> Needs:
    """Return the needs of a match of the pattern. Raise `BadInput` for `field`, with the position."""
    return _compute_needs(expression.parse(text, field).root)


def _compute_needs(item: Item) -> Needs:
    match item:
        case Symbol(name):
            return Needs({name: 1})
        case AbsentSymbol():
            return Needs({})
        case HiddenItem(part):
            return _compute_needs(part)
        case Repeat(part, least, _, _):
            once = _compute_needs(part)
            if not once.groups:
                return Needs({name: least * count for name, count in once.counts.items()} if least else {})
            return _add_needs([once, *(_compute_needs(part) for _ in range(least - 1))] if least else [])
        case Choice(items):
            return _simplify_alternatives([_compute_needs(part) for part in items])
        case expression.Sequence(items) | expression.Conjunction(items):
            return _add_needs([_compute_needs(part) for part in items])


def _add_needs(parts: list[Needs]) -> Needs:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    return Needs(dict(counts), tuple(group for part in parts for group in part.groups))


def _simplify_alternatives(parts: list[Needs]) -> Needs:
    """Simplify an OR.

    An OR inside an OR merges with it, an OR with one alternative becomes that alternative, and an OR with an
    alternative that needs nothing needs nothing.
    """
    flat = [
        group
        for part in parts
        for group in (part.groups[0] if (not part.counts and len(part.groups) == 1) else (part,))
    ]
    if any(not piece.counts and not piece.groups for piece in flat):
        return Needs({})
    return flat[0] if len(flat) == 1 else Needs({}, (tuple(flat),))
