"""The allocation of points of queues to nodes, and the resulting load of each node.

Load of a container: rate * points / total, where the total counts the points on reachable nodes (the splitter routes
around an OFFLINE node, so its points carry nothing). The unit is that of the rate [events/s]. A node's capacity times a
threshold has the same unit, whether the capacity is in events/s and the threshold is a share, or the capacity is 1 and
the threshold is in events/s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from common.parameter import value
from queues.nodes.node_state import IDLE, NORMAL, OFFLINE, STATES
from queues.points import TOTAL

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
# One event in thirty years is no load; a division by it would overflow.
NEGLIGIBLE_PER_SECOND = 1e-9


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, value("name", "Name of the node.")]
    capacity: Annotated[float, value("load at utilization 1", "Capacity to which the thresholds apply.", 1e-9, 1e15)]
    measured: Annotated[
        float | None, value("load at utilization 1", "Measured capacity; null: not measured yet.", 1e-9, 1e15)
    ] = None
    drained: Annotated[bool, value("flag", "True: the node gives all its points and receives none.")] = False
    state: Annotated[str, value("choice", "Last reported state.", choices=STATES)] = NORMAL
    cordoned: Annotated[
        bool,
        value(
            "flag", "True: the node keeps its points and receives none, because it is reported as OFFLINE but not lost."
        ),
    ] = False


class ObservedQueue(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, value("name", "Name of the queue.")]
    rate: Annotated[float, value("events/s", "Events inserted per second.", 0.0, 1e15)]
    containers: Annotated[
        dict[str, Annotated[int, value("points", "Points of one container.", 0, TOTAL)]],
        value("points", "Points per node, 1000 in total."),
    ]
    minimum_containers: Annotated[
        int | None, value("containers", "Minimum number of containers of this queue.", 1, 1_000)
    ] = None
    measured_rate: Annotated[
        float | None,
        value("events/s", "The rate, computed with measured capacities; null: none is measured.", 0.0, 1e15),
    ] = None
    expected: Annotated[
        float | None, value("events/s", "Events inserted per second at `forecast_at`; null: not forecast.", 0.0, 1e15)
    ] = None


class PlantObservation(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Annotated[list[ObservedNode], value("rows", "All nodes of the plant.")]
    queues: Annotated[list[ObservedQueue], value("rows", "All queues of the plant.")]
    forecast_at: Annotated[
        float | None,
        value("s since 1970", "Time of the highest load until the next decision; null: not forecast.", 0, 1e11),
    ] = None


@dataclass(frozen=True)
class IndexedMove:
    """A move of `points` of a queue from one node to another, all three by their index."""

    queue: int
    source: int
    target: int
    points: int


@dataclass(frozen=True)
class _Cells:
    queue: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    points: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Allocation:
    """Nodes (arrays over nodes) and queues (sequences over queues) at one instant. It is immutable."""

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
    def _cells(self) -> "_Cells":
        """Return the containers, one array per column, in the order of `containers`."""
        rows = [(queue, node, points) for queue, held in enumerate(self.points) for node, points in held.items()]
        return _Cells(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)

    @cached_property
    def available(self) -> Flags:
        return ~(self.drained | self.offline)

    @cached_property
    def rate_per_point(self) -> Floats:
        """Return the load of one point of each queue [rate per point]."""
        cells, count = self._cells, len(self.queues)
        held = np.bincount(cells.queue, weights=cells.points, minlength=count)
        heard = np.bincount(cells.queue, weights=cells.points * ~self.offline[cells.node], minlength=count)
        per_point = self.rate / np.where(heard > 0, heard, np.maximum(held, 1.0))
        return np.asarray(np.where(self.rate < NEGLIGIBLE_PER_SECOND, 0.0, per_point))

    @cached_property
    def loads(self) -> Floats:
        cells = self._cells
        cell_loads = self.rate_per_point[cells.queue] * cells.points * ~self.offline[cells.node]
        return np.asarray(np.bincount(cells.node, weights=cell_loads, minlength=len(self.nodes)), dtype=float)

    @cached_property
    def at_node(self) -> tuple[Mapping[int, int], ...]:
        by_node: tuple[dict[int, int], ...] = tuple({} for _ in self.nodes)
        for queue, containers in enumerate(self.points):
            for node, points in containers.items():
                by_node[node][queue] = points
        return by_node

    def apply(self, moves: Sequence[IndexedMove]) -> "Allocation":
        """Return the allocation after the moves; containers without points are removed."""
        points = [dict(held) for held in self.points]
        for move in moves:
            held = points[move.queue]
            held[move.source] -= move.points
            held[move.target] = held.get(move.target, 0) + move.points
        return replace(self, points=tuple({n: p for n, p in held.items() if p} for held in points))

    def name_moves(self, moves: Sequence[IndexedMove]) -> list[dict[str, Any]]:
        """Return the moves as objects with names, as in the law's action."""
        return [
            {
                "queue": self.queues[move.queue],
                "from": self.nodes[move.source],
                "to": self.nodes[move.target],
                "points": move.points,
            }
            for move in moves
        ]

    def group_by_name(self, values: Floats) -> dict[str, float]:
        """Return an array over nodes as an object with rounded values."""
        return {name: round(float(value), 6) for name, value in zip(self.nodes, values, strict=True)}


CapacitySource = Annotated[
    Literal["measured", "declared"],
    value(
        "choice",
        "Capacity to use. measured: the measured capacity, if it is known and lower than the declared capacity; "
        "declared: always the declared capacity.",
    ),
]


def from_observation(
    observation: PlantObservation, minimum_containers: int, source: CapacitySource = "declared"
) -> Allocation:
    """Return the allocation that an observation describes. A queue without its own minimum gets the general one.

    The declared capacity remains the upper limit, because the states of nodes refer to it.
    """
    nodes, queues = observation.nodes, observation.queues
    is_measured = source == "measured"
    index = {node.name: position for position, node in enumerate(nodes)}
    return Allocation(
        nodes=tuple(index),
        capacity=np.array(
            [min(node.capacity, node.measured or node.capacity) if is_measured else node.capacity for node in nodes],
            dtype=float,
        ),
        drained=np.array([node.drained for node in nodes], dtype=bool),
        offline=np.array([node.state == OFFLINE for node in nodes], dtype=bool),
        idle=np.array([node.state == IDLE for node in nodes], dtype=bool),
        queues=tuple(queue.name for queue in queues),
        rate=np.array(
            [queue.rate if queue.measured_rate is None or not is_measured else queue.measured_rate for queue in queues],
            dtype=float,
        ),
        minimum=tuple(
            minimum_containers if queue.minimum_containers is None else queue.minimum_containers for queue in queues
        ),
        points=tuple({index[node]: points for node, points in queue.containers.items() if points} for queue in queues),
    )


def iterate_containers(allocation: Allocation) -> Iterator[tuple[int, int, int]]:
    for queue, held in enumerate(allocation.points):
        for node, points in held.items():
            yield queue, node, points
