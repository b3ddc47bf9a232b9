"""The optimal flows of matches piece by piece, if a bottleneck's patterns share only its budget.

The value of a pattern's matches is then a concave, piecewise linear function of their flow: a sink's weight, and the
value that the consumers of its output add, until something else that they need runs out. Taking the pieces in the order
of value per second of work is exact, as in every fractional knapsack. Pieces without value are left out, so among equal
optima this is the least load.

The globally optimal load shedding: which share of which type each pattern of the bottleneck receives.

Röger's program has one variable per type and pattern. At its optimum no surplus is admitted: a pattern that makes y
matches takes n_T y of each type (ERRATA E23). The remaining variables are the flows v of matches, one per conjunction,
of the bottleneck's patterns and of those that take their output:

    maximize   Σ_T weight_T Σ_{p emits T} g_p v_p                    global: over what the sinks take
               Σ_{p at the bottleneck} g_p v_p                       local: what the bottleneck emits
    such that  Σ_c n_{T,c} v_c ≤ λ_T + Σ_{p emits T} g_p v_p         for each pattern and type T it takes
               Σ_{c in group} v_c = v_parent                         for each OR
               g_p v_p ≤ limit_p
               Σ_{p at the bottleneck} seconds_p Σ_T n_T v_p ≤ budget

with g = correction * outputs. Among equal optima, the least load wins. If no two variables share anything but the
budget, the program is a knapsack with concave gains, and the best pieces are taken one by one: this is exact, and
faster than any solver. A protected type is never shed: its cost is deducted first, and using it is free.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from controllers.patterns.application import Floats, OperatorPattern
from controllers.patterns.selectivity import group_rows
from controllers.shedding.problem import Flows, Overload, SheddingProblem, Table


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


# Tolerance of the second program on the value of the first, so that rounding does not make it infeasible.
VALUE_RETAINED = 1 - 1e-12
TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class SolverError(RuntimeError):
    """The program has a solution (admit nothing), but the solver found none."""


def solve(overload: Overload) -> list[Table]:
    """Return the optimal table of each pattern at the bottleneck.

    Everything is admitted if it fits the budget. Raise `SolverError` if the solver gives no answer.
    """
    problem = SheddingProblem(overload)
    whole = problem.build_full_tables()
    if sum(table.load for table in whole) <= overload.budget:
        return whole
    flows = solve_piecewise(problem)
    return problem.build_tables(solve_by_programs(problem) if flows is None else flows)


def solve_by_programs(problem: SheddingProblem) -> Flows:
    """Return the flows from linear programs: first the greatest value, then the least load that keeps it."""
    program = _Program(problem)
    best = program.minimise(-program.value)
    value = float(program.value @ best)
    least = program.minimise(program.load, keeping=value * VALUE_RETAINED) if value > 0 else best * 0
    return program.extract_flows(least)


class _Program:
    def __init__(self, problem: SheddingProblem) -> None:
        self.problem = problem
        self.parts = [(pattern, part) for pattern in problem.patterns for part in pattern.needs.list_parts()]
        starts = np.cumsum([0, *(len(pattern.needs.list_parts()) for pattern in problem.patterns)])
        self.root = {pattern.name: int(at) for pattern, at in zip(problem.patterns, starts, strict=False)}
        self.value, self.upper = np.zeros(len(self.parts)), np.full(len(self.parts), np.inf)
        self.load = np.asarray([problem.compute_cost(pattern, part) for pattern, part in self.parts])
        self.rows = _Rows(len(self.parts))
        for pattern in problem.patterns:
            self.value[self.root[pattern.name]] += problem.weight[pattern.emits] * pattern.gain
            self._add_supply_rows(pattern)
        spending = np.flatnonzero(self.load)
        self.rows.add(dict(zip(spending.tolist(), self.load[spending].tolist(), strict=True)), problem.budget)
        self.equal = self._build_group_rows()

    def _add_supply_rows(self, pattern: OperatorPattern) -> None:
        """Add Σ n v - Σ g v ≤ λ; of a plain pattern's constant types, only the scarcest needs a bound."""
        at, varying = self.root[pattern.name], self.problem.varying
        if pattern.is_plain:
            self.upper[at] = cap(self.problem, pattern, but=varying)
        elif pattern.limit is not None and pattern.gain > 0:
            self.upper[at] = pattern.limit / pattern.gain
        offered = dict(zip(pattern.symbols, self.problem.compute_offered(pattern).tolist(), strict=True))
        for symbol in pattern.symbols if not pattern.is_plain else varying.intersection(pattern.symbols):
            row = {
                place: float(part.counts[symbol])
                for place, part in enumerate(pattern.needs.list_parts(), at)
                if symbol in part.counts
            }
            for emitter in self.problem.patterns:
                if emitter.emits == symbol:
                    row[self.root[emitter.name]] = -emitter.gain
            self.rows.add(row, offered[symbol])

    def _build_group_rows(self) -> Floats | None:
        blocks = []
        for pattern in self.problem.patterns:
            block = group_rows(pattern.needs)
            if len(block):
                rows = np.zeros((len(block), len(self.parts)))
                rows[:, self.root[pattern.name] : self.root[pattern.name] + block.shape[1]] = block
                blocks.append(rows)
        return np.vstack(blocks) if blocks else None

    def minimise(self, cost: Floats, keeping: float | None = None) -> Floats:
        """Return the flows of least cost (with at least that value). Raise `SolverError`."""
        takes, limits = self.rows.build_matrix(), np.asarray(self.rows.limits)
        if keeping is not None:
            takes, limits = (
                scipy.sparse.vstack([takes, scipy.sparse.csr_array([-self.value])]),
                np.append(limits, -keeping),
            )
        solution = scipy.optimize.linprog(
            cost,
            A_ub=takes,
            b_ub=limits,
            A_eq=self.equal,
            b_eq=None if self.equal is None else np.zeros(len(self.equal)),
            bounds=np.column_stack([np.zeros(len(cost)), self.upper]),
            method="highs-ds",
            options=TOLERANCES,
        )
        if not solution.success:
            raise SolverError(solution.message)
        return np.asarray(solution.x)

    def extract_flows(self, solution: Floats) -> Flows:
        return {
            pattern.name: solution[at : at + len(pattern.needs.list_parts())].tolist()
            for pattern, at in ((pattern_, self.root[pattern_.name]) for pattern_ in self.problem.patterns)
        }


class _Rows:
    def __init__(self, width: int) -> None:
        self.width, self.limits = width, list[float]()
        self.at: list[tuple[int, int]] = []
        self.values: list[float] = []

    def add(self, row: dict[int, float], limit: float) -> None:
        self.at += [(len(self.limits), column) for column in row]
        self.values += row.values()
        self.limits.append(limit)

    def build_matrix(self) -> "scipy.sparse.csr_array":
        places = np.asarray(self.at, dtype=int).reshape(-1, 2).T
        shape = (len(self.limits), self.width)
        return scipy.sparse.coo_array((np.asarray(self.values), (places[0], places[1])), shape=shape).tocsr()
