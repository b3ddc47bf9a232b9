"""The values of bound events that conditions and measures read.

An attempt to match keeps no events for its conditions. It keeps a value for each *slot*: a count, sum, minimum, or
maximum, or as many of the first or last values of a symbol as are read. The slots of an attempt are a tuple of JSON
values, which the branches of the attempt can share. An event that is bound to a symbol updates the slots of the symbol
and the slots of all events.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from workers.pipeline.patterns import scalars
from workers.pipeline.patterns.explanation import Explanation, compile_explanation, compile_refutation
from workers.pipeline.patterns.predicate import BoundExpression, format_previous_name
from workers.pipeline.patterns.references import EventReference
from workers.pipeline.patterns.scalars import Bound, Row, Scalar

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


class Slot(NamedTuple):
    """The content of a slot. function: first, last, count, sum, min, or max. value: text of an event's value."""

    function: str
    symbol: str | None
    value: str


class Update(NamedTuple):
    """The update of a slot by an event. fold: takes the slot's old value and the event's value."""

    place: int
    fold: Callable[[Any, Any], Any]
    value: Scalar


@dataclass(frozen=True)
class BoundCondition:
    """The bound part of a symbol's condition. binds: it also reads the event under test as bound."""

    holds: Scalar
    binds: bool
    slots: frozenset[int]
    explain: Explanation
    refute: Explanation


class BindingPlan:
    """The slots of a pattern, and its conditions and measures as functions of them.

    conditions: by symbol, only those that refer to bound events. names: columns and `prev(column)` of an event's row.
    explains: an attempt also keeps the explanation of each condition, of the last event of its symbol.
    """

    def __init__(
        self, conditions: Mapping[str, BoundExpression], measures: Mapping[str, BoundExpression], explains: bool = False
    ) -> None:
        expressions = [*conditions.values(), *measures.values()]
        columns = frozenset[str]().union(*(expression.all_columns for expression in expressions))
        previous = frozenset[str]().union(*(expression.all_previous for expression in expressions))
        self.names = (*sorted(columns), *(format_previous_name(name) for name in sorted(previous)))
        self._row: dict[str, Scalar] = {name: scalars.read_place(place) for place, name in enumerate(self.names)}
        self._slots: dict[Slot, int] = {}
        self._depths: dict[Slot, int] = {}
        self._values: dict[Slot, Scalar] = {}
        self.conditions = {symbol: self._compile_condition(symbol, part) for symbol, part in conditions.items()}
        self.measures = {name: self._compile(part) for name, part in measures.items()}
        explained = self.conditions if explains else {}
        self._explained = {symbol: len(self._slots) + place for place, symbol in enumerate(explained)}

    def _compile_condition(self, symbol: str, expression: BoundExpression) -> BoundCondition:
        binds = any(reference.symbol in (symbol, None) for reference in expression.references.values())
        names = self._compile_names(expression)
        slots = [slot for reference in expression.references.values() for slot in self._list_slots(reference)]
        return BoundCondition(
            scalars.compile_scalar(expression.tree, names),
            binds,
            frozenset(self._slots[slot] for slot in slots),
            compile_explanation(expression.tree, symbol, names),
            compile_refutation(expression.tree, symbol, names),
        )

    def _compile(self, expression: BoundExpression) -> Scalar:
        return scalars.compile_scalar(expression.tree, self._compile_names(expression))

    def _compile_names(self, expression: BoundExpression) -> dict[str, Scalar]:
        references = {name: self._compile_reference(part) for name, part in expression.references.items()}
        return {**self._row, **references}

    def _compile_reference(self, reference: EventReference) -> Scalar:
        slots = self._list_slots(reference)
        if reference.function == "avg":
            return _divide_places(*(self._slots[slot] for slot in slots))
        if reference.function in ("first", "last"):
            self._depths[slots[0]] = max(self._depths.get(slots[0], 1), reference.offset + 1)
            return _read_offset(self._slots[slots[0]], reference.offset, reference.function == "last")
        return _read_bound(self._slots[slots[0]])

    def _list_slots(self, reference: EventReference) -> list[Slot]:
        """Add the slots that a reference reads to the plan, and return them."""
        functions = ("sum", "count") if reference.function == "avg" else (reference.function,)
        slots = [Slot(function, reference.symbol, reference.value_text) for function in functions]
        for slot in slots:
            if slot not in self._slots:
                self._slots[slot] = len(self._slots)
                is_event = reference.tree is None
                self._values[slot] = (
                    _get_one if is_event else scalars.compile_scalar(reference.tree, self._row)  # type: ignore[arg-type]
                )
        return slots

    @cached_property
    def empty(self) -> Bound:
        """Return the slots without any bound event."""
        empties = {"first": (), "last": (), "count": 0}
        slots = (empties.get(slot.function) for slot in self._slots)
        return (*slots, *(None for _ in self._explained))

    @cached_property
    def _updates(self) -> dict[str | None, tuple[Update, ...]]:
        updates: dict[str | None, list[Update]] = {}
        for slot, place in self._slots.items():
            fold = _build_fold(slot.function, self._depths.get(slot, 1))
            updates.setdefault(slot.symbol, []).append(Update(place, fold, self._values[slot]))
        return {symbol: tuple(parts) for symbol, parts in updates.items()}

    def take(self, bound: Bound, symbol: str, row: Row) -> Bound:
        """Return the slots, with the explanation, after an event was bound to a symbol whose condition it meets."""
        after = self._bind(bound, symbol, row)
        place = self._explained.get(symbol)
        if place is None:
            return after
        condition = self.conditions[symbol]
        text = condition.explain(row, after if condition.binds else bound)
        return (*after[:place], text, *after[place + 1 :])

    def _bind(self, bound: Bound, symbol: str, row: Row) -> Bound:
        updates = (*self._updates.get(symbol, ()), *self._updates.get(None, ()))
        if not updates:
            return bound
        slots = list(bound)
        for place, fold, value in updates:
            slots[place] = fold(slots[place], value(row, bound))
        return tuple(slots)

    def forget(self, bound: Bound, symbol: str) -> Bound:
        """Return the slots without the events of a symbol."""
        places = {update.place for update in self._updates.get(symbol, ())}
        return tuple(self.empty[place] if place in places else value for place, value in enumerate(bound))

    def holds(self, symbol: str, row: Row, bound: Bound) -> bool:
        """Return whether the bound part of a symbol's condition is true for an event."""
        condition = self.conditions[symbol]
        return condition.holds(row, self._bind(bound, symbol, row) if condition.binds else bound) is True

    def refute(self, symbol: str, row: Row, bound: Bound) -> str:
        """Return why the bound part of a symbol's condition isn't true for an event; an empty text if it is true."""
        condition = self.conditions[symbol]
        return condition.refute(row, self._bind(bound, symbol, row) if condition.binds else bound)

    def list_read_places(self, symbols: Iterable[str]) -> tuple[int, ...]:
        """Return the slots that the conditions of these symbols read."""
        conditions = (self.conditions[symbol] for symbol in symbols if symbol in self.conditions)
        return tuple(sorted(frozenset[int]().union(*(condition.slots for condition in conditions))))

    def explain(self, bound: Bound) -> list[str]:
        """Return the explanations of a match's conditions."""
        return [bound[place] for place in self._explained.values() if bound[place] is not None]

    def measure(self, bound: Bound) -> dict[str, Any]:
        """Return the measures of a match; None for missing values, and for values that JSON can't represent."""
        return {name: drop_infinite(value((), bound)) for name, value in self.measures.items()}


