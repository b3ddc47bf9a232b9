"""The search for moves after which every node keeps its limit, by the greedy or the MILP rebalancer.

The greedy rebalancer (`greedy`) is tried in a few variants. Its answer is compared with a lower bound; if it meets the
bound it is optimal, and the search ends. Otherwise, if the problem is small enough, the MILP rebalancer
(`mixed_integer`) decides. IDLE nodes are taken into use only if the others don't suffice (section
3.5.1.4).

If no answer keeps all limits, the load of the worst node is minimized: the search finds the least z for which z times
the limits can be kept, and then the fewest points for that z.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from controllers.rebalancing import greedy, mixed_integer
from controllers.rebalancing.allocation import Allocation, Flags, Floats, IndexedMove

STEPS = (0.0, 0.003, 0.006, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35, 0.6, 1.0, 2.0, 5.0)
# Up to this step the greedy rebalancer is as good as the best possible in every known case.
LEVEL = 4
WORST_GAP = 0.002
# Moves are few: an answer within this gap of the bound has the fewest moves, but perhaps not the fewest new holders.
GAPS: dict[greedy.Cost, float] = {"points": 0.01, "moves": 0.05}


@dataclass(frozen=True)
class Search:
    """The goal, the rules, and the effort of a search.

    `exact_routes`: the largest program (pairs of container and receiver) that is solved exactly, with at most
    `branches` branches. `tolerance`: the maximum excess of the worst node over the least possible.
    """

    rules: greedy.MoveRules
    limits: Floats
    cost: greedy.Cost
    exact_routes: int
    branches: int
    tolerance: float


@dataclass(frozen=True)
class Relocation:
    moves: list[IndexedMove]
    feasible: bool  # all limits are kept


def find(allocation: Allocation, search: Search) -> Relocation:
    """Return the cheapest moves that keep all limits and empty the drained nodes.

    If there are none, return the moves with the least loaded worst node.
    """
    for receivers in _iterate_receivers(allocation):
        if receivers.any() and (moves := _keep(allocation, search, receivers)) is not None:
            return Relocation(moves, True)
    if (moves := _exchange_nodes(allocation, search)) is not None:
        return Relocation(moves, True)
    return Relocation(_reduce_worst_load(allocation, search), False)


def _iterate_receivers(allocation: Allocation) -> Iterator[Flags]:
    """Yield the nodes in use; then with one, two, four, … and all idle ones, the most capable first."""
    receivers = allocation.available & ~allocation.idle
    yield receivers
    idle = np.flatnonzero(allocation.available & allocation.idle)
    idle = idle[np.argsort(-allocation.capacity[idle], kind="stable")]
    count = 1
    while count < 2 * len(idle):
        receivers = receivers.copy()
        receivers[idle[:count]] = True
        yield receivers
        count *= 2


def compute_worst_share(allocation: Allocation, limits: Floats) -> float:
    """Return the greatest load as a share of its node's limit, over the nodes that may hold points."""
    shares = (allocation.loads / limits)[allocation.available]
    return float(shares.max()) if shares.size else math.inf


def compute_fluid_share(allocation: Allocation, limits: Floats) -> float:
    """Return the lower bound of the worst share: that of all nodes if load could be spread freely."""
    available = float(limits[allocation.available].sum())
    return float(allocation.loads.sum()) / available if available else math.inf


def _keep(allocation: Allocation, search: Search, receivers: Flags) -> list[IndexedMove] | None:
    resting = allocation.available & ~receivers
    if allocation.loads.sum() - allocation.loads[resting].sum() > search.limits[receivers].sum():
        return None
    even = greedy.mask_coarse_queues(allocation, search.rules, search.limits)
    parted = _find_greedy_moves(allocation, search, receivers, even) if even.any() else None
    if parted is not None and any(even[move.queue] for move in parted):
        return parted  # a few more points than the cheapest answer, whose pieces could never be divided again
    quick = _find_greedy_moves(allocation, search, receivers)
    if quick is not None and greedy.price(quick, search.cost)[0] <= _compute_lower_bound(allocation, search):
        return quick
    donors = (allocation.loads > search.limits) | allocation.drained
    # Only an answer that beats the greedy one is useful: this removes most of the program.
    at_most = None if quick is None else greedy.price(quick, search.cost)[0] - 1
    consumers = receivers & (allocation.loads < search.limits)
    problem = mixed_integer.MoveProblem(allocation, search.rules, search.limits, donors, consumers, at_most)
    best = greedy.choose_cheapest_moves([quick, _find_exact_moves(problem, search)], search.cost)
    if best is None:
        # If room has to be made first, every node may give and take.
        every = np.ones(len(allocation.nodes), dtype=bool)
        best = _find_exact_moves(replace(problem, givers=every, receivers=receivers), search)
    return best


def _find_greedy_moves(
    allocation: Allocation, search: Search, receivers: Flags, even: Flags | None = None
) -> list[IndexedMove] | None:
    answers, bound = [], _compute_lower_bound(allocation, search)
    costs: tuple[greedy.Cost, greedy.Cost] = ("points", "moves") if search.cost == "points" else ("moves", "points")
    for cost in costs:
        for packing in (False, True):
            board = greedy.Board(allocation, search.rules, search.limits, receivers & allocation.available, even)
            answer = greedy.rebalance(board, greedy.SearchRule(cost, packing))
            if answer is not None and greedy.price(answer, search.cost)[0] <= bound:
                return answer
            answers.append(answer)
    return greedy.choose_cheapest_moves(answers, search.cost)


