"""Pattern expressions as load shedding sees them: how many events of which type one match needs.

    expression  =  symbol  |  SEQ(expression; …)  |  AND(expression, …)  |  OR(expression, …)

Order is not seen: a SEQ needs what an AND needs (Röger, VII-C, the remark on sequences). Nested SEQ and AND
therefore melt into one conjunction whose counts add up (ERRATA E22: AND(A, SEQ(A;A;B)) needs A three times);
an OR stays, as a group of alternatives any of which serves.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from queues.errors import BadInput

TOKEN = re.compile(r"\s*([^\s;,()]+|[;,()])")
SEPARATORS = {"SEQ": ";", "AND": ",", "OR": ","}
MAXIMUM_DEPTH = 50


@dataclass(frozen=True)
class Conjunction:
    """One match needs `counts[type]` events of each type, and of every group one of its alternatives."""

    counts: Mapping[str, int]
    groups: tuple[tuple["Conjunction", ...], ...] = ()

    @property
    def size(self) -> int:
        """Events of its own that one match takes, the groups' not counted."""
        return sum(self.counts.values())

    def parts(self) -> tuple["Conjunction", ...]:
        """Itself and every alternative below, itself first."""
        below = (part for group in self.groups for each in group for part in each.parts())
        return (self, *below)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every type it may take, each once, in order of appearance."""
        return tuple(dict.fromkeys(symbol for part in self.parts() for symbol in part.counts))


@lru_cache(maxsize=4096)
def parse(text: str, field: str = "expression") -> Conjunction:
    """The expression's needs. Raises `BadInput` for `field`, with the position of what is wrong."""
    reader = _Reader(text, field)
    found = reader.expression(0)
    if reader.token is not None:
        raise reader.error(f"nothing may follow the expression, but {reader.token!r} does")
    return found


class _Reader:
    """Recursive descent over the tokens; `token` is the one looked at, None at the end."""

    def __init__(self, text: str, field: str) -> None:
        self.text, self.field, self.at, self.start = text, field, 0, 0
        self.token: str | None = None
        self.advance()

    def advance(self) -> None:
        found = TOKEN.match(self.text, self.at)
        self.token = found.group(1) if found else None
        self.start = found.start(1) if found else len(self.text)
        self.at = found.end() if found else len(self.text)

    def error(self, why: str) -> BadInput:
        return BadInput(
            self.field,
            f"at position {self.start + 1}: {why}; takes SEQ(A; B), AND(A, B), OR(A, B), or a symbol, nested",
        )

    def expression(self, depth: int) -> Conjunction:
        name = self.token
        if name is None or name in ";,()":
            raise self.error(f"a symbol is missing before {name!r}" if name else "the expression ends early")
        if depth > MAXIMUM_DEPTH:
            raise self.error(f"more than {MAXIMUM_DEPTH} levels of nesting")
        self.advance()
        if self.token != "(":
            return Conjunction({name: 1})
        if name not in SEPARATORS:
            raise self.error(f"{name!r} is no operator")
        parts = self.arguments(name, depth)
        return _either(parts) if name == "OR" else _all(parts)

    def arguments(self, operator: str, depth: int) -> list[Conjunction]:
        parts, separator = [], SEPARATORS[operator]
        while self.token != ")":
            self.advance()  # past the opening bracket or a separator
            parts.append(self.expression(depth + 1))
            if self.token not in (separator, ")"):
                raise self.error(f"{operator} takes {separator!r} or ')' here, not {self.token!r}")
        self.advance()
        return parts


def _all(parts: list[Conjunction]) -> Conjunction:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    return Conjunction(dict(counts), tuple(group for part in parts for group in part.groups))


def _either(parts: list[Conjunction]) -> Conjunction:
    """An OR inside an OR is one OR; an OR of one is that one."""
    flat = [each for part in parts for each in (part.groups[0] if _is_or(part) else (part,))]
    return flat[0] if len(flat) == 1 else Conjunction({}, (tuple(flat),))


def _is_or(part: Conjunction) -> bool:
    return not part.counts and len(part.groups) == 1
