"""The optimal flows of matches piece by piece, if a bottleneck's patterns share only its budget.

The value of a pattern's matches is then a concave, piecewise linear function of their flow: a sink's weight, and the
value that the consumers of its output add, until something else that they need runs out. Taking the pieces in the order
of value per second of work is exact, as in every fractional knapsack. Pieces without value are left out, so among equal
optima this is the least load.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controllers.patterns.application import OperatorPattern
from controllers.shedding.problem import SheddingProblem


@dataclass(frozen=True)
class _Piece:
    """A linear piece of a concave gain: `width` matches/s, each worth `slope`."""

    width: float
    slope: float


def solve_piecewise(problem: SheddingProblem) -> dict[str, list[float]] | None:
    """Return the flows by taking the best pieces first, or None if the structure does not allow it."""
    if not _is_separable(problem):
        return None
    pieces, gains = [], _compute_gains(problem)
    for pattern in problem.bottleneck:
        most, cost = cap(problem, pattern), problem.compute_cost(pattern, pattern.needs)
        for piece in _cut(gains[pattern.name], most):
            if piece.slope > 0 and piece.width > 0:
                pieces.append((piece.slope / cost if cost else np.inf, cost, piece.width, pattern.name))
    flows, left = dict.fromkeys((pattern.name for pattern in problem.patterns), 0.0), problem.budget
    for _, cost, width, name in sorted(pieces, key=lambda piece: (-piece[0], piece[3])):
        taken = width if cost * width <= left else left / cost
        flows[name] += taken
        left = max(0.0, left - cost * taken)
    return {name: [flow] for name, flow in flows.items()}


def _is_separable(problem: SheddingProblem) -> bool:
    """Return whether the problem is separable.

    This requires that there are no alternatives, that no two patterns emit the same type, and that at most one of the
    types of each pattern varies.
    """
    application = problem.overload.application
    if len(problem.varying) < len(problem.patterns) or not all(pattern.is_plain for pattern in problem.patterns):
        return False
    taken = [consumer.name for symbol in problem.varying for consumer in application.consumers[symbol]]
    return len(set(taken)) == len(taken) and not {pattern.name for pattern in problem.bottleneck} & set(taken)


def _list_consuming_patterns(problem: SheddingProblem, symbol: str) -> list[OperatorPattern]:
    ours = {pattern.name for pattern in problem.patterns}
    return [consumer for consumer in problem.overload.application.consumers[symbol] if consumer.name in ours]


def cap(problem: SheddingProblem, pattern: OperatorPattern, but: frozenset[str] = frozenset()) -> float:
    """Return the maximum matches/s that a plain pattern's types (except those in `but`) and limit allow."""
    ratios = problem.compute_offered(pattern) / pattern.counts
    if but:
        application = problem.overload.application
        ratios = ratios[~application.mask(but)[application.places[pattern.name]]]
    limit = np.inf if pattern.limit is None or pattern.gain == 0 else pattern.limit / pattern.gain
    return float(min(ratios.min(initial=np.inf), limit))


def _compute_gains(problem: SheddingProblem) -> dict[str, list[_Piece]]:
    """Return the value of each pattern's matches, computed downstream first."""
    pieces: dict[str, list[_Piece]] = {}
    for pattern in reversed(problem.patterns):
        pieces[pattern.name] = _compute_gain(problem, pattern, pieces)
    return pieces


def _compute_gain(
    problem: SheddingProblem, pattern: OperatorPattern, gains: Mapping[str, Sequence[_Piece]]
) -> list[_Piece]:
    """Return the concave value of the pattern's matches, as pieces with decreasing slope.

    gains: the values of the consumers' matches.
    """
    if pattern.gain == 0:
        return []
    curves = [[_Piece(np.inf, problem.weight[pattern.emits] * pattern.gain)]]
    for consumer in _list_consuming_patterns(problem, pattern.emits):
        # One match here makes gain / count matches there.
        ratio = pattern.gain / consumer.needs.counts[pattern.emits]
        most = cap(problem, consumer, but=frozenset((pattern.emits,)))
        beyond = _cut(gains[consumer.name], most)
        curves.append([_Piece(piece.width / ratio, piece.slope * ratio) for piece in beyond])
    return list(_sum_curves(curves))


def _cut(pieces: Sequence[_Piece], width: float) -> Iterator[_Piece]:
    for piece in pieces:
        yield _Piece(min(piece.width, width), piece.slope)
        width -= piece.width
        if width <= 0:
            return


def _sum_curves(curves: Sequence[Sequence[_Piece]]) -> Iterator[_Piece]:
    """Yield the sum of concave curves; a curve is flat beyond its end."""
    ends = [np.cumsum([piece.width for piece in curve]) for curve in curves]
    start = 0.0
    for end in np.unique(np.concatenate(ends)):
        slope = 0.0
        for curve, stops in zip(curves, ends, strict=True):
            at = int(np.searchsorted(stops, start, side="right"))
            slope += curve[at].slope if at < len(curve) else 0.0
        yield _Piece(float(end) - start, slope)
        start = float(end)
