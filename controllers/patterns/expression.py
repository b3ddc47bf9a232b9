"""The grammar of patterns as a tree: used by `match`, by applications, and by `shedding`.

    SEQ(A; B+; C)          in this order
    AND(A, B)              in any order, also interleaved
    OR(A, B)               one of them
    {n} {n,} {n,m} + * ?   quantifiers, greedy; a further ? makes one reluctant
    NOT X                  between steps: no X until the next step
    {- B+ -}               taken, but not part of the match
    ^ first, $ last        starts with the first event of the key; ends with its last event

A symbol consists of letters, digits, `_`, and, inside it, `-` and `.`. Sources: Röger et al., section II-A, for SEQ,
AND, and OR; the row patterns of SQL (ISO 9075-2, MATCH_RECOGNIZE) for quantifiers, exclusion, and anchors.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from common.errors import BadInput, Forbidden

MAX_REPEATS = 1000  # Maximum number of a quantifier, and maximum product of nested quantifiers.
MAX_DEPTH = 20
MAX_ALTERNATIVES = 2000  # Maximum number of alternatives of all ORs, counted once per repetition.
_SHOWN = 40  # Maximum number of characters of a text that an error quotes.
_TOKEN = re.compile(r"\s*(?:(?P<symbol>[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)|(?P<mark>\{-|-\}|[(){};,^$+*?]))")
_SPACE = re.compile(r"\s*")
_SEPARATORS = {"SEQ": ";", "AND": ",", "OR": ","}


@dataclass(frozen=True)
class Symbol:
    name: str


@dataclass(frozen=True)
class Sequence:
    items: tuple["Item", ...]


@dataclass(frozen=True)
class Conjunction:
    items: tuple["Item", ...]


@dataclass(frozen=True)
class Choice:
    """One of the items; earlier items are preferred."""

    items: tuple["Item", ...]


@dataclass(frozen=True)
class Repeat:
    """The item `least` to `most` times (None: no maximum), as often as possible if greedy."""

    item: "Item"
    least: int
    most: int | None
    greedy: bool = True


@dataclass(frozen=True)
class AbsentSymbol:
    """No event that satisfies the symbol, until the next step takes an event or the window ends."""

    symbol: Symbol


@dataclass(frozen=True)
class HiddenItem:
    item: "Item"


Item = Symbol | Sequence | Conjunction | Choice | Repeat | AbsentSymbol | HiddenItem


@dataclass(frozen=True)
class Expression:
    """A whole pattern.

    at_first: it starts with the first event of its key. at_last: it ends with the last event of its key.
    """

    root: Item
    at_first: bool = False
    at_last: bool = False


def parse(text: object, field: str) -> Expression:
    """Return the tree of a pattern's text. Raise `BadInput` naming `field` and the position if it is not a pattern."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(field, "must be a pattern, such as SEQ(A; B; C)")
    expression = _Reader(text, field).read_expression()
    check(expression.root, field)
    repeats = _compute_max_repeats(expression.root)
    if repeats > MAX_REPEATS:
        raise Forbidden(field, f"nested repeats multiply to {_format_count(repeats)}; the maximum is {MAX_REPEATS}")
    alternatives = _count_alternatives(expression.root)
    if alternatives > MAX_ALTERNATIVES:
        raise Forbidden(
            field,
            f"has {_format_count(alternatives)} alternatives, including repeats; the maximum is {MAX_ALTERNATIVES}",
        )
    return expression


def render(item: Item) -> str:
    """Return the text of a tree; `read` makes the tree from it again."""
    match item:
        case Symbol(name):
            return name
        case AbsentSymbol(symbol):
            return f"NOT {symbol.name}"
        case HiddenItem(part):
            return f"{{- {render(part)} -}}"
        case Repeat(part, least, most, greedy):
            counts = f"{least}" if least == most else f"{least},{'' if most is None else most}"
            return f"{render(part)}{{{counts}}}{'' if greedy else '?'}"
        case Sequence(items):
            return f"SEQ({'; '.join(render(part) for part in items)})"
        case Conjunction(items):
            return f"AND({', '.join(render(part) for part in items)})"
        case Choice(items):
            return f"OR({', '.join(render(part) for part in items)})"


def read(text: str) -> Item:
    return _Reader(text, "state", remains=True).read_expression().root


