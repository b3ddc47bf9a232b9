"""How an objective is measured: its expressions, read and checked, and what they count in a second.

The language is that of the conditions of patterns (`workers.pipeline.patterns.predicate`), so
`latency_p95_seconds <= 15 and wait_seconds <= 30` reads alike here and there. What an unknown figure decides
is unknown, and counts neither way; `wait_seconds <= 30` that is false makes the whole of it false, whatever
the other says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from queues.errors import BadInput
from workers.objectives.figures import NAMES, Figures
from workers.pipeline.patterns.predicate import Predicate, Quantity, parse, parse_quantity

SECONDS, EVENTS = "s", "events"


@dataclass(frozen=True)
class Measure:
    """condition: true in a good second; None where `lost` says what is bad. of: what counts, per second;
    None: the second itself."""

    condition: Predicate | None
    lost: Quantity | None
    of: Quantity | None

    @property
    def unit(self) -> str:
        """What is counted: seconds, unless a figure says how much there is of something else."""
        return EVENTS if self.of is not None and self.of.columns else SECONDS

    def rates(self, figures: Figures) -> tuple[float, float] | None:
        """(bad, counted) per second; None while that is not known. No more is bad than there is."""
        columns = {name: pa.array([value], pa.float64()) for name, value in figures.items()}
        total = 1.0 if self.of is None else _first(self.of.values(columns, 1))
        if self.lost is not None:
            bad = _first(self.lost.values(columns, 1))
        else:
            assert self.condition is not None
            good = self.condition.truth(columns, 1)[0].as_py()
            bad = None if good is None or total is None else (0.0 if good else total)
        if bad is None or total is None or not total >= 0:
            return None
        return min(max(bad, 0.0), total), total


def _first(column: pa.DoubleArray) -> float | None:
    value = column[0].as_py()
    # A share of nothing is no number, and says as little as what is not known.
    return value if value is not None and abs(value) < float("inf") else None


def measure(kind: str, condition: str, lost: str, of: str) -> Measure:
    """Raises BadInput naming condition, lost or of."""
    if bool(condition.strip()) == bool(lost.strip()):
        raise BadInput("condition", "takes what holds in a good second, or lost what is bad; one of both.")
    if lost.strip() and not of.strip():
        raise BadInput(
            "of", 'is missing: it says of how much that is lost, such as offered_per_second, or "1".'
        )
    found = Measure(
        parse(condition, "condition") if condition.strip() else None,
        parse_quantity(lost, "lost") if lost.strip() else None,
        parse_quantity(of, "of") if of.strip() else None,
    )
    for field in ("condition", "lost", "of"):
        _check_names(kind, getattr(found, field), field)
    return found


def _check_names(kind: str, expression: Predicate | Quantity | None, field: str) -> None:
    if expression is None:
        return
    if isinstance(expression, Predicate) and expression.previous:
        raise BadInput(field, "takes no prev(): each second is judged by itself.")
    if unknown := sorted(expression.columns - set(NAMES[kind])):
        known = ", ".join(NAMES[kind])
        raise BadInput(field, f"{unknown[0][:40]!r} is no figure of the {kind}; there are {known}.")
    try:
        columns: Mapping[str, pa.Array] = {name: pa.array([1.0]) for name in NAMES[kind]}
        _ = (
            expression.truth(columns, 1)
            if isinstance(expression, Predicate)
            else expression.values(columns, 1)
        )
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        raise BadInput(field, "compares or calculates with a text; every figure is a number.") from None
