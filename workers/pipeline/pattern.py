"""What an operator looks for: a pattern over symbols, each symbol an event type or a declared predicate."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2s

from queues.errors import BadInput
from workers.pipeline.predicate import Predicate, of_type, parse

SYMBOL = re.compile(r"\A[A-Za-z_][A-Za-z0-9_-]*\Z")
SEQUENCE = re.compile(r"\A\s*SEQ\s*\((?P<steps>.*)\)\s*\Z", re.DOTALL)
MOST_STEPS = 60  # symbols travel as bits of one 64-bit mask


@dataclass(frozen=True)
class Pattern:
    """SEQ(A; B; C) per key within a window.

    steps: the symbols in order (a symbol may occur more than once). key: the column whose equal values belong
    together. within_us: longest time from the first to the last event. quiet_us: after a match of a key,
    further matches of that key within this time are counted but not emitted (0: every match is emitted).
    emits: the type of the complex event.
    """

    name: str
    steps: tuple[str, ...]
    defines: Mapping[str, Predicate]
    key: str
    within_us: int
    quiet_us: int = 0
    emits: str = ""
    severity: str = "warning"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The distinct symbols, in order of first use: symbol i is bit i of a mask."""
        return tuple(dict.fromkeys(self.steps))

    @cached_property
    def step_bits(self) -> tuple[int, ...]:
        """Per step the bit of its symbol."""
        bits = {symbol: 1 << index for index, symbol in enumerate(self.symbols)}
        return tuple(bits[step] for step in self.steps)

    @property
    def columns(self) -> frozenset[str]:
        """The columns its predicates and its key read."""
        read = frozenset().union(*(self.defines[symbol].columns for symbol in self.symbols))
        return read | {self.key}

    @cached_property
    def signature(self) -> str:
        """Changes when what matches changes: state of another signature is not continued."""
        parts = [*self.steps, *(self.defines[symbol].text for symbol in self.symbols)]
        parts += [self.key, str(self.within_us), str(self.quiet_us)]
        return f"{self.name}~{blake2s(chr(0).join(parts).encode(), digest_size=4).hexdigest()}"


def steps_of(expression: str, field: str) -> tuple[str, ...]:
    """`SEQ(A; B; A)` → ("A", "B", "A"). Raises BadInput naming `field`."""
    found = SEQUENCE.match(expression) if isinstance(expression, str) else None
    if not found:
        raise BadInput(field, f"takes SEQ(A; B; …), symbols separated by semicolons, not {expression!r}")
    steps = tuple(step.strip() for step in found["steps"].split(";"))
    for step in steps:
        if not SYMBOL.match(step):
            raise BadInput(field, f"{step!r} is not a symbol: a letter, then letters, digits, - or _")
    if len(steps) > MOST_STEPS:
        raise BadInput(field, f"has {len(steps)} steps; {MOST_STEPS} at most")
    return steps


def definitions(steps: tuple[str, ...], define: Mapping[str, str], field: str) -> dict[str, Predicate]:
    """Predicate per symbol: as declared, else the event type of that name. Raises BadInput when unused."""
    for symbol in define:
        if symbol not in steps:
            raise BadInput(f"{field}.{symbol}", "is not a symbol of the pattern; remove it or use it")
    return {
        symbol: parse(define[symbol], f"{field}.{symbol}") if symbol in define else of_type(symbol)
        for symbol in steps
    }
