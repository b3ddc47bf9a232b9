"""What one match of a pattern needs, as load shedding sees it: how many events of which type.

Order is not seen: a SEQ needs what an AND needs (Röger, VII-C, the remark on sequences). Nested SEQ and AND
therefore melt into one conjunction whose counts add up (ERRATA E22: AND(A, SEQ(A;A;B)) needs A three times);
an OR stays, as a group of alternatives any of which serves. What is repeated counts as often as it must be
there; what may be absent, or must be, is needed not at all.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from controllers.patterns import expression
from controllers.patterns.expression import Absent, Choice, Hidden, Item, Repeat, Symbol


@dataclass(frozen=True)
class Needs:
    """One match takes `counts[type]` events of each type, and of every group one of its alternatives."""

    counts: Mapping[str, float]
    groups: tuple[tuple["Needs", ...], ...] = ()

    @property
    def size(self) -> float:
        """Events of its own that one match takes, the groups' not counted."""
        return sum(self.counts.values())

    def parts(self) -> tuple["Needs", ...]:
        """Itself and every alternative below, itself first."""
        below = (part for group in self.groups for each in group for part in each.parts())
        return (self, *below)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every type it may take, each once, in order of appearance."""
        return tuple(dict.fromkeys(symbol for part in self.parts() for symbol in part.counts))


@lru_cache(maxsize=4096)
def needs_of(text: str, field: str = "expression") -> Needs:
    """What a match of the pattern needs. Raises `BadInput` for `field`, with the position of the fault."""
    return _of(expression.parse(text, field).root)


def _of(item: Item) -> Needs:
    match item:
        case Symbol(name):
            return Needs({name: 1})
        case Absent():
            return Needs({})
        case Hidden(part):
            return _of(part)
        case Repeat(part, least, _, _):
            once = _of(part)
            if not once.groups:
                return Needs({name: least * count for name, count in once.counts.items()} if least else {})
            return _all([once, *(_of(part) for _ in range(least - 1))] if least else [])
        case Choice(items):
            return _either([_of(part) for part in items])
        case expression.Sequence(items) | expression.Conjunction(items):
            return _all([_of(part) for part in items])


def _all(parts: list[Needs]) -> Needs:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    return Needs(dict(counts), tuple(group for part in parts for group in part.groups))


def _either(parts: list[Needs]) -> Needs:
    """An OR inside an OR is one OR; an OR of one is that one; one that may be nothing needs nothing."""
    flat = [each for part in parts for each in (part.groups[0] if _is_or(part) else (part,))]
    if any(not each.counts and not each.groups for each in flat):
        return Needs({})
    return flat[0] if len(flat) == 1 else Needs({}, (tuple(flat),))


def _is_or(part: Needs) -> bool:
    return not part.counts and len(part.groups) == 1
