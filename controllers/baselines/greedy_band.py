"""The greedy rule for the distribution of load over brokers of LinkedIn's Cruise Control.

Nodes above `band` times the average are donors, the highest first. A donor's containers move as a whole, the largest
load first, each to the least loaded node that does not hold the queue yet and stays within the band with it, until the
donor is within the band. The rule does not scale nodes: it uses all existing ones.
"""

from dataclasses import dataclass

import numpy as np

from controllers.rebalancing.allocation import Allocation, Floats, IndexedMove

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
