"""The pattern that an operator searches for: an expression over symbols, each an event type or a declared predicate."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2s
from typing import NamedTuple

from common.errors import BadInput, Forbidden
from controllers.patterns.expression import (
    AbsentSymbol,
    Choice,
    Conjunction,
    Expression,
    HiddenItem,
    Item,
    Repeat,
    Sequence,
    Symbol,
    iterate_forbidden_symbols,
    iterate_symbol_names,
    iterate_symbols,
    parse,
)
from workers.pipeline.patterns import predicate
from workers.pipeline.patterns.automaton import MAX_STATES, Ending, compute_max_states, list_options
from workers.pipeline.patterns.bindings import BindingPlan
from workers.pipeline.patterns.predicate import BoundExpression, Predicate
from workers.pipeline.patterns.references import SymbolScope

MAX_SYMBOLS = 60  # symbols travel as bits of one 64-bit mask
MAX_ITEMS = 200  # of an expression, including NOTs: for each, what may follow is computed
MAX_STEPS = 100  # of a plain sequence: steps travel as int8
MAX_MEASURES = 64
CONTIGUITIES = ("relaxed", "strict")
CONSUMPTIONS = ("once", "skip-past-last")


class Step(NamedTuple):
    """A step of a plain sequence.

    It has the bits of its symbol (several for an OR), and of the symbols that a preceding NOT forbids.
    """

    bit: int
    forbidden: int


@dataclass(frozen=True)
class Pattern:
    """An expression per key within a window.

    defines: the predicate of each symbol. key: the column that relates events by equal values (None: all events are
    related). within_us: maximum time from the first to the last event, both inclusive. suppression_us: after a match of
    a key, further matches of that key within this time are counted but not emitted (0: every match is emitted). emits:
    the type of the complex event. contiguity, consume: as CONTRACT says of `match`. weight: value of a match at the
    sinks, for load shedding. measures: name → expression of a value of the match.
    """

    name: str
    expression: Expression
    defines: Mapping[str, Predicate]
    key: str | None
    within_us: int
    suppression_us: int = 0
    emits: str = ""
    severity: str = "warning"
    contiguity: str = "relaxed"
    consume: str = "once"
    weight: float = 1.0
    measures: Mapping[str, BoundExpression] = field(default_factory=dict)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Return the distinct symbols, in order of first use: symbol i is bit i of a mask."""
        return tuple(dict.fromkeys(iterate_symbol_names(self.expression.root)))

    @cached_property
    def bits(self) -> dict[str, int]:
        return {symbol: 1 << index for index, symbol in enumerate(self.symbols)}

    def list_symbols(self, mask: int) -> list[str]:
        """Return the symbols whose bits a mask has."""
        return [symbol for symbol, bit in self.bits.items() if mask & bit]

    @cached_property
    def has_types_of_one_symbol(self) -> bool:
        """Return whether each event type satisfies one symbol at most, whatever the values of the event."""
        types = [self.defines[symbol].types for symbol in self.symbols]
        return all(types) and sum(map(len, types)) == len(frozenset().union(*types))

    @cached_property
    def absent_bits(self) -> int:
        """Return the bits of the symbols that a NOT forbids."""
        return sum(self.bits[symbol] for symbol in set(iterate_forbidden_symbols(self.expression.root)))

    @cached_property
    def plain(self) -> tuple[Step, ...] | None:
        """Return the steps of SEQ(A; NOT X; OR(B, C); D{2}): one event each, with NOTs between them.

        Returns None if the expression is more complex.
        """
        steps: list[Step] = []
        forbidden = 0
        for item in _flatten_sequence(self.expression.root):
            if isinstance(item, AbsentSymbol):
                forbidden |= self.bits[item.symbol.name]
                continue
            able = _find_single_symbols(item)
            if not able or len(steps) == MAX_STEPS:
                return None
            steps.append(Step(sum(self.bits[name] for name in able), forbidden))
            forbidden = 0
        anchored = self.expression.at_first or self.expression.at_last
        return None if forbidden or anchored else tuple(steps)

    @cached_property
    def needed(self) -> tuple[str, ...] | None:
        """Return the symbols of a plain AND(A, A, B) (or A{2}), each as often as needed.

        Returns None if the expression is more complex.
        """
        root = self.expression.root
        if not isinstance(root, Conjunction) or self.expression.at_first or self.expression.at_last:
            return None
        names: list[str] = []
        for item in root.items:
            match item:
                case Symbol(name):
                    names.append(name)
                case Repeat(Symbol(name), least, most, _) if least == most:
                    names += [name] * least
                case _:
                    return None
        return tuple(names)

    @property
    def is_relaxed(self) -> bool:
        return self.contiguity == "relaxed"

    @property
    def needs_every_event(self) -> bool:
        """Return whether an event that satisfies no symbol matters too."""
        anchored = self.expression.at_first or self.expression.at_last
        return not self.is_relaxed or anchored or self.reads_previous

    @property
    def reads_previous(self) -> bool:
        return bool(self.previous)

    @cached_property
    def previous(self) -> frozenset[str]:
        """Return the columns of the previous event that its conditions and measures read."""
        read = (expression.all_previous for expression in self._expressions)
        return frozenset[str]().union(*read)

    @cached_property
    def columns(self) -> frozenset[str]:
        """Return the columns that its conditions, measures, and key read, of an event or of the previous one."""
        read = frozenset[str]().union(*(expression.all_columns for expression in self._expressions))
        return read | self.previous | ({self.key} if self.key else set())

    @property
    def _expressions(self) -> list[Predicate | BoundExpression]:
        return [*(self.defines[symbol] for symbol in self.symbols), *self.measures.values()]

    @cached_property
    def bound_conditions(self) -> Mapping[str, BoundExpression]:
        """Return the parts of conditions that refer to bound events, by symbol."""
        parts = {symbol: self.defines[symbol].bound for symbol in self.symbols}
        return {symbol: part for symbol, part in parts.items() if part is not None}

    @cached_property
    def reads_sets(self) -> bool:
        """Return whether a condition may read a set of events of which one could be missing, such as a sum.

        If an event is missing, such a condition could be true although it is false for all events. A symbol that has at
        most one event is not such a set.
        """
        names = list(iterate_symbol_names(self.expression.root))
        repeated = set(_iterate_repeated(self.expression.root))
        single = {name for name in names if names.count(name) == 1 and name not in repeated}
        return any(
            reference.symbol not in single or reference.function == "count" or reference.offset > 0
            for condition in self.bound_conditions.values()
            for reference in condition.references.values()
        )

    @cached_property
    def bindings(self) -> BindingPlan | None:
        """Return the values that an attempt to match keeps for conditions and measures; None: no values."""
        if not self.bound_conditions and not self.measures:
            return None
        return BindingPlan(self.bound_conditions, self.measures, explains=bool(self.emits))

    @cached_property
    def signature(self) -> str:
        """Return a signature of what defines a match. State with another signature is not continued."""
        parts = [repr(self.expression), *(self.defines[symbol].text for symbol in self.symbols)]
        parts += [str(self.key), str(self.within_us), str(self.suppression_us), self.contiguity, self.consume]
        parts += [f"{name}={measure.text}" for name, measure in self.measures.items()]
        return f"{self.name}~{blake2s(chr(0).join(parts).encode(), digest_size=4).hexdigest()}"