def iterate_symbol_names(item: Item) -> Iterator[str]:
    match item:
        case Symbol(name):
            yield name
        case Sequence(items) | Conjunction(items) | Choice(items):
            for part in items:
                yield from iterate_symbol_names(part)
        case Repeat(part, _, _, _) | HiddenItem(part) | AbsentSymbol(part):
            yield from iterate_symbol_names(part)


def iterate_symbols(item: Item) -> Iterator[str]:
    match item:
        case Symbol(name):
            yield name
        case Sequence(items) | Conjunction(items) | Choice(items):
            for part in items:
                yield from iterate_symbols(part)
        case Repeat(part, _, _, _):
            yield from iterate_symbols(part)


def iterate_forbidden_symbols(item: Item) -> Iterator[str]:
    match item:
        case AbsentSymbol(symbol):
            yield symbol.name
        case Sequence(items) | Conjunction(items) | Choice(items):
            for part in items:
                yield from iterate_forbidden_symbols(part)
        case Repeat(part, _, _, _) | HiddenItem(part):
            yield from iterate_forbidden_symbols(part)


def count_minimum_events(item: Item) -> int:
    match item:
        case Symbol():
            return 1
        case Sequence(items) | Conjunction(items):
            return sum(count_minimum_events(part) for part in items)
        case Choice(items):
            return min(count_minimum_events(part) for part in items)
        case Repeat(part, least, _, _):
            return least * count_minimum_events(part)
        case HiddenItem(part):
            return count_minimum_events(part)
        case AbsentSymbol():
            return 0


def check(item: Item, field: str, inside: str = "") -> None:
    """Raise `BadInput` for a well-formed pattern that can never match or never be decided."""
    match item:
        case AbsentSymbol(symbol):
            if inside != "SEQ":
                raise BadInput(field, f"NOT {symbol.name} is allowed only between the steps of a SEQ")
        case Sequence(items):
            _check_absences(items, field)
            for part in items:
                check(part, field, "SEQ")
        case Conjunction(items) | Choice(items):
            for part in items:
                check(part, field, "AND" if isinstance(item, Conjunction) else "OR")
        case Repeat(part, _, _, _) | HiddenItem(part):
            check(part, field, "quantified")


def _format_count(number: int) -> str:
    return str(number) if number < 10**9 else "more than 10⁹"


def _compute_max_repeats(item: Item) -> int:
    match item:
        case Sequence(items) | Conjunction(items) | Choice(items):
            return max((_compute_max_repeats(part) for part in items), default=1)
        case Repeat(part, least, most, _):
            return max(least, most or 0, 1) * _compute_max_repeats(part)
        case HiddenItem(part):
            return _compute_max_repeats(part)
    return 1


def _count_alternatives(item: Item) -> int:
    match item:
        case Sequence(items) | Conjunction(items):
            return sum(_count_alternatives(part) for part in items)
        case Choice(items):
            return len(items) + sum(_count_alternatives(part) for part in items)
        case Repeat(part, least, _, _):
            return max(least, 1) * _count_alternatives(part)
        case HiddenItem(part):
            return _count_alternatives(part)
    return 0


def _check_absences(items: tuple[Item, ...], field: str) -> None:
    if isinstance(items[0], AbsentSymbol):
        raise BadInput(
            field, f"NOT {items[0].symbol.name} needs a step before it, because the time of NOT starts at that step"
        )
    absent: set[str] = set()
    for item in items:
        if isinstance(item, AbsentSymbol):
            absent.add(item.symbol.name)
            continue
        only = item.item if isinstance(item, Repeat) and item.least else item
        if isinstance(only, Symbol) and only.name in absent:
            raise BadInput(
                field, f"can never match: NOT {only.name} is directly before {only.name}; remove one of them"
            )
        absent.clear()


_GROUPS: dict[str, Callable[[tuple[Item, ...]], Item]] = {"SEQ": Sequence, "AND": Conjunction, "OR": Choice}


