"""A worker host without processes: slots that call a service of limited capacity, on a clock of its own.

Each slot takes one short-lived worker after the other; a worker makes so many calls of so many events. What
it notes goes to the real `Departures`, as it would through the host's stream.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

from workers.pool.departures import BEGAN, DONE, ENDED, Departures, WorkerNote

DISPATCH_SECONDS = 0.01


@dataclass
class Worker:
    """Of one slot: when it began, the calls it has still to make, what is done."""

    slot: int
    left: int
    done: list[WorkerNote] = field(default_factory=list)


class SimulatedHost:
    """`capacity` calls are served at once, each in `service_seconds` give or take `spread`. Without
    `has_work` no further worker begins."""

    def __init__(
        self,
        slots: int,
        capacity: int,
        service_seconds: float,
        calls: int = 5,
        events: int = 8,
        spread: float = 0.1,
    ) -> None:
        self.capacity, self.service_seconds = capacity, service_seconds
        self.calls, self.events, self.spread = calls, events, spread
        self.now, self.chance, self.has_work = 0.0, random.Random(1), True
        self.departures = Departures(slots, 0.0)
        self.slots: list[int] = []
        self.wanted, self._names, self._serial = slots, 0, 0
        self._agenda: list[tuple[float, int, str, Worker]] = []
        self._waiting: deque[Worker] = deque()
        self._served = 0
        self._fill()

    def resize(self, slots: int) -> None:
        """More begin at once; who is too many leaves at the end of its worker."""
        self.wanted = slots
        self._fill()

    def run(self, seconds: float) -> None:
        """For so long; once a second the host looks at what was noted."""
        end = self.now + seconds
        while self.now < end:
            self._until(min(end, self.now + 1.0))
            self.departures.resized(len(self.slots), self.now)
            self.departures.settle(self.now, self.slots)

    def _until(self, at: float) -> None:
        while self._agenda and self._agenda[0][0] <= at:
            self.now, _, kind, worker = heapq.heappop(self._agenda)
            (self._begin if kind == "begin" else self._call_done)(worker)
        self.now = at

    def _fill(self) -> None:
        while len(self.slots) < self.wanted:
            self._names += 1
            self.slots.append(self._names)
            self._plan(self.chance.uniform(0, DISPATCH_SECONDS), "begin", Worker(self._names, self.calls))

    def _begin(self, worker: Worker) -> None:
        self.departures.add([WorkerNote(self.now, worker.slot, BEGAN)], self.now, worker.slot)
        self._call(worker)

    def _call(self, worker: Worker) -> None:
        if self._served >= self.capacity:
            self._waiting.append(worker)
            return
        self._served += 1
        seconds = self.service_seconds * self.chance.uniform(1 - self.spread, 1 + self.spread)
        self._plan(seconds, "done", worker)

    def _call_done(self, worker: Worker) -> None:
        self._served -= 1
        if self._waiting:
            self._call(self._waiting.popleft())
        worker.left -= 1
        worker.done.append(WorkerNote(self.now, worker.slot, DONE, self.events))
        if worker.left:
            self._call(worker)
        else:
            self._end(worker)

    def _end(self, worker: Worker) -> None:
        """What was done is told at the end of its round, as a worker tells it."""
        self.departures.add(worker.done, self.now, worker.slot)
        self.departures.add([WorkerNote(self.now, worker.slot, ENDED)], self.now, worker.slot)
        if len(self.slots) > self.wanted:
            self.slots.remove(worker.slot)
        elif self.has_work:
            self._plan(DISPATCH_SECONDS, "begin", Worker(worker.slot, self.calls))

    def _plan(self, seconds: float, kind: str, worker: Worker) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._serial, kind, worker))