def parse_expression(text: object, field: str) -> Expression:
    """Parse a pattern's expression. Raises `BadInput` that names `field`."""
    if isinstance(text, str) and len(text) > predicate.MAX_CHARACTERS:
        raise Forbidden(field, f"must have at most {predicate.MAX_CHARACTERS} characters, not {len(text)}")
    expression = parse(text, field)
    items = sum(1 for _ in iterate_symbol_names(expression.root))
    if items > MAX_ITEMS:
        raise Forbidden(field, f"has {items} symbols, counting repetitions; the maximum is {MAX_ITEMS}")
    first = list_options(expression.root)[0].what
    if isinstance(first, Ending):
        raise BadInput(
            field, "can never match: its reluctant quantifier matches zero events; remove the ? of the quantifier"
        )
    if not any(iterate_symbols(expression.root)):
        raise BadInput(field, "can never match: {- -} excludes all its events")
    used = len(set(iterate_symbol_names(expression.root)))
    if used > MAX_SYMBOLS:
        raise Forbidden(field, f"has {used} different symbols; the maximum is {MAX_SYMBOLS}")
    return expression


def check_states(pattern: Pattern, field: str) -> None:
    """Raise `Forbidden` if a pattern that is searched event by event may have too many states for memory."""
    if pattern.plain and (pattern.is_relaxed or pattern.consume == "skip-past-last"):
        return  # also with conditions between events: it has as many states as steps
    if pattern.needed and pattern.bindings is None and pattern.is_relaxed and pattern.consume == "once":
        return
    states = compute_max_states(pattern.expression.root)
    if states > MAX_STATES:
        shown = states if states < 10**9 else "more than 10⁹"
        raise Forbidden(field, f"may have {shown} states; the maximum is {MAX_STATES}")


