"""Operators, second by second: a chain (parse → filter → analyse → sink), or the tree of Stutz (9.4).

In the tree, an operator passes all of its events to each successor. An event has left when all successors have it.
The flow is a fluid: an operator passes at most  tasks / service  events/s, and the rest waits. In addition, an event
waits at each operator according to Kingman's formula (`controllers.parallelism.task_allocation`) and is served.
Events leave in the order of their arrival, so an event that leaves the sink at t arrived when the total arrivals
equaled the total departures at t.

Delivery is at least once: an event that has not left `TIMEOUT_SECONDS` after its arrival has failed and arrives again,
while its first copy is still processed. An event that finds `BUFFER_EVENTS` in the chain is dropped, fails, and arrives
again likewise (Stutz, 9.3 and 9.4: back-pressure off, dropping on). With back-pressure, the source stops instead, and
holds the events; their time counts from when they enter. A change of tasks stops the chain for a pause, in
which arrivals wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controllers.baselines.parallelism import MeasuredInterval
from controllers.simulation.scenario import Floats, create_random_generator

TIMEOUT_SECONDS, BUFFER_EVENTS = 60, 300_000.0
# Noise of a measured service time; all other values are exact.
MEASURED_NOISE = 0.01


@dataclass(frozen=True)
class Kind:
    """The type of an operator: processing time of an event, events emitted per event, and its predecessor."""

    name: str
    service_seconds: float
    selectivity: float
    parent: str = ""  # "": the source


@dataclass(frozen=True)
class OperatorTree:
    """Operators, each after its predecessor."""

    kinds: tuple[Kind, ...]

    @cached_property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Return the names from the first operator to each one without successors."""
        paths: dict[str, tuple[str, ...]] = {"": ()}
        for kind in self.kinds:
            paths[kind.name] = (*paths[kind.parent], kind.name)
        inner = {"", *(kind.parent for kind in self.kinds)}
        return tuple(path for name, path in paths.items() if name not in inner)

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        places = {kind.name: at for at, kind in enumerate(self.kinds)}
        return tuple(places.get(kind.parent) for kind in self.kinds)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        return tuple(at for at in range(len(self.kinds)) if at not in self.parents)

    @cached_property
    def share_of(self) -> dict[str, float]:
        """Return the load offered to each operator per event at the source."""
        shares, emitted = dict[str, float](), {"": 1.0}
        for kind in self.kinds:
            shares[kind.name] = emitted[kind.parent]
            emitted[kind.name] = shares[kind.name] * kind.selectivity
        return shares

    @cached_property
    def services(self) -> tuple[float, ...]:
        return tuple(kind.service_seconds * self.share_of[kind.name] for kind in self.kinds)


CHAIN = OperatorTree(
    (
        Kind("parse", 0.0010, 0.8),
        Kind("filter", 0.0008, 1.0, "parse"),
        Kind("analyse", 0.0013, 0.6, "filter"),
        Kind("sink", 0.0005, 0.0, "analyse"),
    )
)
# The thesis names the operators, but not their processing times.
STUTZ = OperatorTree(
    (
        Kind("parse", 0.0010, 0.8),
        Kind("validate", 0.0003, 0.0, "parse"),
        Kind("day-of-week", 0.0002, 0.0, "parse"),
        Kind("time", 0.0002, 0.0, "parse"),
        Kind("hashtags", 0.0006, 0.0, "parse"),
        Kind("original-hashtags", 0.0005, 0.0, "parse"),
        Kind("filter-tweet", 0.0002, 0.35, "parse"),
        Kind("average-length", 0.0004, 0.0, "filter-tweet"),
        Kind("filter-retweet", 0.0002, 0.45, "parse"),
        Kind("sink", 0.0002, 0.0, "filter-retweet"),
    )
)
TREES = {"chain": CHAIN, "stutz": STUTZ}
KINDS, SERVICES, SHARE_OF = CHAIN.kinds, CHAIN.services, CHAIN.share_of


@dataclass
class _Window:
    """Counts since the start of the measurement, in events of the source."""

    seconds: int
    offered: list[float]
    executed: list[float]
    held_up: list[int]

    @classmethod
    def create_empty(cls, operators: int) -> "_Window":
        return cls(0, [0.0] * operators, [0.0] * operators, [0] * operators)


