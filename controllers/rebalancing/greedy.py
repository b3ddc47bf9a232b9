"""The greedy rebalancer of overloaded nodes: it processes one donor after another, by its cheapest move.

A donor is a node over its limit, or drained. Each step makes the donor's cheapest move. Among moves that clear it at
once, this is the one with the fewest points ("points"), or the one with the tightest fit ("moves"). If none clears it,
it is the one that removes the most load per point, or the most load. Receivers that already hold the queue come first;
then the node with the most room, or the tightest that fits (`packing`). Either can be better, so the caller tries both.

Rules for moves (section 4.1.1.4, with the splinters of its exception): at least `minimum_points` arrive, and at least
as many stay, or none; a queue keeps its minimum of containers; nothing returns to where it recently came from. A
container that is already a splinter moves only as a whole.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from controllers.rebalancing.allocation import Allocation, Flags, Floats, IndexedMove
from queues.points import TOTAL

Cost = Literal["points", "moves"]
ROUNDING = 1e-9
HAIR = 1e-7
# A queue is coarse if its two smallest pieces would fill this share of a node.
COARSE_SHARE = 0.5
# Number of the donors' containers, and of receivers, that are tried when there is no room.
TRIES = 4


@dataclass(frozen=True)
class MoveRules:
    """Rules of every move. `returns` has the (queue, source, target) that would undo a recent move."""

    minimum_points: int
    returns: frozenset[tuple[int, int, int]] = frozenset()


@dataclass
class Board:
    start: Allocation
    rules: MoveRules
    limits: Floats
    receivers: Flags
    even: Flags | None = None  # queues that are divided into even pieces only; see `coarse`
    loads: Floats = field(init=False)
    points: list[dict[int, int]] = field(init=False)
    at_node: list[dict[int, int]] = field(init=False)
    totals: Floats = field(init=False)
    moved: dict[tuple[int, int, int], int] = field(default_factory=dict)
    gave: dict[int, set[int]] = field(default_factory=dict)
    returns: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # queue and source → targets

    def __post_init__(self) -> None:
        self.loads = self.start.loads.copy()
        self.points = [dict(held) for held in self.start.points]
        self.at_node = [dict(held) for held in self.start.at_node]
        self.totals = np.array([float(sum(held.values())) for held in self.at_node])
        for queue, source, target in self.rules.returns:
            self.returns.setdefault((queue, source), []).append(target)

    @property
    def room(self) -> Floats:
        """Return the load that each node may still receive; -1 if it may receive nothing.

        Among nodes of equal load, those with fewer points get slightly more room. Loads are no guide while there is
        little traffic, and points that pile up on one node would have to be spread again when load returns.
        """
        hair = HAIR * self.limits * self.totals / TOTAL
        return np.where(self.receivers, self.limits - self.loads - hair, -1.0)

    def compute_excess(self, node: int) -> float:
        return float(self.loads[node] - self.limits[node])

    def make(self, move: IndexedMove) -> None:
        self._shift(move.queue, move.source, move.target, move.points)
        rule = (move.queue, move.source, move.target)
        self.moved[rule] = self.moved.get(rule, 0) + move.points
        self.gave.setdefault(move.queue, set()).add(move.source)

    def undo(self, move: IndexedMove) -> None:
        self._shift(move.queue, move.target, move.source, move.points)
        rule = (move.queue, move.source, move.target)
        self.moved[rule] -= move.points
        if not self.moved[rule]:
            del self.moved[rule]

    def _shift(self, queue: int, source: int, target: int, points: int) -> None:
        load = float(self.start.rate_per_point[queue]) * points
        if not self.start.offline[source]:
            self.loads[source] -= load
        self.loads[target] += load
        for node, change in ((source, -points), (target, points)):
            self.totals[node] += change
            left = self.points[queue].get(node, 0) + change
            for holder, key in ((self.points[queue], node), (self.at_node[node], queue)):
                if left:
                    holder[key] = left
                else:
                    holder.pop(key, None)

    def list_moves(self) -> list[IndexedMove]:
        return [IndexedMove(*rule, points) for rule, points in self.moved.items()]

    def is_last(self, move: IndexedMove) -> bool:
        """Return whether this move would remove an evenly divided queue from the node."""
        whole = self.points[move.queue][move.source] == move.points
        return whole and self.even is not None and bool(self.even[move.queue])

    def may_empty(self, queue: int, target: int) -> bool:
        """Return whether a whole container may go to the target. A merge must leave the minimum of containers."""
        return target not in self.points[queue] or len(self.points[queue]) > self.start.minimum[queue]

    def choose_points(self, queue: int, source: int, target: int, needed: int, most: int) -> int:
        """Return the fewest points from `needed` up that the rules allow, else the most below; 0 if none."""
        held, least = self.points[queue][source], self.rules.minimum_points
        whole = held if held <= most and self.may_empty(queue, target) else 0
        if held < least and not (target in self.points[queue] or self.start.drained[source]):
            whole = 0
        # A drained node keeps nothing: its containers are only divided into pieces that are no splinters.
        most = min(most, held - least)
        if self.even is not None and self.even[queue] and held >= 2 * least:
            piece = held / (held // least)
            needed = math.ceil(math.ceil(needed / piece - ROUNDING) * piece)
            most = math.floor(math.floor(most / piece + ROUNDING) * piece)
        if most < least:
            return whole
        if needed <= most:
            return max(needed, least)
        return whole or most


def mask_coarse_queues(allocation: Allocation, rules: MoveRules, limits: Floats) -> Flags:
    """Return a mask of the queues whose pieces are so heavy that they have to be divided evenly.

    A piece below twice `minimum_points` can't be split again. In a queue at 5000 events/s, a piece of 99 points carries
    495 events/s, too much for a node, and no later decision could divide it. Such queues are therefore divided into
    pieces of about `minimum_points`, or multiples of them, as long as possible.
    """
    limit = float(limits[allocation.available].mean()) if allocation.available.any() else math.inf
    return np.asarray(allocation.rate_per_point * 2 * rules.minimum_points > COARSE_SHARE * limit)


@dataclass(frozen=True)
class SearchRule:
    """Preference among several answers.

    `packing`: choose receivers with the tightest fit, not those with the most room. `exchange`: let a node
    make room for a piece that fits nowhere, at the cost of more points. `keep`: leave the last piece of a heavy queue
    in place while something lighter can move, because it is equally heavy on any node.
    """

    cost: Cost
    packing: bool
    exchange: bool = False
    keep: bool = False


@dataclass(frozen=True)
class _Step:
    rank: tuple[float, ...]
    move: IndexedMove


def rebalance(board: Board, rule: SearchRule) -> list[IndexedMove] | None:
    """Return moves that bring every node to its limit and empty drained nodes; None if none are found."""
    for donor in np.flatnonzero(board.start.drained & ~board.start.offline):
        if not _empty_node(board, int(donor), rule.packing):
            return None
    over = np.flatnonzero((board.loads > board.limits * (1 + ROUNDING)) & ~board.start.drained)
    allowed = board.receivers
    board.receivers = allowed & (board.loads <= board.limits * (1 + ROUNDING))
    for donor in over[np.argsort(board.limits[over] - board.loads[over], kind="stable")]:
        if not _clear(board, int(donor), rule):
            return None
        # A relieved node has room again, but not for what it gave.
        board.receivers[donor] = rule.exchange and allowed[donor]
    return board.list_moves()


def _clear(board: Board, donor: int, rule: SearchRule) -> bool:
    while board.compute_excess(donor) > ROUNDING * board.limits[donor]:
        steps = [step for queue in board.at_node[donor] if (step := _step(board, donor, queue, rule))]
        if rule.keep:
            steps = [step for step in steps if not board.is_last(step.move)] or steps
        if steps:
            board.make(min(steps, key=lambda step: step.rank).move)
        elif not (rule.exchange and _make_room(board, donor)):
            return False
    return True


def _make_room(board: Board, donor: int) -> bool:
    """Move a piece of the donor to a node that first gives some of its points to others.

    If all nodes are nearly full, a heavy piece may fit nowhere although the total room, a little on each node,
    suffices.
    """
    per_point = board.start.rate_per_point
    heaviest = sorted(board.at_node[donor], key=lambda queue: (-per_point[queue] * board.at_node[donor][queue], queue))
    roomiest = np.argsort(-board.room, kind="stable")[:TRIES]
    for queue in heaviest[:TRIES]:
        for target in (int(node) for node in roomiest if board.receivers[node]):
            if per_point[queue] > 0 and _exchange(board, queue, donor, target):
                return True
    return False


def _exchange(board: Board, queue: int, donor: int, target: int) -> bool:
    """Move the smallest piece of a queue to a target that makes room for it; change nothing if it can't."""
    points = board.choose_points(queue, donor, target, 1, TOTAL)
    if not points or (queue, donor, target) in board.rules.returns or target in board.gave.get(queue, ()):
        return False
    load = float(board.start.rate_per_point[queue]) * points
    given = _give_way(board, target, load, queue)
    if board.limits[target] - board.loads[target] >= load * (1 - ROUNDING):
        board.make(IndexedMove(queue, donor, target, points))
        return True
    for move in reversed(given):
        board.undo(move)
    return False