def _read_bound(place: int) -> Scalar:
    return lambda row, bound: scalars.drop_undefined(bound[place])


def _read_offset(place: int, offset: int, from_end: bool) -> Scalar:
    index = -1 - offset if from_end else offset

    def read(row: Row, bound: Bound) -> Any:
        values = bound[place]
        return values[index] if offset < len(values) else None

    return read


def _divide_places(total: int, count: int) -> Scalar:
    return lambda row, bound: scalars.divide(bound[total], bound[count]) if bound[count] else None


def _get_one(row: Row, bound: Bound) -> int:
    return 1


def _build_fold(function: str, depth: int) -> Callable[[Any, Any], Any]:
    """Return the update function of a slot. `first` and `last` keep missing values; other functions skip them."""
    if function == "first":
        return lambda values, value: values if len(values) == depth else (*values, value)
    if function == "last":
        return lambda values, value: (*values[-depth + 1 :], value) if depth > 1 else (value,)
    if function == "count":
        return lambda count, value: count if value is None else count + 1
    folds: Mapping[str, Callable[[Any, Any], Any]] = {"sum": scalars.add, "min": min, "max": max}
    fold = folds[function]
    return lambda before, value: before if value is None else value if before is None else fold(before, value)


def drop_infinite(value: Any) -> Any:
    """Return the value, or None for a number that JSON can't represent."""
    return None if _is_infinite(value) else value


def _is_infinite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def write_values(values: Iterable[Any]) -> list[Any]:
    """Return values as JSON. Numbers that JSON can't hold exactly become objects."""
    return [_write(value) for value in values]


def _write(value: Any) -> Any:
    if isinstance(value, tuple):
        return write_values(value)
    is_long = type(value) is int and not MIN_INT64 <= value <= MAX_INT64
    return {"number": repr(value)} if is_long or _is_infinite(value) else value


def read_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values that `write_values` has written."""
    return tuple(_read(value) for value in values)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return read_values(value)
    if isinstance(value, dict):
        text = value["number"]
        return float(text) if text.strip("-") in ("inf", "nan") else int(text)
    return value
