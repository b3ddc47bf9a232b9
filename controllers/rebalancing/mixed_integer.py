"""The MILP rebalancer: a small rebalancing as a mixed-integer program, solved by HiGHS.

It uses scipy.optimize.milp. For a container c = (queue, source) and a receiver t, with p_c points of rate per
point r_q:

    f[c,t] integer   points moved                  y[c,t] binary   whether any move
    g[c]   binary    the container is emptied      w[q,t] binary   t becomes a holder of q

    least·y ≤ f ≤ p_c·y                       no splinter arrives
    least·(1-g) ≤ p_c - Σ_t f[c,t] ≤ p_c·(1-g)   none stays (an emptied drained container: g = 1)
    holders_q - Σ_c g[c] + Σ_t w[q,t] ≥ minimum_q,   w[q,t] ≤ Σ_c y[c,t]
    y[c,t] ≤ d[c],   y[c',c] ≤ 1-d[c]                  a container gives or takes, but not both
    load_n - Σ r·f[n→] + Σ r·f[→n] ≤ limit_n          for every node (times z, if z is minimized)

Cost "points": Σ f, then moves, then new holders. Cost "moves": Σ y, then new holders, then points. Cost "worst": z.

The search ends after a number of branches, not after a time, so that a replay of an observation on a slower machine
gives the same decision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy

from controllers.framework.solver import minimise
from controllers.rebalancing.allocation import Allocation, Flags, Floats, IndexedMove, iterate_containers
from controllers.rebalancing.greedy import MoveRules

Goal = Literal["points", "moves", "worst"]
NEW_HOLDER = 0.01


@dataclass(frozen=True)
class MoveProblem:
    """The allowed moves and the limits to keep. `givers` and `receivers` are flags over nodes."""

    allocation: Allocation
    rules: MoveRules
    limits: Floats
    givers: Flags
    receivers: Flags
    at_most: int | None = None  # maximum points ("points") or moves ("moves") of a useful answer


@dataclass(frozen=True)
class Answer:
    """Moves, and z: the worst node's load as a share of its limit (only for the goal "worst")."""

    moves: list[IndexedMove]
    worst: float


