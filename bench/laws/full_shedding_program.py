"""Röger's linear program as printed: a share of every type at every pattern, and every pattern's output.

Variables: x_{p,T} in [0, 1], the share of type T that pattern p of the bottleneck processes; y_p, the output of each
pattern; and the flows of an OR's alternatives. Equations 8 to 14 are used row by row, without substitution.
`shedding_program` has to give the same result, thousands of times faster.
"""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from controllers.patterns.application import OperatorPattern
from controllers.patterns.selectivity import group_rows
from controllers.shedding.problem import Overload, SheddingProblem

Key = tuple[str, ...]
Row = dict[Key, float]


def find_best_solution(overload: Overload) -> tuple[float, float]:
    """Return the greatest value (weighted events/s) and the load in s/s of the solver's solution."""
    problem = SheddingProblem(overload)
    less, equal = _build_rows(problem)
    upper: dict[Key, float | None] = {}
    for row, _ in (*less, *equal):
        upper |= {key: 1.0 if key[0] == "x" else None for key in row}
    for pattern in problem.patterns:
        upper.setdefault(("y", pattern.name), pattern.limit)
        if pattern.limit is not None:
            upper["y", pattern.name] = pattern.limit
    at = {key: place for place, key in enumerate(upper)}
    cost = np.zeros(len(at))
    for pattern in problem.patterns:
        cost[at["y", pattern.name]] -= problem.weight[pattern.emits]
    matrices = [_build_matrix(rows, at) for rows in (less, equal)]
    solution = linprog(
        cost,
        A_ub=matrices[0],
        b_ub=[limit for _, limit in less],
        A_eq=matrices[1] if equal else None,
        b_eq=[limit for _, limit in equal] if equal else None,
        bounds=[(0, most) for most in upper.values()],
        method="highs",
    )
    budget = np.zeros(len(at))
    for key, seconds in _load(problem).items():
        budget[at[key]] = seconds
    return float(-solution.fun), float(budget @ solution.x)


def _build_matrix(rows: list[tuple[Row, float]], at: dict[Key, int]) -> coo_array:
    values = [value for row, _ in rows for value in row.values()]
    places = [[number for number, (row, _) in enumerate(rows) for _ in row]]
    places.append([at[key] for row, _ in rows for key in row])
    return coo_array((values, places), shape=(len(rows), len(at)))


def _load(problem: SheddingProblem) -> Row:
    """Return the seconds of work per second of each share: equation 3 times the arrivals."""
    return {
        _share(pattern, symbol): pattern.seconds * float(rate)
        for pattern in problem.bottleneck
        for symbol, rate in zip(pattern.symbols, problem.compute_offered(pattern), strict=True)
    }


def _share(pattern: OperatorPattern, symbol: str) -> Key:
    return ("x", pattern.name, symbol)


def _build_rows(problem: SheddingProblem) -> tuple[list[tuple[Row, float]], list[tuple[Row, float]]]:
    less: list[tuple[Row, float]] = [(_load(problem), problem.overload.budget)]
    equal: list[tuple[Row, float]] = []
    for pattern in problem.patterns:
        less += _build_selectivity_rows(problem, pattern)
        for group in group_rows(pattern.needs):
            shared: Row = {("v", pattern.name, str(part)): value for part, value in enumerate(group) if value}
            equal.append((shared, 0.0))
        # A pattern emits at most what its matches make.
        emitted: Row = {("y", pattern.name): 1.0, ("v", pattern.name, "0"): -pattern.gain}
        less.append((emitted, 0.0))
    return less, equal


def _build_selectivity_rows(problem: SheddingProblem, pattern: OperatorPattern) -> list[tuple[Row, float]]:
    """Add the limits of matches: for each type, what is admitted, or what others emit (10, 11)."""
    rows: list[tuple[Row, float]] = []
    for symbol, rate in zip(pattern.symbols, problem.compute_offered(pattern).tolist(), strict=True):
        row: Row = {
            ("v", pattern.name, str(place)): float(part.counts[symbol])
            for place, part in enumerate(pattern.needs.list_parts())
            if symbol in part.counts
        }
        limit = rate
        if pattern in problem.bottleneck:
            row[_share(pattern, symbol)], limit = -rate, 0.0
        else:
            emitters = [pattern_ for pattern_ in problem.patterns if pattern_.emits == symbol]
            row |= {("y", emitter.name): -1.0 for emitter in emitters}
        rows.append((row, limit))
    return rows
