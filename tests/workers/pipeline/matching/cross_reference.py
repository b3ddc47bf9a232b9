"""Random documents with conditions between events, and their matches by trying one way after another.

The reference keeps the events of an attempt in a list and evaluates each term over this list. Strict patterns are tried
in SQL's order of preference with full backtracking; relaxed sequences are followed event by event.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from controllers.patterns.expression import AbsentSymbol, Choice, HiddenItem, Item, Repeat, Sequence, Symbol, render

Event = dict[str, Any]
Bound = list[tuple[str, Event]]  # symbol and event, in the order of binding
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "avg": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}


@dataclass
class Trial:
    """Where an expression is evaluated. event: under test, None for a measure; before: the event before it."""

    bound: Bound
    event: Event | None = None
    before: Event | None = None

    def value(self, term: tuple[Any, ...]) -> Any:
        match term:
            case ("number", number):
                return number
            case ("own", name):
                return (self.event or self.bound[-1][1]).get(name)
            case ("prev", name):
                return None if self.before is None else self.before.get(name)
            case ("count", symbol, None):
                return len(self.events(symbol))
            case ("count", symbol, name):
                return len(self.known(symbol, name))
            case ("first", symbol, name, offset):
                events = self.events(symbol)
                return events[offset].get(name) if offset < len(events) else None
            case ("last", symbol, name, offset):
                events = self.events(symbol)
                return events[-1 - offset].get(name) if offset < len(events) else None
            case ("product", function, symbol):
                products = [
                    event["value"] * event["w"] for event in self.events(symbol) if event.get("value") is not None
                ]
                return AGGREGATES[function](products) if products else None
            case ("minus", left, right):
                values = self.value(left), self.value(right)
                return None if None in values else values[0] - values[1]
            case (function, symbol, name):
                known = self.known(symbol, name)
                return AGGREGATES[function](known) if known else None
        raise AssertionError(term)

    def events(self, symbol: str | None) -> list[Event]:
        return [event for name, event in self.bound if symbol in (None, name)]

    def known(self, symbol: str | None, name: str) -> list[Any]:
        return [event[name] for event in self.events(symbol) if event.get(name) is not None]

    def truth(self, condition: tuple[Any, ...]) -> bool | None:
        match condition:
            case ("true",):
                return True
            case ("type", letter):
                return self.event is not None and self.event["type"] == letter
            case ("not", part):
                truth = self.truth(part)
                return None if truth is None else not truth
            case ("and", *parts):
                truths = [self.truth(part) for part in parts]
                return False if False in truths else None if None in truths else True
            case ("or", *parts):
                truths = [self.truth(part) for part in parts]
                return True if True in truths else None if None in truths else False
            case (comparison, left, right):
                values = self.value(left), self.value(right)
                return None if None in values else COMPARISONS[comparison](*values)
        raise AssertionError(condition)


def write_term(term: tuple[Any, ...]) -> str:
    match term:
        case ("number", number):
            return str(number)
        case ("own", name):
            return str(name)
        case ("prev", name):
            return f"prev({name})"
        case ("count", symbol, None):
            return f"count({symbol or ''})"
        case ("first" | "last" as function, symbol, name, offset):
            return f"{function}({_qualify(symbol, name)}{f', {offset}' if offset else ''})"
        case ("product", function, symbol):
            return f"{function}({_qualify(symbol, 'value')} * {_qualify(symbol, 'w')})"
        case ("minus", left, right):
            return f"{write_term(left)} - {write_term(right)}"
        case (function, symbol, name):
            return f"{function}({_qualify(symbol, name)})"
    raise AssertionError(term)


def _qualify(symbol: str | None, name: str) -> str:
    return f"{symbol}.{name}" if symbol else name


def write_condition(condition: tuple[Any, ...]) -> str:
    match condition:
        case ("true",):
            return "true"
        case ("type", letter):
            return f'type == "{letter}"'
        case ("not", part):
            return f"not ({write_condition(part)})"
        case ("and" | "or" as word, *parts):
            return f" {word} ".join(f"({write_condition(part)})" for part in parts)
        case (comparison, left, right):
            return f"{write_term(left)} {comparison} {write_term(right)}"
    raise AssertionError(condition)


@dataclass
class Case:
    """A random document and what its conditions and measures mean."""

    root: Item
    relaxed: bool
    once: bool
    within_seconds: float
    keyed: bool
    events: list[Event]
    conditions: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    measures: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        return {
            "pattern": render(self.root),
            "define": {symbol: write_condition(condition) for symbol, condition in self.conditions.items()},
            "measures": {name: write_term(term) for name, term in self.measures.items()},
            "contiguity": "relaxed" if self.relaxed else "strict",
            "consume": "once" if self.once else "skip-past-last",
            "within_seconds": self.within_seconds,
            "key": "user" if self.keyed else None,
            "events": self.events,
        }

    def expect(self) -> list[tuple[list[str], dict[str, Any]]]:
        """Return the matches of all keys, sorted, each with its measures."""
        by_key: dict[Any, list[Event]] = {}
        for event in self.events:
            by_key.setdefault(event["user"] if self.keyed else None, []).append(event)
        find = self._find_once if self.once else self._find_relaxed if self.relaxed else self._find_strict
        return sorted((match for events in by_key.values() for match in find(events)), key=lambda match: match[0])

    def _answer(self, bound: Bound, hidden: set[int], events: list[Event]) -> tuple[list[str], dict[str, Any]]:
        at = events.index(bound[-1][1])
        trial = Trial(bound, before=events[at - 1] if at else None)
        ids = [event["id"] for place, (_, event) in enumerate(bound) if place not in hidden]
        return ids, {name: trial.value(term) for name, term in self.measures.items()}

    def _holds(self, symbol: str, events: list[Event], at: int, bound: Bound) -> bool:
        trial = Trial([*bound, (symbol, events[at])], events[at], events[at - 1] if at else None)
        return trial.truth(self.conditions[symbol]) is True

    def _find_strict(self, events: list[Event]) -> Iterator[tuple[list[str], dict[str, Any]]]:
        start = 0
        while start < len(events):
            way = next(self._ways(self.root, events, start, start, [], frozenset(), False), None)
            if way and way[0] > start and len(way[2]) < len(way[1]):
                yield self._answer(way[1], set(way[2]), events)
            start = way[0] if way and way[0] > start else start + 1

    def _ways(
        self, item: Item, events: list[Event], start: int, at: int, bound: Bound, hidden: frozenset[int], hides: bool
    ) -> Iterator[tuple[int, Bound, frozenset[int]]]:
        """Yield where an item may end, what is bound then, and which of it is hidden: the preferred way first."""
        match item:
            case Symbol(name):
                in_time = at < len(events) and events[at]["time"] - events[start]["time"] <= self.within_seconds
                if in_time and self._holds(name, events, at, bound):
                    more = hidden | {len(bound)} if hides else hidden
                    yield at + 1, [*bound, (name, events[at])], more
            case Sequence(items):
                if not items:
                    yield at, bound, hidden
                    return
                for after, taken, unseen in self._ways(items[0], events, start, at, bound, hidden, hides):
                    yield from self._ways(Sequence(items[1:]), events, start, after, taken, unseen, hides)
            case Choice(items):
                for part in items:
                    yield from self._ways(part, events, start, at, bound, hidden, hides)
            case HiddenItem(part):
                yield from self._ways(part, events, start, at, bound, hidden, True)
            case Repeat():
                yield from self._turns(item, events, start, at, bound, hidden, hides)

    def _turns(
        self, item: Repeat, events: list[Event], start: int, at: int, bound: Bound, hidden: frozenset[int], hides: bool
    ) -> Iterator[tuple[int, Bound, frozenset[int]]]:
        if item.least == 0 and not item.greedy:
            yield at, bound, hidden
        if item.most != 0:
            rest = Repeat(item.item, max(item.least - 1, 0), None if item.most is None else item.most - 1, item.greedy)
            for after, taken, unseen in self._ways(item.item, events, start, at, bound, hidden, hides):
                if after > at:
                    yield from self._turns(rest, events, start, after, taken, unseen, hides)
        if item.least == 0 and item.greedy:
            yield at, bound, hidden

    def _steps(self) -> list[tuple[str, str | None]]:
        """Return the symbols of a sequence, each with the symbol that must not come before it."""
        assert isinstance(self.root, Sequence)
        steps: list[tuple[str, str | None]] = []
        forbidden: str | None = None
        for item in self.root.items:
            if isinstance(item, AbsentSymbol):
                forbidden = item.symbol.name
            elif isinstance(item, Symbol):
                steps.append((item.name, forbidden))
                forbidden = None
        return steps

    def _find_relaxed(self, events: list[Event]) -> Iterator[tuple[list[str], dict[str, Any]]]:
        steps, start = self._steps(), 0
        while start < len(events):
            bound: Bound = []
            for at in range(start, len(events)):
                if events[at]["time"] - events[start]["time"] > self.within_seconds:
                    break
                symbol, forbidden = steps[len(bound)]
                if self._holds(symbol, events, at, bound):
                    bound.append((symbol, events[at]))
                elif not bound or (forbidden and self._holds(forbidden, events, at, bound)):
                    break
                if len(bound) == len(steps):
                    yield self._answer(bound, set(), events)
                    start = at
                    break
            start += 1

    def _find_once(self, events: list[Event]) -> Iterator[tuple[list[str], dict[str, Any]]]:
        steps = self._steps()
        machines: list[Bound] = []  # the oldest first
        for at, event in enumerate(events):
            machines = [bound for bound in machines if event["time"] - bound[0][1]["time"] <= self.within_seconds]
            able = [bound for bound in machines if self._holds(steps[len(bound)][0], events, at, bound)]
            chosen = max(able, key=len, default=None)
            machines = [
                bound
                for bound in machines
                if bound is chosen
                or not (forbidden := steps[len(bound)][1])
                or not self._holds(forbidden, events, at, bound)
            ]
            if chosen is not None:
                chosen.append((steps[len(chosen)][0], event))
                if len(chosen) == len(steps):
                    machines = [bound for bound in machines if bound is not chosen]
                    yield self._answer(chosen, set(), events)
            elif self._holds(steps[0][0], events, at, []):
                if len(steps) == 1:
                    yield self._answer([(steps[0][0], event)], set(), events)
                else:
                    machines.append([(steps[0][0], event)])


def build_case(chance: Random) -> Case:
    """Return a random case: strict with any expression, or a relaxed sequence whose steps have types of their own."""
    kind = chance.choice(["strict", "strict", "relaxed", "once"])
    letters = "ABCD"[: chance.randint(2, 4)]
    strict = kind == "strict"
    root = _build_tree(chance, letters, 3) if strict else _build_steps(chance, letters)
    case = Case(
        root,
        relaxed=not strict,
        once=kind == "once",
        within_seconds=chance.choice([3, 8, 1000]),
        keyed=chance.random() < 0.3,
        events=_build_events(chance, letters, chance.randint(1, 9 if strict else 14)),
    )
    used = sorted(set(_iterate_names(root)))
    for symbol in used:
        is_open = chance.random() < (0.25 if strict else 0.5)
        condition = ("true",) if is_open else _build_condition(chance, used, symbol, 2)
        case.conditions[symbol] = condition if strict else ("and", ("type", symbol), condition)
    for number in range(chance.randint(0, 3)):
        case.measures[f"m{number}"] = _build_term(chance, used, measure=True)
    return case


def _iterate_names(item: Item) -> Iterator[str]:
    match item:
        case Symbol(name) | AbsentSymbol(Symbol(name)):
            yield name
        case Repeat(part, _, _, _) | HiddenItem(part):
            yield from _iterate_names(part)
        case Sequence(items) | Choice(items):
            for part in items:
                yield from _iterate_names(part)


def _build_events(chance: Random, letters: str, number: int) -> list[Event]:
    events, seconds = [], 0
    for place in range(number):
        seconds += chance.choice([0, 1, 1, 2])
        event = {"id": f"e{place}", "time": float(seconds), "type": chance.choice(letters), "w": chance.randint(0, 3)}
        event["user"] = chance.choice("uv")
        if place == 0 or chance.random() < 0.85:  # what a condition reads must exist once
            event["value"] = chance.randint(0, 5)
        events.append(event)
    return events


def _build_tree(chance: Random, letters: str, depth: int) -> Item:
    kind = chance.choice(["symbol", "sequence", "sequence", "choice", "repeat", "hidden"] if depth else ["symbol"])
    match kind:
        case "sequence":
            return Sequence(tuple(_build_tree(chance, letters, depth - 1) for _ in range(chance.randint(2, 3))))
        case "choice":
            return Choice(tuple(_build_tree(chance, letters, depth - 1) for _ in range(2)))
        case "hidden":
            return HiddenItem(_build_tree(chance, letters, depth - 1))
        case "repeat":
            part = _build_tree(chance, letters, 0)
            least = chance.randint(0, 2)
            most = chance.choice([None, None, max(least, 1) + chance.randint(0, 1)])
            return Repeat(part, least, most, chance.random() < 0.7)
    return Symbol(chance.choice(letters))


def _build_steps(chance: Random, letters: str) -> Sequence:
    names = list(letters)
    forbidden = names.pop() if len(names) > 2 and chance.random() < 0.4 else None
    items: list[Item] = [Symbol(name) for name in names]
    if forbidden:
        items.insert(chance.randint(1, len(items) - 1), AbsentSymbol(Symbol(forbidden)))
    return Sequence(tuple(items))


def _build_condition(chance: Random, symbols: list[str], own: str, depth: int) -> tuple[Any, ...]:
    kind = chance.choice(["compare", "compare", "compare", "and", "or", "not"]) if depth else "compare"
    if kind in ("and", "or"):
        return kind, *(_build_condition(chance, symbols, own, depth - 1) for _ in range(2))
    if kind == "not":
        return kind, _build_condition(chance, symbols, own, depth - 1)
    left = _build_term(chance, symbols) if chance.random() < 0.5 else ("own", "value")
    right = ("number", chance.randint(0, 6)) if chance.random() < 0.4 else _build_term(chance, symbols)
    return chance.choice(list(COMPARISONS)), left, right


def _build_term(chance: Random, symbols: list[str], measure: bool = False) -> tuple[Any, ...]:
    symbol = chance.choice([*symbols, *symbols, None])
    name = chance.choice(["value", "value", "w"])
    match chance.choice(["own", "prev", "count", "values", "navigate", "navigate", "aggregate", "product", "minus"]):
        case "own":
            return "own", name
        case "prev":
            return "prev", name
        case "count":
            return "count", symbol, None
        case "values":
            return "count", symbol, name
        case "navigate":
            return chance.choice(["first", "last"]), symbol, name, chance.choice([0, 0, 1, 2])
        case "aggregate":
            return chance.choice(list(AGGREGATES)), symbol, name
        case "product":
            return "product", chance.choice(["sum", "min", "max"]), symbol
    return "minus", ("last", symbol, name, 0), ("first", chance.choice(symbols), name, 0)