class _Rows:
    """Sparse constraint rows low ≤ A·x ≤ high, collected one by one."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        row = len(self.low)
        self.entries += [(row, column, value) for column, value in terms]
        self.low.append(low)
        self.high.append(high)

    def build_constraint(self, columns: int) -> "scipy.optimize.LinearConstraint":
        rows, cols, values = zip(*self.entries, strict=True)
        matrix = scipy.sparse.coo_array((values, (rows, cols)), shape=(len(self.low), columns)).tocsr()
        return scipy.optimize.LinearConstraint(matrix, self.low, self.high)


class _Model:
    """The columns: f, then y (both over `routes`), g over sources, w over arrivals, d over `gives`, and z."""

    def __init__(self, problem: MoveProblem, routes: Sequence[tuple[int, int, int]]) -> None:
        self.problem = problem
        self.routes = routes
        sources = sorted({(queue, source) for queue, source, _ in self.routes})
        held = problem.allocation.points
        arrivals = sorted({(q, target) for q, _, target in self.routes if target not in held[q]})
        count = len(self.routes)
        self.emptied = {source: 2 * count + i for i, source in enumerate(sources)}
        self.arrives = {route: 2 * count + len(sources) + i for i, route in enumerate(arrivals)}
        first = 2 * count + len(sources) + len(arrivals)
        through = sorted({(q, target) for q, _, target in routes} & set(sources))
        self.gives = {source: first + i for i, source in enumerate(through)}
        self.columns = first + len(through) + 1
        self.worst = self.columns - 1

    def get_used_index(self, route: int) -> int:
        return len(self.routes) + route

    def get_held_index(self, queue: int, source: int) -> int:
        return self.problem.allocation.points[queue][source]

    def collect_rows(self, goal: Goal) -> _Rows:
        rows = _Rows()
        self._add_splinter_rows(rows)
        self._add_minimum_container_rows(rows)
        self._add_limit_rows(rows, goal)
        self._one_direction(rows)
        if self.problem.at_most is not None and goal != "worst":
            first = 0 if goal == "points" else len(self.routes)
            rows.add([(first + route, 1.0) for route in range(len(self.routes))], 0, self.problem.at_most)
        return rows

    def _add_splinter_rows(self, rows: _Rows) -> None:
        least = self.problem.rules.minimum_points
        for route, (queue, source, _) in enumerate(self.routes):
            held = self.get_held_index(queue, source)
            rows.add([(route, 1), (self.get_used_index(route), -min(least, held))], 0, np.inf)
            rows.add([(route, 1), (self.get_used_index(route), -held)], -np.inf, 0)
        for (queue, source), column in self.emptied.items():
            held = self.get_held_index(queue, source)
            leaving = [(route, 1.0) for route, (q, s, _) in enumerate(self.routes) if (q, s) == (queue, source)]
            rows.add([*leaving, (column, -held)], 0, np.inf)
            rows.add([*leaving, (column, -min(least, held))], -np.inf, held - min(least, held))

    def _add_minimum_container_rows(self, rows: _Rows) -> None:
        allocation = self.problem.allocation
        for (queue, target), column in self.arrives.items():
            arriving = [
                (self.get_used_index(w), -1.0) for w, (q, _, t) in enumerate(self.routes) if (q, t) == (queue, target)
            ]
            rows.add([(column, 1.0), *arriving], -np.inf, 0)
        for queue in {queue for queue, _ in self.emptied}:
            terms = [(column, -1.0) for (q, _), column in self.emptied.items() if q == queue]
            terms += [(column, 1.0) for (q, _), column in self.arrives.items() if q == queue]
            holders = len(allocation.points[queue])
            rows.add(terms, min(allocation.minimum[queue], holders) - holders, np.inf)

    def _one_direction(self, rows: _Rows) -> None:
        for route, (queue, source, target) in enumerate(self.routes):
            if (gives := self.gives.get((queue, source))) is not None:
                rows.add([(self.get_used_index(route), 1.0), (gives, -1.0)], -np.inf, 0)
            if (gives := self.gives.get((queue, target))) is not None:
                rows.add([(self.get_used_index(route), 1.0), (gives, 1.0)], -np.inf, 1)

    def _add_limit_rows(self, rows: _Rows, goal: Goal) -> None:
        problem = self.problem
        terms: list[list[tuple[int, float]]] = [[] for _ in problem.allocation.nodes]
        for route, (queue, source, target) in enumerate(self.routes):
            load = float(problem.allocation.rate_per_point[queue])
            terms[source].append((route, -load))
            terms[target].append((route, load))
        for node, limit in enumerate(problem.limits):
            if not problem.allocation.available[node]:
                continue  # bounds of its containers empty a drained node; OFFLINE nodes carry nothing
            load, limit = float(problem.allocation.loads[node]), float(limit)
            if goal == "worst":
                rows.add([*terms[node], (self.worst, -limit)], -np.inf, -load)
            elif terms[node]:
                rows.add(terms[node], -np.inf, limit - load)

    def compute_bounds(self) -> "scipy.optimize.Bounds":
        low, high = np.zeros(self.columns), np.ones(self.columns)
        for route, (queue, source, _) in enumerate(self.routes):
            high[route] = self.get_held_index(queue, source)
        for (_, source), column in self.emptied.items():
            low[column] = float(self.problem.allocation.drained[source])
        high[self.worst] = np.inf
        return scipy.optimize.Bounds(low, high)

    def compute_cost(self, goal: Goal) -> Floats:
        cost = np.zeros(self.columns)
        count = len(self.routes)
        if goal == "worst":
            cost[self.worst] = 1.0
            return cost
        cost[:count] = 1.0 if goal == "points" else 1e-6
        cost[count : 2 * count] = 0.1 if goal == "points" else 1.0
        for column in self.arrives.values():
            cost[column] = NEW_HOLDER
        return cost


def count_routes(problem: MoveProblem) -> int:
    """Return the maximum number of (container, receiver) pairs of the program, without building it."""
    held = sum(len(problem.allocation.at_node[node]) for node in np.flatnonzero(problem.givers))
    return held * int((problem.receivers & problem.allocation.available).sum())


def solve(problem: MoveProblem, goal: Goal, branches: int, gap: float = 0.0) -> Answer | None:
    """Return the best moves found within `branches`, or None if there are none (or none were found).

    The first attempt uses divisible points, which is ten times faster, and then whole points on the routes of that
    answer. Whole points on all routes are tried only if that fails.
    """
    routes = _list_routes(problem)
    divisible = _solve(_Model(problem, routes), goal, branches, gap, whole=False)
    if divisible is None:
        return None
    taken = [route for route, points in zip(routes, divisible[0], strict=True) if points > 0.5]
    for some in (taken, routes):
        whole = _solve(_Model(replace(problem, at_most=None), some), goal, branches, gap, whole=True)
        if whole is not None:
            moved = np.rint(whole[0]).astype(int)
            moves = [IndexedMove(*route, int(points)) for route, points in zip(some, moved, strict=True) if points]
            return Answer(moves, whole[1])
    return None


def compute_lower_bound(problem: MoveProblem, goal: Goal, branches: int) -> float | None:
    """Return a lower bound of the cost (points or moves, without the small costs), or None."""
    model = _Model(problem, _list_routes(problem))
    cost = np.zeros(model.columns)
    first = 0 if goal == "points" else len(model.routes)
    cost[first : first + len(model.routes)] = 1.0
    integrality = np.ones(model.columns)
    integrality[: len(model.routes)] = 0
    integrality[model.worst] = 0
    if goal == "points":
        integrality[:] = 0  # Whole points and minimum pieces only increase the cost.
    result = minimise(
        cost,
        integrality=integrality,
        bounds=model.compute_bounds(),
        constraints=model.collect_rows(goal).build_constraint(model.columns),
        options={"node_limit": branches},
    )
    # Without integers it is a linear program, whose value is its own bound.
    least = result.fun if goal == "points" else result.mip_dual_bound
    return None if least is None or result.status == 2 else math.ceil(float(least) - 1e-6)


def _solve(model: _Model, goal: Goal, branches: int, gap: float, whole: bool) -> tuple[Floats, float] | None:
    if not model.routes:
        return None
    integrality = np.ones(model.columns)
    integrality[: len(model.routes)] = whole
    integrality[model.worst] = 0
    result = minimise(
        model.compute_cost(goal),
        integrality=integrality,
        bounds=model.compute_bounds(),
        constraints=model.collect_rows(goal).build_constraint(model.columns),
        options={"node_limit": branches, "mip_rel_gap": gap, "presolve": True},
    )
    return None if result.x is None else (result.x[: len(model.routes)], float(result.x[model.worst]))


def _list_routes(problem: MoveProblem) -> list[tuple[int, int, int]]:
    allocation, rules = problem.allocation, problem.rules
    targets = [int(target) for target in np.flatnonzero(problem.receivers & allocation.available)]
    return [
        (queue, source, target)
        for queue, source, held in iterate_containers(allocation)
        if problem.givers[source] and not allocation.offline[source]
        for target in targets
        if target != source and (queue, source, target) not in rules.returns
        # A splinter joins an existing container; only a drained node's splinter may go anywhere.
        if held >= rules.minimum_points or target in allocation.points[queue] or allocation.drained[source]
    ]
