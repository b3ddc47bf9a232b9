"""The measure of an objective: its expressions, read and checked, and what they count in a second.

The language is that of the conditions of patterns (`workers.pipeline.patterns.predicate`), so `latency_p95_seconds <=
15 and wait_seconds <= 30` means the same here and there. A result that depends on an unknown figure is unknown, and
counts neither way; a false `wait_seconds <= 30` makes the whole of it false, regardless of the other part.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from common.errors import BadInput
from workers.objectives.figures import NAMES, Figures
from workers.pipeline.patterns.predicate import Predicate, Quantity, parse, parse_quantity

SECONDS, EVENTS = "s", "events"
Rates = tuple[float, float] | None  # (bad, counted) per second; None while unknown


@dataclass(frozen=True)
class Measure:
    """A measure of an objective.

    `condition`: true in a good second; None if `lost` says what is bad. `of`: what counts, per second; None:
    the second itself.
    """

    condition: Predicate | None
    lost: Quantity | None
    of: Quantity | None

    @property
    def unit(self) -> str:
        """Return what is counted: seconds, unless a figure says how much there is of something else."""
        return EVENTS if self.of is not None and self.of.columns else SECONDS

    @property
    def names(self) -> frozenset[str]:
        """Return the figures that it reads."""
        read = (self.condition, self.lost, self.of)
        return frozenset[str]().union(*(expression.columns for expression in read if expression is not None))

    def compute_rates(self, subjects: Sequence[Figures]) -> list[Rates]:
        """Return the rates of each subject; all at once, since there may be many."""
        count = len(subjects)
        columns = {name: pa.array([figures[name] for figures in subjects], pa.float64()) for name in self.names}
        totals = [1.0] * count if self.of is None else self.of.collect_values(columns, count).to_pylist()
        if self.lost is not None:
            pairs_of_rates = zip(self.lost.collect_values(columns, count).to_pylist(), totals, strict=True)
            return [_drop_unknown(bad, total) for bad, total in pairs_of_rates]
        assert self.condition is not None
        good = self.condition.compute_truth(columns, count).to_pylist()
        pairs = zip(good, totals, strict=True)
        return [_drop_unknown(None if kept is None else 0.0 if kept else total, total) for kept, total in pairs]


def _drop_unknown(bad: float | None, total: float | None) -> Rates:
    """Return None for a share of nothing, which is no number and counts as unknown."""
    if bad is None or total is None or not (math.isfinite(bad) and math.isfinite(total)) or total < 0:
        return None
    return max(bad, 0.0), total


def measure(kind: str, condition: str, lost: str, of: str) -> Measure:
    """Build a measure. Raises `BadInput` naming condition, lost, or of."""
    if bool(condition.strip()) == bool(lost.strip()):
        raise BadInput("condition", "must be set if `lost` is empty, and must be empty if `lost` is set.")
    if lost.strip() and not of.strip():
        raise BadInput("of", 'is missing: set the total that `lost` is a part of, such as offered_per_second, or "1".')
    measured = Measure(
        parse(condition, "condition") if condition.strip() else None,
        parse_quantity(lost, "lost") if lost.strip() else None,
        parse_quantity(of, "of") if of.strip() else None,
    )
    for field in ("condition", "lost", "of"):
        _check_names(kind, getattr(measured, field), field)
    if measured.of is not None and not measured.of.columns and not measured.of.collect_values({}, 1)[0].as_py() > 0:
        raise BadInput("of", "must be a total: a metric, or a number above 0, such as 1.")
    return measured


def _check_names(kind: str, expression: Predicate | Quantity | None, field: str) -> None:
    if expression is None:
        return
    if isinstance(expression, Predicate) and expression.previous:
        raise BadInput(field, "can't use prev(): each second is judged separately.")
    if unknown := sorted(expression.columns - set(NAMES[kind])):
        known = ", ".join(NAMES[kind])
        raise BadInput(field, f"{unknown[0][:40]!r} is not a metric of the {kind}; the metrics are {known}.")
    try:
        columns: Mapping[str, pa.Array] = {name: pa.array([1.0]) for name in NAMES[kind]}
        _ = (
            expression.compute_truth(columns, 1)
            if isinstance(expression, Predicate)
            else expression.collect_values(columns, 1)
        )
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        raise BadInput(
            field, "can't be calculated: metrics are numbers, and can be compared only with numbers."
        ) from None
