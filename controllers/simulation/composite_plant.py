"""The plant of the lab's scenario `whole-plant`: queues whose events pass shared nodes and then their own stages.

It advances in seconds. Arrivals that are admitted wait in their queue, first in, first out. In each second a queue
processes as much as its slowest stage can, and all queues together as much as the nodes can, those with the shortest
promise first. Ordered units work after their start-up time and cost money from the order on.
A change of an application's tasks stops its queue for `pause_seconds`. A started or ended node moves points.

A second of a queue is bad if its oldest event, held back at the producers or not, has waited longer than promised.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from controllers.simulation.scenario import Floats

HOUR = 3_600.0
RECENT = 0.2  # weight of the last second in the measured share of a type


@dataclass(frozen=True)
class QueueSpecification:
    """A queue: its promise, its prices, and its types (share of the events and price of a lost one)."""

    name: str
    bound_seconds: float
    bad_second_price: float
    types: Mapping[str, tuple[float, float]]
    max_shed_share: float
    max_held_events: float
    room_events: float


@dataclass(frozen=True)
class UnitSpecification:
    """Equal units: stages of a queue, or nodes (without a queue)."""

    name: str
    per_second: float
    price_per_hour: float
    start_seconds: int
    minimum: int
    maximum: int
    queue: str = ""
    pause_seconds: int = 0


@dataclass
class SimulatedUnits:
    """The units of one group: working, starting, and how many nodes are lost."""

    of: UnitSpecification
    working: int
    starting: deque[int] = field(default_factory=deque)  # when each becomes ready
    lost: int = 0
    factor: float = 1.0  # of the speed
    orders: list[tuple[int, int]] = field(default_factory=list)  # second, change

    @property
    def ordered(self) -> int:
        return self.working + len(self.starting)

    @property
    def maximum(self) -> int:
        return self.of.maximum - self.lost

    @property
    def per_second(self) -> float:
        return self.of.per_second * self.factor


@dataclass
class SimulatedFlow:
    """The events of one queue: cumulated arrivals and departures, so that the age of the oldest event is exact."""

    of: QueueSpecification
    waiting: float = 0.0
    held: float = 0.0
    arrived: list[float] = field(default_factory=lambda: [0.0])
    departed: float = 0.0
    served: float = 0.0  # in the last second
    oldest: int = 0  # second of the oldest event's arrival
    paused_until: int = 0
    bad_seconds: int = 0
    lost: dict[str, float] = field(default_factory=dict)
    shed_shares: dict[str, float] = field(default_factory=dict)
    admit_per_second: float | None = None
    age_seconds: float = 0.0
    recent_share: dict[str, float] = field(default_factory=dict)  # of each type in the last seconds


class CompositePlant:
    """The plant, its clock, and its bills."""

    def __init__(
        self,
        queues: tuple[QueueSpecification, ...],
        units: tuple[UnitSpecification, ...],
        slots: int,
        move_price: float,
    ) -> None:
        self.queues = {of.name: SimulatedFlow(of) for of in queues}
        self.units = {of.name: SimulatedUnits(of, of.minimum) for of in units}
        self.stages = {of.name: [self.units[unit.name] for unit in units if unit.queue == of.name] for of in queues}
        self.nodes = [self.units[unit.name] for unit in units if not unit.queue]
        self.slots, self.move_price, self.second = slots, move_price, 0
        self.costs = dict.fromkeys(("nodes", "workers_and_tasks", "moves", "bad_seconds", "lost_events"), 0.0)

    def set_units(self, name: str, count: int) -> None:
        """Order or end units, as far as the group's range and the slots allow."""
        units = self.units[name]
        count = min(max(count, min(units.of.minimum, units.maximum)), units.maximum)
        if units.of.queue:
            others = sum(other.ordered for stages in self.stages.values() for other in stages if other is not units)
            count = max(min(count, self.slots - others), min(units.ordered, count))
        change = count - units.ordered
        if not change:
            return
        units.orders.append((self.second, change))
        if not units.of.queue:
            self._add_move_cost(units, abs(change))
        elif units.of.pause_seconds:
            flow = self.queues[units.of.queue]
            flow.paused_until = max(flow.paused_until, self.second + units.of.pause_seconds)
        for _ in range(change):
            units.starting.append(self.second + units.of.start_seconds)
        for _ in range(-change):
            if units.starting:
                units.starting.pop()
            else:
                units.working -= 1

    def _add_move_cost(self, units: SimulatedUnits, count: int) -> None:
        total = sum(node.ordered * node.of.per_second for node in self.nodes) or units.of.per_second
        points = 1_000 * len(self.queues) * min(1.0, count * units.of.per_second / total)
        self.costs["moves"] += self.move_price * points

    def remove_node(self, name: str) -> None:
        """Lose a working node of a kind, or one that could be started."""
        units = self.units[name]
        units.lost += 1
        if units.ordered > units.maximum:
            if units.working:
                units.working -= 1
            else:
                units.starting.pop()

    def return_node(self, name: str) -> None:
        self.units[name].lost -= 1

    def compute_capacity(self, name: str) -> float:
        """Return the events/s that the stages of a queue can process, without pauses and nodes."""
        return min(units.working * units.per_second for units in self.stages[name])

    def compute_node_capacity(self) -> float:
        return sum(units.working * units.per_second for units in self.nodes)

    def advance(self, arrivals: Mapping[str, Mapping[str, float]]) -> None:
        """Advance by a second; arrivals: queue → type → events."""
        self.second += 1
        for units in self.units.values():
            while units.starting and units.starting[0] <= self.second:
                units.starting.popleft()
                units.working += 1
        wanted = {name: self._admit(flow, arrivals[name]) for name, flow in self.queues.items()}
        left = self.compute_node_capacity()
        for flow in sorted(self.queues.values(), key=lambda flow: flow.of.bound_seconds):
            served = min(left, wanted[flow.of.name])
            left -= served
            self._serve(flow, served)
        for units in self.units.values():
            part = "workers_and_tasks" if units.of.queue else "nodes"
            self.costs[part] += units.ordered * units.of.price_per_hour / HOUR

    def _admit(self, flow: SimulatedFlow, arrivals: Mapping[str, float]) -> float:
        """Shed, hold back, and insert arrivals; return the events that the stages could process in this second."""
        kept, offered = 0.0, sum(arrivals.values())
        for kind, count in arrivals.items():
            if offered > 0:
                before = flow.recent_share.get(kind, flow.of.types[kind][0])
                flow.recent_share[kind] = before + RECENT * (count / offered - before)
            dropped = count * flow.shed_shares.get(kind, 0.0)
            self._record_lost(flow, kind, dropped)
            kept += count - dropped
        flow.arrived.append(flow.arrived[-1] + kept)
        entering, flow.held = kept + flow.held, 0.0
        if flow.admit_per_second is not None:
            flow.held = min(max(0.0, entering - flow.admit_per_second), flow.of.max_held_events)
        flow.waiting += entering - flow.held
        if (over := flow.waiting - flow.of.room_events) > 0:
            for kind, count in arrivals.items():
                self._record_lost(flow, kind, over * count / offered if offered else 0.0)
            flow.waiting -= over
            flow.departed += over
        paused = self.second <= flow.paused_until
        return 0.0 if paused else min(flow.waiting, self.compute_capacity(flow.of.name))

    def _record_lost(self, flow: SimulatedFlow, kind: str, count: float) -> None:
        if count > 0:
            flow.lost[kind] = flow.lost.get(kind, 0.0) + count
            self.costs["lost_events"] += count * flow.of.types[kind][1]

    def _serve(self, flow: SimulatedFlow, count: float) -> None:
        flow.waiting -= count
        flow.departed += count
        flow.served = count
        while flow.oldest < self.second and flow.arrived[flow.oldest + 1] <= flow.departed + 1e-6:
            flow.oldest += 1
        flow.age_seconds = float(self.second - flow.oldest)
        if flow.age_seconds > flow.of.bound_seconds:
            flow.bad_seconds += 1
            self.costs["bad_seconds"] += flow.of.bad_second_price

    @property
    def cost(self) -> float:
        return sum(self.costs.values())


def count_undone_actions(orders: list[tuple[int, int]], within_seconds: float) -> int:
    """Return the changes that an opposite change followed within this time."""
    return sum(
        first[1] * second[1] < 0 and second[0] - first[0] <= within_seconds for first, second in pairwise(orders)
    )


def compute_mean_rates(arrivals: Floats, second: int, seconds: int) -> Floats:
    """Return the mean of each column in the last seconds."""
    return np.asarray(arrivals[max(0, second - seconds) : second].mean(axis=0))