def _flatten_sequence(item: Item) -> Iterator[Item]:
    """Flatten a sequence: inner sequences and items with a fixed number of repetitions are expanded."""
    match item:
        case Sequence(items):
            for part in items:
                yield from _flatten_sequence(part)
        case Repeat(part, least, most, _) if least == most:
            for _ in range(least):
                yield from _flatten_sequence(part)
        case _:
            yield item


def _iterate_repeated(item: Item) -> Iterator[str]:
    """Yield the symbols within repetitions."""
    match item:
        case Repeat():
            yield from iterate_symbol_names(item)
        case Sequence(items) | Conjunction(items) | Choice(items):
            for part in items:
                yield from _iterate_repeated(part)
        case HiddenItem(part):
            yield from _iterate_repeated(part)


def _find_single_symbols(item: Item) -> frozenset[str]:
    """Return the symbols of which one event satisfies any; none if the item takes more, or other than one event."""
    match item:
        case Symbol(name):
            return frozenset({name})
        case Choice(items) if all(isinstance(part, Symbol) for part in items):
            return frozenset(iterate_symbol_names(item))
    return frozenset()


def parse_definitions(expression: Expression, define: object, field: str) -> dict[str, Predicate]:
    """Return the predicate of each symbol: as declared, or else the event type of that name.

    Raises `BadInput` if a definition is not used.
    """
    names = tuple(dict.fromkeys(iterate_symbol_names(expression.root)))
    if not isinstance(define, Mapping):
        raise BadInput(field, 'must be an object of conditions by symbol, such as {"B": "value > 80"}')
    for symbol in define:
        if symbol not in names:
            raise BadInput(f"{field}.{symbol}", "is not a symbol of the pattern; remove it or use it")
    return {
        symbol: predicate.parse(define[symbol], f"{field}.{symbol}", SymbolScope(names, symbol))
        if symbol in define
        else predicate.match_type(symbol)
        for symbol in names
    }


def parse_measures(expression: Expression, measures: object, field: str) -> dict[str, BoundExpression]:
    """Return the measures by name. Raises `BadInput` that names `field` and the measure."""
    if not isinstance(measures, Mapping):
        raise BadInput(field, 'must map names to expressions, such as {"rise": "last(B.value) - A.value"}')
    if len(measures) > MAX_MEASURES:
        raise Forbidden(field, f"must have at most {MAX_MEASURES} measures, not {len(measures)}")
    scope = SymbolScope(tuple(dict.fromkeys(iterate_symbol_names(expression.root))))
    for name in measures:
        if not isinstance(name, str) or not name.strip():
            raise BadInput(field, f"must have non-empty strings as names, not {name!r}")
    return {name: predicate.parse_measure(text, f"{field}.{name}", scope) for name, text in measures.items()}


def validate_choice(value: object, choices: tuple[str, ...], field: str) -> str:
    if value not in choices or not isinstance(value, str):
        raise BadInput(field, f"must be {' or '.join(choices)}, not {str(value)[:40]!r}")
    return value
