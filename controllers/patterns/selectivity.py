"""The events that one match of a pattern needs, as load shedding sees it.

The order is ignored: a SEQ needs what an AND needs (Röger, VII-C, the remark on sequences). Nested SEQ and AND
therefore merge into one conjunction whose counts add up (ERRATA E22: AND(A, SEQ(A;A;B)) needs A three times). An OR
stays a group of alternatives. A repeated item counts with its minimum; an item that may or must be absent does not
count.

Selectivity of conditional operators: matches per second, from the events per second of each type.

For a conjunction with counts n_T and groups of alternatives G (Röger, Table I, with ERRATA E22):

    y = min( min_T λ_T / n_T ,  min_G Σ_{c ∈ G} y_c )

if no type is used at two places. Otherwise the events of such a type are divided for the maximum output, by a linear
program: maximize v_root over flows v ≥ 0 with Σ_c n_{T,c} v_c ≤ λ_T for each type, and Σ_{c ∈ G} v_c = v_parent for
each group. Rates are events/s; a type without a rate does not arrive.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from common.errors import BadInput
from common.parameter import Parameter, read_document
from controllers.framework.decision import Json
from controllers.patterns import expression
from controllers.patterns.expression import AbsentSymbol, Choice, HiddenItem, Item, Repeat, Symbol


@dataclass(frozen=True)
class Needs:
    """The needs of one match: `counts[type]` events of each type, and one alternative of every group."""

    counts: Mapping[str, float]
    groups: tuple[tuple["Needs", ...], ...] = ()

    @property
    def size(self) -> float:
        """Return the number of events that one match takes, without those of the groups."""
        return sum(self.counts.values())

    def list_parts(self) -> tuple["Needs", ...]:
        below = (part for group in self.groups for alternative in group for part in alternative.list_parts())
        return (self, *below)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Return the types that it may take, in order of appearance and without duplicates."""
        return tuple(dict.fromkeys(symbol for part in self.list_parts() for symbol in part.counts))


@lru_cache(maxsize=4096)
def needs_of(text: str, field: str = "expression") -> Needs:
    """Return the needs of a match of the pattern. Raise `BadInput` for `field`, with the position."""
    return _compute_needs(expression.parse(text, field).root)


def _compute_needs(item: Item) -> Needs:
    match item:
        case Symbol(name):
            return Needs({name: 1})
        case AbsentSymbol():
            return Needs({})
        case HiddenItem(part):
            return _compute_needs(part)
        case Repeat(part, least, _, _):
            once = _compute_needs(part)
            if not once.groups:
                return Needs({name: least * count for name, count in once.counts.items()} if least else {})
            return _add_needs([once, *(_compute_needs(part) for _ in range(least - 1))] if least else [])
        case Choice(items):
            return _simplify_alternatives([_compute_needs(part) for part in items])
        case expression.Sequence(items) | expression.Conjunction(items):
            return _add_needs([_compute_needs(part) for part in items])


def _add_needs(parts: list[Needs]) -> Needs:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    return Needs(dict(counts), tuple(group for part in parts for group in part.groups))


def _simplify_alternatives(parts: list[Needs]) -> Needs:
    """Simplify an OR.

    An OR inside an OR merges with it, an OR with one alternative becomes that alternative, and an OR with an
    alternative that needs nothing needs nothing.
    """
    flat = [
        group
        for part in parts
        for group in (part.groups[0] if (not part.counts and len(part.groups) == 1) else (part,))
    ]
    if any(not piece.counts and not piece.groups for piece in flat):
        return Needs({})
    return flat[0] if len(flat) == 1 else Needs({}, (tuple(flat),))


# Relative decrease of a type's rate that tests whether it limits the output, and the minimum relative
# decrease of the output that counts.
NUDGE, FOLLOWS = 1e-6, 1e-10
RATE = Parameter("rate", "events/s", "Arrival rate of the type.", maximum=1e15)
INPUT = (
    Parameter("expression", "pattern", "Expression that defines a match.", kind="text", required=True),
    Parameter("rates", "events/s", "Arrival rate of each type.", kind="map", required=True, items=(RATE,)),
)


def compute_output_rate(expression: Needs, rates: Mapping[str, float]) -> float:
    """Return the matches per second, in the unit of the rates; see the module for the formula."""
    used = Counter(symbol for part in expression.list_parts() for symbol in part.counts)
    if max(used.values()) > 1:
        return _compute_by_program(expression, rates)
    return _compute_closed_form(expression, rates)


def _compute_closed_form(expression: Needs, rates: Mapping[str, float]) -> float:
    own = (rates.get(symbol, 0.0) / count for symbol, count in expression.counts.items())
    groups = (sum(_compute_closed_form(alternative, rates) for alternative in group) for group in expression.groups)
    return float(min((*own, *groups)))


def _compute_by_program(expression: Needs, rates: Mapping[str, float]) -> float:
    parts, symbols = expression.list_parts(), expression.symbols
    takes = [[part.counts.get(symbol, 0) for part in parts] for symbol in symbols]
    limits = [rates.get(symbol, 0.0) for symbol in symbols]
    scale = max(limits) or 1.0
    equal = group_rows(expression)
    solution = scipy.optimize.linprog(
        [-1.0] + [0.0] * (len(parts) - 1),
        A_ub=takes,
        b_ub=np.asarray(limits) / scale,
        A_eq=equal if len(equal) else None,
        b_eq=np.zeros(len(equal)) if len(equal) else None,
        method="highs-ds",
    )
    return float(-solution.fun * scale)


def group_rows(expression: Needs) -> NDArray[np.float64]:
    """Return a row per group over `parts()`: +1 at the flow of each alternative, -1 at its parent."""
    parts = expression.list_parts()
    # Compare by identity, because equal alternatives are separate places.
    place = {id(part): at for at, part in enumerate(parts)}
    rows = []
    for part in parts:
        for group in part.groups:
            row = np.zeros(len(parts))
            row[place[id(part)]] = -1.0
            for alternative in group:
                row[place[id(alternative)]] += 1.0
            rows.append(row)
    return np.asarray(rows)


def find_bottleneck_types(expression: Needs, rates: Mapping[str, float]) -> list[str]:
    """Return the types whose rate limits the output: fewer of their events make fewer matches."""
    whole = compute_output_rate(expression, rates)
    if whole == 0:
        return [symbol for symbol in expression.symbols if rates.get(symbol, 0.0) == 0]
    limiting = []
    for symbol in expression.symbols:
        less = {**rates, symbol: rates.get(symbol, 0.0) * (1 - NUDGE)}
        if compute_output_rate(expression, less) < whole * (1 - FOLLOWS):
            limiting.append(symbol)
    return limiting


def answer(document: object) -> dict[str, Json]:
    """Answer `manage.py design selectivity`: {expression, rates} → {output_rate, bottleneck_types}.

    Raise `BadInput` naming the field. A type of the expression without a rate is an error, because it would be treated
    as a type that never arrives.
    """
    given = read_document(INPUT, document)
    expression = needs_of(given["expression"], "expression")
    if not expression.symbols:
        raise BadInput("expression", "must require at least one event")
    for symbol in expression.symbols:
        if symbol not in given["rates"]:
            raise BadInput(f"rates.{symbol}", f"is missing; it {RATE.takes()}")
    rates = {symbol: float(rate) for symbol, rate in given["rates"].items()}
    return {
        "output_rate": compute_output_rate(expression, rates),
        "bottleneck_types": find_bottleneck_types(expression, rates),
    }