def _give_way(board: Board, node: int, load: float, stays: int) -> list[IndexedMove]:
    """Move points off a node until it has room for the load or nothing more fits; heavy points first."""
    per_point, given = board.start.rate_per_point, list[IndexedMove]()
    arrived = {queue for queue, _, target in board.moved if target == node}
    queues = [queue for queue in board.at_node[node] if queue not in arrived and queue != stays]
    for queue in sorted(queues, key=lambda queue: (-per_point[queue], queue)):
        short = load - float(board.limits[node] - board.loads[node])
        if short <= 0 or per_point[queue] <= 0:
            break
        wanted = min(math.ceil(short / per_point[queue]), board.at_node[node][queue])
        for other in _list_targets(board, queue, node, float(wanted * per_point[queue]), packing=True):
            points = board.choose_points(
                queue, node, other, wanted, _compute_fitting_points(board, other, float(per_point[queue]))
            )
            if points:
                given.append(IndexedMove(queue, node, other, points))
                board.make(given[-1])
                break
    return given


def _step(board: Board, donor: int, queue: int, rule: SearchRule) -> _Step | None:
    """Return the best move of one container off a donor, or None."""
    per_point = float(board.start.rate_per_point[queue])
    if per_point <= 0:
        return None
    excess = board.compute_excess(donor)
    wanted = min(math.ceil(excess / per_point - ROUNDING), board.points[queue][donor])
    best: _Step | None = None
    for target in _list_targets(board, queue, donor, max(wanted, board.rules.minimum_points) * per_point, rule.packing):
        points = board.choose_points(queue, donor, target, wanted, _compute_fitting_points(board, target, per_point))
        if points:
            load = points * per_point
            clears, holder = load >= excess * (1 - ROUNDING), target in board.points[queue]
            left = float(board.limits[target] - board.loads[target]) - load
            rank = (*_rank(rule.cost, points, load, clears, holder), left if rule.packing else -left)
            if best is None or rank < best.rank:
                best = _Step(rank, IndexedMove(queue, donor, target, points))
    return best