class Chain:
    """The plant. Arrays have a value per second, in events of the source."""

    def __init__(
        self,
        seconds: int,
        tasks: Mapping[str, int],
        seed: int,
        tree: OperatorTree = CHAIN,
        buffer_events: float = BUFFER_EVENTS,
        has_back_pressure: bool = False,
    ) -> None:
        self.tree, self.buffer_events, self.has_back_pressure = tree, buffer_events, has_back_pressure
        self.tasks = [tasks[kind.name] for kind in tree.kinds]
        self._held, self._passed = 0.0, [0.0] * len(tree.kinds)
        self.paused_seconds = self.second = self.rescales = 0
        self.arrived, self.left = np.zeros(seconds), np.zeros(seconds)
        self.failed, self.dropped = np.zeros(seconds), np.zeros(seconds)
        self.waits, self.counts = np.zeros(seconds), np.zeros(seconds)
        self._came, self._gone = np.zeros(seconds), np.zeros(seconds)
        self._queues = [0.0] * len(tree.kinds)
        self._window = _Window.create_empty(len(tree.kinds))
        self._chance = create_random_generator(seed, "measured")

    def run(self, fresh_events: float) -> None:
        at = self.second
        came = fresh_events + self._fail(at)
        room = max(0.0, self.buffer_events - sum(self._queues))
        if self.has_back_pressure:
            held = self._held + came
            came = min(held, room)
            self._held = held - came
        self.arrived[at], self.dropped[at] = came, max(0.0, came - room)
        entering = came - self.dropped[at]
        self._came[at] = (self._came[at - 1] if at else 0.0) + entering
        self.left[at] = self._pass(entering)
        self._gone[at] = (self._gone[at - 1] if at else 0.0) + self.left[at]
        self.counts[at] = sum(self.tasks)
        self.second += 1

    def _fail(self, at: int) -> float:
        """Return the number of events that are overdue now.

        They entered TIMEOUT_SECONDS ago and have not left, or were dropped then.
        """
        then = at - TIMEOUT_SECONDS
        if then < 0:
            return 0.0
        entered = self.arrived[then] - self.dropped[then]
        late = min(max(0.0, self._came[then] - self._gone[at - 1]), entered)
        self.failed[at] = late + self.dropped[then]
        return float(self.failed[at])

    def _pass(self, entering: float) -> float:
        """Run all operators for one second; return what leaves the last one."""
        if self.paused_seconds > 0:
            self.paused_seconds -= 1
            self._queues[0] += entering
            return 0.0
        window, flows, waits = self._window, list[float](), list[float]()
        window.seconds += 1
        for index, service in enumerate(self.tree.services):
            parent = self.tree.parents[index]
            flow, wait = (entering, 0.0) if parent is None else (flows[parent], waits[parent])
            capacity = self.tasks[index] / service
            waiting = self._queues[index] + flow
            window.offered[index] += flow
            flow = min(waiting, capacity)
            window.executed[index] += flow
            self._queues[index] = waiting - flow
            window.held_up[index] += waiting - flow > capacity
            own = self.tree.kinds[index].service_seconds
            flows.append(flow)
            waits.append(wait + _compute_kingman_seconds(self.tasks[index], flow, service, own))
            self._passed[index] += flow
        self.waits[self.second] = max(waits)
        if len(self.tree.leaves) == 1:
            return flows[-1]
        gone = self._gone[self.second - 1] if self.second else 0.0
        return max(0.0, float(min(self._passed[leaf] for leaf in self.tree.leaves) - gone))

    def start_measurement(self) -> None:
        self._window = _Window.create_empty(len(self.tree.kinds))

    def rescale(self, tasks: Mapping[str, int], pause_seconds: int) -> None:
        """Set the tasks; if they change, stop everything for the pause."""
        wanted = [tasks[kind.name] for kind in self.tree.kinds]
        if wanted != self.tasks:
            self.tasks, self.paused_seconds = wanted, pause_seconds
            self.rescales += 1

    def measure(self) -> list[MeasuredInterval]:
        window, seconds = self._window, max(1, self._window.seconds)
        noise = 1 + MEASURED_NOISE * self._chance.standard_normal(len(self.tree.kinds))
        return [
            MeasuredInterval(
                kind.name,
                self.tasks[at],
                window.offered[at] * share / seconds,
                kind.service_seconds * float(noise[at]),
                self._queues[at] * share,
                window.executed[at] * share,
                window.executed[at] * share * kind.selectivity,
                window.held_up[at] / seconds,
            )
            for at, (kind, share) in enumerate(zip(self.tree.kinds, self.tree.share_of.values(), strict=True))
        ]

    def compute_wait_seconds(self) -> float:
        """Return how long the events that leave now have been in the chain, besides Kingman's waits and service."""
        gone = self._gone[self.second - 1]
        came = int(np.searchsorted(self._came[: self.second], gone * (1 - 1e-9)))
        return float(self.second - 1 - min(came, self.second - 1))

    def compute_latencies(self) -> tuple[Floats, Floats]:
        """Return, for the departures of each second, the latency (s) and the events that were not overdue."""
        at = np.arange(self.second, dtype=float)
        middle = self._gone - self.left / 2
        came = np.interp(middle, np.concatenate([[0.0], self._came]), np.concatenate([[0.0], at + 1]))
        latency = np.maximum(0.0, at + 0.5 - came) + self.waits
        return latency, np.where(latency <= TIMEOUT_SECONDS, self.left, 0.0)


def _compute_kingman_seconds(tasks: int, flow: float, service_per_event: float, service_seconds: float) -> float:
    """Return the waiting and service time in s if tasks keep up, with c² of arrivals and service of 1.

    A task that is always busy waits no longer than a fluid does: that queue is counted event by event.
    """
    load = flow * service_per_event
    room = max(tasks - load, 0.05)
    return load * service_seconds / room + service_seconds