class _Reader:
    _at_first = False
    _at_last = False

    def __init__(self, text: str, field: str, remains: bool = False) -> None:
        self._text, self._field, self._reads_remains = text, field, remains
        self._end = 0
        self._advance()

    def read_expression(self) -> Expression:
        at_first = self._skip("^")
        root = self._read_item(0)
        at_last = self._skip("$")
        if self._token:
            self._refuse(
                f"unexpected {self._token[:_SHOWN]!r}; to combine several steps, use SEQ( ; ), AND( , ), or OR( , )"
            )
        return Expression(root, at_first or self._at_first, at_last or self._at_last)

    def _read_item(self, depth: int) -> Item:
        if depth > MAX_DEPTH and not self._reads_remains:
            raise Forbidden(self._field, f"is nested deeper than {MAX_DEPTH} levels")
        item = self._read_primary(depth)
        while self._token in ("+", "*", "?", "{"):
            if isinstance(item, Repeat):
                self._refuse("a second quantifier is not allowed; enclose the first one in SEQ(…)")
            if isinstance(item, AbsentSymbol):
                self._refuse("NOT can't have a quantifier")
            least, most = self._parse_counts()
            greedy = not self._skip("?")
            if not count_minimum_events(item) and most is None:
                self._refuse("an item that repeats without a limit must match at least one event each time")
            item = Repeat(item, least, most, greedy)
        return item

    def _read_primary(self, depth: int) -> Item:
        if self._skip("{-"):
            hidden = HiddenItem(self._read_item(depth + 1))
            self._expect("-}")
            return hidden
        name = self._token
        if not name or not self._is_symbol:
            self._refuse("expected a symbol" + (f", not {name[:_SHOWN]!r}" if name else ""))
        self._advance()
        if name in _SEPARATORS:
            self._expect("(")
            if name == "SEQ" and depth == 0:
                self._at_first = self._skip("^")
            items = [] if self._token == ")" and self._reads_remains else [self._read_item(depth + 1)]
            while self._skip(_SEPARATORS[name]):
                items.append(self._read_item(depth + 1))
            if name == "SEQ" and depth == 0:
                self._at_last = self._skip("$")
            if self._token in (";", ","):
                self._refuse(f"items of {name} must be separated by {_SEPARATORS[name]!r}, not {self._token!r}")
            self._expect(")")
            return _GROUPS[name](tuple(items))
        if self._token == "(":
            self._refuse(f"unknown group {name[:_SHOWN]!r}; use SEQ, AND, or OR")
        if name == "NOT":
            return self._read_absent()
        return Symbol(name)

    def _read_absent(self) -> Item:
        name = self._token
        if not self._is_symbol or name in (*_SEPARATORS, "NOT"):
            self._refuse("NOT must be followed by one symbol, such as NOT X")
        self._advance()
        if self._token in ("+", "*", "?", "{"):
            self._refuse(f"NOT {name} can't have a quantifier, because it already forbids every such event")
        return AbsentSymbol(Symbol(name))

    def _parse_counts(self) -> tuple[int, int | None]:
        mark = self._token
        self._advance()
        if mark != "{":
            return {"+": (1, None), "*": (0, None), "?": (0, 1)}[mark]
        least = self._read_number()
        most: int | None = least
        if self._skip(","):
            most = None if self._token == "}" else self._read_number()
        if most is not None and (most < least or most == 0):
            self._refuse(f"{{{least},{most}}} can never match: the second number must be at least the first and not 0")
        self._expect("}")
        return least, most

    def _read_number(self) -> int:
        token = self._token
        plain = token.isascii() and token.isdigit() and len(token) <= 9
        if not plain or int(token) > MAX_REPEATS:
            self._refuse(f"a quantifier must have whole numbers up to {MAX_REPEATS}, such as {{2}} or {{1,3}}")
        self._advance()
        return int(token)

    def _skip(self, mark: str) -> bool:
        is_mark = self._token == mark and not self._is_symbol
        if is_mark:
            self._advance()
        return is_mark

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            self._refuse(f"expected {mark!r}" + (f", not {self._token[:_SHOWN]!r}" if self._token else ""))

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._end)
        self._position = _SPACE.match(self._text, self._end).end()  # type: ignore[union-attr]
        if match:
            self._token = match["symbol"] or match["mark"]
            self._is_symbol = match["symbol"] is not None
            self._end = match.end()
        elif self._position == len(self._text):
            self._token, self._is_symbol = "", False
        else:
            self._refuse(f"{self._text[self._position]!r} is not allowed here")

    def _refuse(self, reason: str) -> NoReturn:
        raise BadInput(self._field, f"at character {self._position + 1}: {reason}")
