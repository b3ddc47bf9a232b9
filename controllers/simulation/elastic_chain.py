"""A chain of four operators, second by second: parse → filter → analyse → sink.

The flow is a fluid: an operator passes at most  tasks / service  events/s, and the rest waits. In addition, an event
waits at each operator according to Kingman's formula (`controllers.parallelism.task_allocation`) and is served.
Events leave in the order of their arrival, so an event that leaves the sink at t arrived when the total arrivals
equaled the total departures at t.

Delivery is at least once: an event that has not left `TIMEOUT_SECONDS` after its arrival has failed and arrives again,
while its first copy is still processed. An event that finds `BUFFER_EVENTS` in the chain is dropped, fails, and arrives
again likewise (Stutz, 9.3 and 9.4: back-pressure off, dropping on). A change of tasks stops the chain for a pause, in
which arrivals wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controllers.baselines.parallelism import MeasuredInterval
from controllers.simulation.scenario import Floats, create_random_generator

TIMEOUT_SECONDS, BUFFER_EVENTS = 60, 300_000.0
# Noise of a measured service time; all other values are exact.
MEASURED_NOISE = 0.01


@dataclass(frozen=True)
class Kind:
    """The type of an operator: processing time of an event, and events emitted per event."""

    name: str
    service_seconds: float
    selectivity: float


KINDS = (
    Kind("parse", 0.0010, 0.8),
    Kind("filter", 0.0008, 1.0),
    Kind("analyse", 0.0013, 0.6),
    Kind("sink", 0.0005, 0.0),
)
# Load offered to an operator per event at the source.
SHARES = tuple(float(np.prod([kind.selectivity for kind in KINDS[:at]])) for at in range(len(KINDS)))
SERVICES = tuple(kind.service_seconds * share for kind, share in zip(KINDS, SHARES, strict=True))


@dataclass
class _Window:
    """Counts since the start of the measurement, in events of the source."""

    seconds: int
    offered: list[float]
    executed: list[float]
    held_up: list[int]

    @classmethod
    def create_empty(cls) -> "_Window":
        return cls(0, [0.0] * len(KINDS), [0.0] * len(KINDS), [0] * len(KINDS))


class Chain:
    """The plant. Arrays have a value per second, in events of the source."""

    def __init__(self, seconds: int, tasks: Mapping[str, int], seed: int) -> None:
        self.tasks = [tasks[kind.name] for kind in KINDS]
        self.paused_seconds = self.second = self.rescales = 0
        self.arrived, self.left = np.zeros(seconds), np.zeros(seconds)
        self.failed, self.dropped = np.zeros(seconds), np.zeros(seconds)
        self.waits, self.counts = np.zeros(seconds), np.zeros(seconds)
        self._came, self._gone = np.zeros(seconds), np.zeros(seconds)
        self._queues = [0.0] * len(KINDS)
        self._window = _Window.create_empty()
        self._chance = create_random_generator(seed, "measured")

    def run(self, fresh_events: float) -> None:
        at = self.second
        came = fresh_events + self._fail(at)
        room = max(0.0, BUFFER_EVENTS - sum(self._queues))
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
        flow, wait, window = entering, 0.0, self._window
        window.seconds += 1
        for index, service in enumerate(SERVICES):
            capacity = self.tasks[index] / service
            waiting = self._queues[index] + flow
            window.offered[index] += flow
            flow = min(waiting, capacity)
            window.executed[index] += flow
            self._queues[index] = waiting - flow
            window.held_up[index] += waiting - flow > capacity
            wait += _compute_kingman_seconds(self.tasks[index], flow, service, KINDS[index].service_seconds)
        self.waits[self.second] = wait
        return flow

    def start_measurement(self) -> None:
        self._window = _Window.create_empty()

    def rescale(self, tasks: Mapping[str, int], pause_seconds: int) -> None:
        """Set the tasks; if they change, stop everything for the pause."""
        wanted = [tasks[kind.name] for kind in KINDS]
        if wanted != self.tasks:
            self.tasks, self.paused_seconds = wanted, pause_seconds
            self.rescales += 1

    def measure(self) -> list[MeasuredInterval]:
        window, seconds = self._window, max(1, self._window.seconds)
        noise = 1 + MEASURED_NOISE * self._chance.standard_normal(len(KINDS))
        return [
            MeasuredInterval(
                kind.name,
                self.tasks[at],
                window.offered[at] * SHARES[at] / seconds,
                kind.service_seconds * float(noise[at]),
                self._queues[at] * SHARES[at],
                window.executed[at] * SHARES[at],
                window.executed[at] * SHARES[at] * kind.selectivity,
                window.held_up[at] / seconds,
            )
            for at, kind in enumerate(KINDS)
        ]

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
