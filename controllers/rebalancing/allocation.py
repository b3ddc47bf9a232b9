"""Who holds how many points of which queue, and what load that puts on each node.

Load of a container: rate * points / total, where the total counts the points on nodes that are heard (the
splitter routes around an OFFLINE node, so its points carry nothing). Units: those of the rate [events/s]; a
node's capacity times a threshold is in the same unit, whether capacity is events/s and the threshold a share,
or capacity is 1 and the threshold events/s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
OFFLINE, IDLE = "OFFLINE", "IDLE"
# An event in thirty years is no load; what is divided by it would overflow.
NEGLIGIBLE_PER_SECOND = 1e-9


@dataclass(frozen=True)
class IndexedMove:
    """`points` of a queue from one node to another, all three by their index."""

    queue: int
    source: int
    target: int
    points: int


@dataclass(frozen=True)
class Allocation:
    """Nodes (arrays over nodes) and queues (sequences over queues) at one instant; never changed in place."""

    nodes: tuple[str, ...]
    capacity: Floats
    drained: Flags
    offline: Flags
    idle: Flags
    queues: tuple[str, ...]
    rate: Floats
    minimum: tuple[int, ...]
    points: tuple[Mapping[int, int], ...]

    @cached_property
    def available(self) -> Flags:
        """Nodes that may receive points."""
        return ~(self.drained | self.offline)

    @cached_property
    def rate_per_point(self) -> Floats:
        """Load of one point of each queue [rate per point]."""
        per_point = np.zeros(len(self.queues))
        for queue, held in enumerate(self.points):
            if self.rate[queue] < NEGLIGIBLE_PER_SECOND:
                continue
            heard = sum(points for node, points in held.items() if not self.offline[node])
            per_point[queue] = self.rate[queue] / (heard or sum(held.values()) or 1)
        return per_point

    @cached_property
    def loads(self) -> Floats:
        """Load per node [unit of the rates]."""
        loads = np.zeros(len(self.nodes))
        for queue, held in enumerate(self.points):
            for node, points in held.items():
                if not self.offline[node]:
                    loads[node] += self.rate_per_point[queue] * points
        return loads

    @cached_property
    def held(self) -> tuple[Mapping[int, int], ...]:
        """Per node: queue → points."""
        by_node: tuple[dict[int, int], ...] = tuple({} for _ in self.nodes)
        for queue, containers in enumerate(self.points):
            for node, points in containers.items():
                by_node[node][queue] = points
        return by_node

    def after(self, moves: Sequence[IndexedMove]) -> "Allocation":
        """The allocation once the moves are made; containers without points are gone."""
        points = [dict(held) for held in self.points]
        for move in moves:
            held = points[move.queue]
            held[move.source] -= move.points
            held[move.target] = held.get(move.target, 0) + move.points
        return replace(self, points=tuple({n: p for n, p in held.items() if p} for held in points))

    def named(self, moves: Sequence[IndexedMove]) -> list[dict[str, Any]]:
        """Moves as the contract words them."""
        return [
            {
                "queue": self.queues[move.queue],
                "from": self.nodes[move.source],
                "to": self.nodes[move.target],
                "points": move.points,
            }
            for move in moves
        ]

    def by_name(self, values: Floats) -> dict[str, float]:
        """An array over nodes as an object, rounded to what can be read."""
        return {name: round(float(value), 6) for name, value in zip(self.nodes, values, strict=True)}


def from_observation(observation: Mapping[str, Any], minimum_containers: int) -> Allocation:
    """The allocation an observation describes: nodes [{name, capacity, drained, state}] and queues
    [{name, rate, containers, minimum_containers}]; a queue without its own minimum gets the general one."""
    nodes, queues = observation["nodes"], observation["queues"]
    index = {node["name"]: position for position, node in enumerate(nodes)}
    return Allocation(
        nodes=tuple(index),
        capacity=np.array([node["capacity"] for node in nodes], dtype=float),
        drained=np.array([bool(node["drained"]) for node in nodes], dtype=bool),
        offline=np.array([node["state"] == OFFLINE for node in nodes], dtype=bool),
        idle=np.array([node["state"] == IDLE for node in nodes], dtype=bool),
        queues=tuple(queue["name"] for queue in queues),
        rate=np.array([queue["rate"] for queue in queues], dtype=float),
        minimum=tuple(
            minimum_containers if queue["minimum_containers"] is None else queue["minimum_containers"]
            for queue in queues
        ),
        points=tuple(
            {index[node]: points for node, points in queue["containers"].items() if points}
            for queue in queues
        ),
    )


def containers(allocation: Allocation) -> Iterator[tuple[int, int, int]]:
    """Every container: queue, node, points."""
    for queue, held in enumerate(allocation.points):
        for node, points in held.items():
            yield queue, node, points