def _find_exact_moves(problem: mixed_integer.MoveProblem, search: Search) -> list[IndexedMove] | None:
    if mixed_integer.count_routes(problem) > search.exact_routes:
        return None
    answer = mixed_integer.solve(problem, search.cost, search.branches, GAPS[search.cost])
    if answer is None or compute_worst_share(problem.allocation.apply(answer.moves), search.limits) > 1 + 1e-6:
        return None
    return answer.moves


def _compute_lower_bound(allocation: Allocation, search: Search) -> int:
    """Return a lower bound of the points (or moves): each donor has to shed its own excess."""
    total = 0
    for node in np.flatnonzero(allocation.drained & ~allocation.offline):
        held = allocation.at_node[node]
        total += sum(held.values()) if search.cost == "points" else len(held)
    over = (allocation.loads > search.limits) & ~allocation.drained
    return total + sum(_compute_fewest_points(allocation, search, int(node)) for node in np.flatnonzero(over))


def _compute_fewest_points(allocation: Allocation, search: Search, node: int) -> int:
    """Return the fewest points (or containers) whose load is the node's excess."""
    excess = float(allocation.loads[node] - search.limits[node])
    per_point, held = allocation.rate_per_point, allocation.at_node[node]
    if search.cost == "moves":
        loads = np.sort([per_point[queue] * points for queue, points in held.items()])[::-1].cumsum()
        return int(np.searchsorted(loads, excess * (1 - 1e-9))) + 1
    points_needed, smallest = 0.0, min(min(held.values(), default=0), search.rules.minimum_points)
    for queue in sorted(held, key=lambda queue: -per_point[queue]):
        load = float(per_point[queue]) * held[queue]
        if load >= excess:
            points_needed += excess / float(per_point[queue])
            break
        points_needed, excess = points_needed + held[queue], excess - load
    return max(math.ceil(points_needed - 1e-6), smallest)


def _reduce_worst_load(allocation: Allocation, search: Search) -> list[IndexedMove]:
    """Return the fewest points that reduce the worst node as far as possible within the tolerance.

    Return no moves if it already is that low.
    """
    now = compute_worst_share(allocation, search.limits)
    must = any(allocation.at_node[node] for node in np.flatnonzero(allocation.drained & ~allocation.offline))
    every = np.ones(len(allocation.nodes), dtype=bool)
    problem = mixed_integer.MoveProblem(allocation, search.rules, search.limits, every, allocation.available)
    fluid = compute_fluid_share(allocation, search.limits)
    if not math.isfinite(fluid):
        return []  # no node may take anything
    if not must and now <= fluid * (1 + search.tolerance):
        return []
    level = _climb(allocation, search, fluid, now, must, STEPS[:LEVEL])
    if level is not None:
        return level  # equal to the best possible within the error, so an exact search adds nothing
    if mixed_integer.count_routes(problem) <= search.exact_routes:
        answer = mixed_integer.solve(problem, "worst", search.branches, WORST_GAP)
        if answer is not None:
            return _settle(allocation, search, answer, now, must)
    return _climb(allocation, search, fluid, now, must, STEPS[LEVEL:]) or []


def _settle(
    allocation: Allocation, search: Search, answer: mixed_integer.Answer, now: float, must: bool
) -> list[IndexedMove]:
    """Return the fewest points for about the least possible worst share."""
    allowed = answer.worst * (1 + search.tolerance)
    if not must and now <= allowed:
        return []
    eased = replace(search, limits=search.limits * allowed, cost="points")
    moves = _find_greedy_moves(allocation, eased, allocation.available)
    if moves is None:
        every = np.ones(len(allocation.nodes), dtype=bool)
        problem = mixed_integer.MoveProblem(allocation, search.rules, eased.limits, every, allocation.available)
        moves = _find_exact_moves(problem, eased)
    return answer.moves if moves is None else moves


def _climb(
    allocation: Allocation, search: Search, fluid: float, now: float, must: bool, steps: Sequence[float]
) -> list[IndexedMove] | None:
    """Raise the limits step by step from the lower bound until the greedy rebalancer keeps them.

    Return no moves if the limits are no better than the current state, None if no step succeeds.
    """
    even = greedy.mask_coarse_queues(allocation, search.rules, search.limits)
    for step in steps:
        share = fluid * (1 + step + search.tolerance)
        if not must and share >= now:
            return []
        eased = replace(search, limits=search.limits * share, cost="points")
        for packing in (False, True):
            board = greedy.Board(allocation, eased.rules, eased.limits, allocation.available.copy(), even)
            if (moves := greedy.rebalance(board, greedy.SearchRule("points", packing))) is not None:
                return moves
        if (moves := _exchange_nodes(allocation, eased)) is not None:
            return moves
    return None


def _exchange_nodes(allocation: Allocation, search: Search) -> list[IndexedMove] | None:
    """Return the greedy answer with nodes that make room for each other, or None if there is none."""
    if compute_fluid_share(allocation, search.limits) > 1:
        return None
    even = greedy.mask_coarse_queues(allocation, search.rules, search.limits)
    for keep, packing in product((False, True), (False, True)):
        board = greedy.Board(allocation, search.rules, search.limits, allocation.available.copy(), even)
        if (
            moves := greedy.rebalance(board, greedy.SearchRule(search.cost, packing, exchange=True, keep=keep))
        ) is not None:
            return moves
    return None


def sum_points(moves: Sequence[IndexedMove]) -> int:
    return sum(move.points for move in moves)