def _rank(cost: Cost, points: int, load: float, clears: bool, holder: bool) -> tuple[float, ...]:
    if cost == "points":
        return (0, points, not holder, -load) if clears else (1, -load / points, not holder, -load)
    return (0, not holder, load, points) if clears else (1, -load, not holder, points)


def _compute_fitting_points(board: Board, target: int, per_point: float) -> int:
    room = float(board.limits[target] - board.loads[target])
    # A queue with almost no load fits as a whole; the division could overflow.
    return TOTAL if room >= TOTAL * per_point else max(0, math.floor(room / per_point + ROUNDING))


def _list_targets(board: Board, queue: int, donor: int, load: float, packing: bool) -> list[int]:
    """Return the receivers to check: the holders, the tightest other node that fits, and that with the most room."""
    room = board.room
    room[[donor, *board.gave.get(queue, ()), *board.returns.get((queue, donor), ())]] = -1.0
    targets = [node for node in board.points[queue] if room[node] > 0]
    room[list(board.points[queue])] = -1.0
    roomiest = int(np.argmax(room))
    if room[roomiest] <= 0:
        return targets
    if packing:
        fitting = np.where(room >= load, room, np.inf)
        tightest = int(np.argmin(fitting))
        if np.isfinite(fitting[tightest]):
            targets.append(tightest)
    return [*targets, roomiest]


def _empty_node(board: Board, donor: int, packing: bool) -> bool:
    """Move all containers off a drained node, heaviest first, in as few pieces as possible."""
    per_point = board.start.rate_per_point
    for queue in sorted(board.at_node[donor], key=lambda q: (-per_point[q] * board.at_node[donor][q], q)):
        while points := board.at_node[donor].get(queue, 0):
            load = float(per_point[queue]) * points
            move = _choose_whole_move(board, donor, queue, points, load, packing) or _choose_partial_move(
                board, donor, queue
            )
            if move is None:
                return False
            board.make(move)
    return True


def _choose_whole_move(
    board: Board, donor: int, queue: int, points: int, load: float, packing: bool
) -> IndexedMove | None:
    fits = [
        target
        for target in _list_targets(board, queue, donor, load, packing)
        if board.limits[target] - board.loads[target] >= load * (1 - ROUNDING) and board.may_empty(queue, target)
    ]
    holders = [target for target in fits if target in board.points[queue]]
    room = board.room
    choice = max(holders or fits, key=lambda target: (room[target], -target), default=None)
    return None if choice is None else IndexedMove(queue, donor, choice, points)


def _choose_partial_move(board: Board, donor: int, queue: int) -> IndexedMove | None:
    """Return the move of a piece off a drained node, as large as the receiver with the most room takes."""
    per_point = float(board.start.rate_per_point[queue])
    targets = _list_targets(board, queue, donor, 0.0, packing=False)
    if not targets or per_point <= 0:
        return None
    target = max(targets, key=lambda node: (board.limits[node] - board.loads[node], -node))
    most = _compute_fitting_points(board, target, per_point)
    points = board.choose_points(queue, donor, target, board.points[queue][donor], most)
    return IndexedMove(queue, donor, target, points) if points else None


def choose_cheapest_moves(candidates: Sequence[list[IndexedMove] | None], cost: Cost) -> list[IndexedMove] | None:
    answers = [moves for moves in candidates if moves is not None]
    return min(answers, key=lambda moves: price(moves, cost)) if answers else None


def price(moves: Sequence[IndexedMove], cost: Cost) -> tuple[int, int]:
    """Return the points and the number of moves, the cost first."""
    points = sum(move.points for move in moves)
    return (points, len(moves)) if cost == "points" else (len(moves), points)
