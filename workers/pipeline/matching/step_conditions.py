"""Conditions between the steps of a plain sequence, and its measures, over whole columns.

A step has one event, so a condition such as `B.value > 10 * A.value` compares two rows. The functions that evaluate the
conditions of single events evaluate it for many pairs of rows at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.matching.retained import KEYED, Matches, format_read_name
from workers.pipeline.patterns.bindings import drop_infinite
from workers.pipeline.patterns.explanation import Explanation, compile_explanation
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.predicate import BoundExpression, evaluate_reference, format_previous_name
from workers.pipeline.patterns.references import EventReference
from workers.pipeline.patterns.scalars import list_values, read_place


@dataclass(frozen=True)
class StepConditions:
    """The conditions and measures of a pattern, by step. conditions: number of a step → its bound condition."""

    pattern: Pattern
    symbols: tuple[str, ...]
    conditions: Mapping[int, BoundExpression]

    @classmethod
    def build(cls, pattern: Pattern) -> "StepConditions | None":
        """Return the conditions, or None if they need more than one event of each step."""
        steps = pattern.plain or ()
        by_bit = {bit: symbol for symbol, bit in pattern.bits.items()}
        symbols = tuple(by_bit.get(step.bit, "") for step in steps)
        if not pattern.bindings or len(symbols) < 2 or "" in symbols or len(set(symbols)) < len(symbols):
            return None
        if set(pattern.bound_conditions) - set(symbols):
            return None  # a NOT compares events
        conditions = {symbols.index(symbol): condition for symbol, condition in pattern.bound_conditions.items()}
        for place, condition in conditions.items():
            if not all(_reads_step(reference, symbols[:place]) for reference in condition.references.values()):
                return None
        for measure in pattern.measures.values():
            if not all(_reads_step(reference, (*symbols, None)) for reference in measure.references.values()):
                return None
        return cls(pattern, symbols, conditions)

    def find_held(self, place: int, events: pa.RecordBatch, own: np.ndarray, taken: np.ndarray) -> np.ndarray:
        """Return whether a step's condition is true for each pair of an event and the events taken before it.

        own: rows of the events under test. taken: int64[pairs, steps], the rows of the earlier steps.
        """
        condition = self.conditions[place]
        columns = self._build_columns(condition, events, own, taken)
        held: np.ndarray = pc.fill_null(condition.evaluate(columns, len(own)), False).to_numpy(zero_copy_only=False)
        return held

    def evaluate(self, expression: BoundExpression, events: pa.RecordBatch, rows: np.ndarray) -> pa.Array:
        """Return the value of an expression of one event, for each event at these rows."""
        return expression.evaluate(self._build_columns(expression, events, rows, rows[:, None]), len(rows))

    def build_matches(self, events: pa.RecordBatch, rows: np.ndarray) -> Matches:
        """Return the matches in the order of completion. rows: int64[matches, steps], places in `events`."""
        rows = rows[np.argsort(rows[:, -1])]
        ends = np.arange(1, len(rows) + 1) * rows.shape[1]
        return Matches(
            events.select(KEYED.names).take(pa.array(rows.ravel())),
            ends,
            np.zeros(len(rows), bool),
            self._measure(events, rows),
            self._explain(events, rows) if self.pattern.emits else (),
        )

    def _measure(self, events: pa.RecordBatch, rows: np.ndarray) -> tuple[dict[str, Any], ...]:
        if not self.pattern.measures:
            return ()
        values = []
        for measure in self.pattern.measures.values():
            column = measure.evaluate(self._build_columns(measure, events, rows[:, -1], rows), len(rows))
            values.append([drop_infinite(value) for value in list_values(column)])
        return tuple(dict(zip(self.pattern.measures, of_match, strict=True)) for of_match in zip(*values, strict=True))

    def _explain(self, events: pa.RecordBatch, rows: np.ndarray) -> tuple[list[str], ...]:
        if not len(rows) or not self.conditions:
            return ()
        texts = []
        for place, condition in self.conditions.items():
            columns = self._build_columns(condition, events, rows[:, place], rows)
            explain = self._compile_explanation(place, tuple(columns))
            values = zip(*map(list_values, columns.values()), strict=True)
            texts.append([explain(row, ()) for row in values])
        return tuple(map(list, zip(*texts, strict=True)))

    def _compile_explanation(self, place: int, names: tuple[str, ...]) -> Explanation:
        readers = {name: read_place(at) for at, name in enumerate(names)}
        return compile_explanation(self.conditions[place].tree, self.symbols[place], readers)

    def _build_columns(
        self, expression: BoundExpression, events: pa.RecordBatch, own: np.ndarray, taken: np.ndarray
    ) -> dict[str, pa.Array]:
        """Return the columns that an expression reads of the event under test and of the events taken, per pair."""
        names = [*expression.columns, *map(format_previous_name, expression.previous)]
        columns = {name: _take(events, name, own) for name in names}
        for name, reference in expression.references.items():
            columns[name] = self._evaluate_reference(reference, events, taken)
        return columns

    def _evaluate_reference(self, reference: EventReference, events: pa.RecordBatch, taken: np.ndarray) -> pa.Array:
        if reference.symbol is None:
            rows = taken[:, 0 if reference.function == "first" else -1]
        else:
            rows = taken[:, self.symbols.index(reference.symbol)]
        names = [*reference.columns, *map(format_previous_name, reference.previous)]
        return evaluate_reference(reference, {name: _take(events, name, rows) for name in names}, len(rows))


def _reads_step(reference: EventReference, symbols: tuple[str | None, ...]) -> bool:
    """Return whether a reference is the value of the only event of one of these symbols."""
    return reference.function in ("first", "last") and reference.offset == 0 and reference.symbol in symbols


def _take(events: pa.RecordBatch, name: str, rows: np.ndarray) -> pa.Array:
    return events.column(format_read_name(name)).take(pa.array(rows))
