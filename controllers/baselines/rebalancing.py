"""Houtman's balancing of queue nodes (sections 3.5.1.4, 3.5.1.5, 4.1.1), the baseline of `rebalancing`.

Every node decides for itself, in turn, on the states at the start of the round:

- TOOBUSY: a share k of its containers (k = 0: one), chosen at random because the cause of the load is
  unknown, gives half its points each; the whole container if half of it is below `minimum_points`. The chance
  that the right one was chosen after x rounds is 1 - (1 - k)^x (Table 4.1, ERRATA E40).
- The target is an IDLE node if most used nodes are BUSY or TOOBUSY; else a NORMAL node that holds the queue;
  else any NORMAL node; else an IDLE one. A queue at its minimum of containers isn't merged.
- If most used nodes are NORMAL, each NORMAL node tries with `offload_chance` to give all its containers to
  other NORMAL nodes, and becomes IDLE; it gives up if one of them finds no target.

The greedy rule for the distribution of load over brokers of LinkedIn's Cruise Control.

Nodes above `band` times the average are donors, the highest first. A donor's containers move as a whole, the largest
load first, each to the least loaded node that does not hold the queue yet and stays within the band with it, until the
donor is within the band. The rule does not scale nodes: it uses all existing ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controllers.rebalancing.allocation import Allocation, Floats, IndexedMove
from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, TOOBUSY

OFFLOAD_CHANCE = 0.1


@dataclass(frozen=True)
class Thesis:
    """The algorithm. `share`: of the containers that a TOOBUSY node gives points from (0: a single one)."""

    share: float
    busy: float
    toobusy: float
    minimum_points: int = 50
    offload_chance: float = OFFLOAD_CHANCE

    def decide(self, plant: Allocation, chance: np.random.Generator) -> tuple[list[IndexedMove], list[IndexedMove]]:
        round_ = _Round(self, plant, chance)
        for node in range(len(plant.nodes)):
            if round_.states[node] == TOOBUSY:
                round_.halve_containers(node)
        for node in range(len(plant.nodes)):
            if round_.may_offload(node):
                round_.offload(node)
        return round_.balance, round_.scaling


class _Round:
    """One decision of every node; `now` follows the moves, while the states stay those at the start."""

    def __init__(self, baseline: Thesis, plant: Allocation, chance: np.random.Generator) -> None:
        self.baseline, self.now, self.chance = baseline, plant, chance
        self.states = [self._classify_node(node) for node in range(len(plant.nodes))]
        used = [state for state in self.states if state in (NORMAL, BUSY, TOOBUSY)]
        self.scaling_out = 2 * sum(state != NORMAL for state in used) > len(used)
        self.scaling_down = 2 * used.count(NORMAL) > len(used)
        self.balance: list[IndexedMove] = []
        self.scaling: list[IndexedMove] = []

    def _classify_node(self, node: int) -> str:
        if not self.now.available[node]:
            return OFFLINE
        if not self.now.at_node[node]:
            return IDLE
        share = self.now.loads[node] / self.now.capacity[node]
        return TOOBUSY if share >= self.baseline.toobusy else BUSY if share >= self.baseline.busy else NORMAL

    def halve_containers(self, node: int) -> None:
        queues = sorted(self.now.at_node[node])
        count = max(1, math.ceil(self.baseline.share * len(queues)))
        for queue in self.chance.choice(queues, min(count, len(queues)), replace=False):
            points = self.now.points[int(queue)][node]
            half = points // 2
            amount = points if half < self.baseline.minimum_points else half
            target = self._choose_target(int(queue), node, whole=amount == points)
            if target is not None:
                self._make(IndexedMove(int(queue), node, target, amount), self.balance)

    def _choose_target(self, queue: int, source: int, whole: bool) -> int | None:
        holders = self.now.points[queue]
        at_minimum = whole and len(holders) <= self.now.minimum[queue]
        normal = [n for n, state in enumerate(self.states) if state == NORMAL and n != source]
        idle = [n for n, state in enumerate(self.states) if state == IDLE and n != source]
        holding = [] if at_minimum else [n for n in normal if n in holders]
        fresh = [n for n in normal if n not in holders]
        new_idle = [n for n in idle if not (at_minimum and n in holders)]
        first = new_idle if self.scaling_out else []
        return self._find_any_node(first) if first else self._find_first_usable(holding, fresh, new_idle)

    def _find_first_usable(self, *choices: Sequence[int]) -> int | None:
        return next((self._find_any_node(nodes) for nodes in choices if nodes), None)

    def _find_any_node(self, nodes: Sequence[int]) -> int:
        return int(nodes[int(self.chance.integers(len(nodes)))])

    def may_offload(self, node: int) -> bool:
        return self.scaling_down and self.states[node] == NORMAL and self.chance.random() < self.baseline.offload_chance

    def offload(self, node: int) -> None:
        before, moves = self.now, list[IndexedMove]()
        for queue, points in before.at_node[node].items():
            holders = self.now.points[queue]
            normal = [n for n, state in enumerate(self.states) if state == NORMAL and n != node]
            at_minimum = len(holders) <= self.now.minimum[queue]
            holding = [] if at_minimum else [n for n in normal if n in holders]
            target = self._find_first_usable(holding, [n for n in normal if n not in holders])
            if target is None:
                self.now = before
                return
            self._make(IndexedMove(queue, node, target, points), moves)
        self.states[node] = IDLE
        self.scaling += moves

    def _make(self, move: IndexedMove, moves: list[IndexedMove]) -> None:
        moves.append(move)
        self.now = self.now.apply([move])


BAND = 1.09


@dataclass(frozen=True)
class GreedyBand:
    """The rule. `band` is the upper edge as a share of the capacity-weighted average."""

    band: float = BAND

    def decide(self, plant: Allocation, chance: np.random.Generator) -> tuple[list[IndexedMove], list[IndexedMove]]:
        """Return the moves for balance, without randomness, and none for scaling."""
        available = plant.available
        mean = float(plant.loads.sum()) / float(plant.capacity[available].sum())
        limits = plant.capacity * (self.band * mean)
        loads, moves = plant.loads.copy(), list[IndexedMove]()
        donors = [int(node) for node in np.flatnonzero(available & (loads > limits))]
        now = plant
        for donor in sorted(donors, key=lambda node: -loads[node]):
            given = self._find_move_from(now, donor, loads, limits)
            moves, now = moves + given, now.apply(given)
        return moves, []

    def _find_move_from(self, plant: Allocation, donor: int, loads: Floats, limits: Floats) -> list[IndexedMove]:
        moves: list[IndexedMove] = []
        held = plant.at_node[donor]
        for queue in sorted(held, key=lambda queue: -plant.rate_per_point[queue] * held[queue]):
            load = float(plant.rate_per_point[queue]) * held[queue]
            if loads[donor] <= limits[donor]:
                break
            free = plant.available.copy()
            free[list(plant.points[queue])] = False
            shares = np.where(free & (loads + load <= limits), loads / plant.capacity, np.inf)
            least = int(np.argmin(shares))
            target = least if np.isfinite(shares[least]) else None
            if load > 0 and target is not None:
                moves.append(IndexedMove(queue, donor, target, held[queue]))
                loads[donor] -= load
                loads[target] += load
        return moves
