"""Worker hosts without processes: slots that call services of limited capacity, on a clock of their own.

Each slot takes one short-lived worker after the other; a worker makes so many calls of so many events. What it notes
goes to the real `Departures`, as it would through the host's stream.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workers.pool.departures import BEGAN, DONE, ENDED, Departures, WorkerNote

DISPATCH_SECONDS = 0.01


@dataclass
class Worker:
    """Of one slot: the calls it has still to make, what is done."""

    slot: int
    left: int
    work: "Work"
    done: list[WorkerNote] = field(default_factory=list)


class SimulatedClock:
    def __init__(self, seed: int) -> None:
        self.now, self.chance, self._serial = 0.0, random.Random(seed), 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []

    def plan(self, seconds: float, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._serial, act))

    def until(self, at: float) -> None:
        while self._agenda and self._agenda[0][0] <= at:
            self.now, _, act = heapq.heappop(self._agenda)
            act()
        self.now = at


class SimulatedService:
    """`capacity` calls are served at once, each in `seconds` give or take `spread`. Each call that waits makes the
    others longer by `crowding`. Its clock is that of all hosts that call it.
    """

    def __init__(
        self,
        capacity: int,
        seconds: float,
        spread: float = 0.1,
        seed: int = 1,
        crowding: float = 0.0,
        clock: SimulatedClock | None = None,
    ) -> None:
        self.capacity, self.seconds, self.spread, self.crowding = capacity, seconds, spread, crowding
        self.clock, self._served = clock or SimulatedClock(seed), 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def now(self) -> float:
        return self.clock.now

    def until(self, at: float) -> None:
        self.clock.until(at)

    def call(self, answered: Callable[[], None]) -> None:
        if self._served >= self.capacity:
            self._waiting.append(answered)
            return
        self._served += 1

        def end() -> None:
            self._served -= 1
            while self._waiting and self._served < self.capacity:  # it may have grown meanwhile
                self.call(self._waiting.popleft())
            answered()

        seconds = self.seconds * (1 + self.crowding * len(self._waiting))
        self.clock.plan(seconds * self.clock.chance.uniform(1 - self.spread, 1 + self.spread), end)


@dataclass
class Work:
    """A queue's work: each worker makes so many calls of so many events."""

    service: SimulatedService
    calls: int
    events: int
    name: str = ""


class SimulatedHost:
    """`slots` processes that call a service, their own or the one given. Without `has_work` no further
    worker begins. `choose` gives the work of the next worker.
    """

    def __init__(
        self,
        slots: int,
        capacity: int,
        service_seconds: float,
        calls: int = 5,
        events: int = 8,
        spread: float = 0.1,
        service: SimulatedService | None = None,
    ) -> None:
        self.service = service or SimulatedService(capacity, service_seconds, spread)
        self.clock, self.has_work, self.served_seconds = self.service.clock, True, 0.0
        work = Work(self.service, calls, events)
        self.choose: Callable[[], Work] = lambda: work
        self.departures = Departures(slots, self.now)
        self.slots: list[int] = []
        self.wanted, self._names = slots, 0
        self._fill()

    @property
    def now(self) -> float:
        return self.service.now

    def resize(self, slots: int) -> None:
        """More begin at once; who is too many leaves at the end of its worker."""
        self.wanted = slots
        self._fill()

    def run(self, seconds: float) -> None:
        run([self], seconds)

    def look(self) -> None:
        """What the host does each second with what was noted."""
        self.departures.resize(len(self.slots), self.now)
        self.departures.settle(self.now, self.slots)

    def _fill(self) -> None:
        while len(self.slots) < self.wanted:
            self._names += 1
            self.slots.append(self._names)
            self._begin_after(self.clock.chance.uniform(0, DISPATCH_SECONDS), self._names)

    def _begin_after(self, seconds: float, slot: int) -> None:
        work = self.choose()
        self.clock.plan(seconds, lambda: self._begin(Worker(slot, work.calls, work)))

    def _begin(self, worker: Worker) -> None:
        self.departures.add([WorkerNote(self.now, worker.slot, BEGAN)], self.now, worker.slot)
        worker.work.service.call(lambda: self._answered(worker))

    def _answered(self, worker: Worker) -> None:
        worker.left -= 1
        self.served_seconds += worker.work.service.seconds
        worker.done.append(WorkerNote(self.now, worker.slot, DONE, worker.work.events, worker.work.name))
        if worker.left:
            worker.work.service.call(lambda: self._answered(worker))
        else:
            self._end(worker)

    def _end(self, worker: Worker) -> None:
        """What was done is told at the end of its round, as a worker tells it."""
        self.departures.add(worker.done, self.now, worker.slot)
        self.departures.add([WorkerNote(self.now, worker.slot, ENDED)], self.now, worker.slot)
        if len(self.slots) > self.wanted:
            self.slots.remove(worker.slot)
        elif self.has_work:
            self._begin_after(DISPATCH_SECONDS, worker.slot)


def run(hosts: Sequence[SimulatedHost], seconds: float) -> None:
    """For so long; once a second each host looks at what was noted."""
    service = hosts[0].service
    end = service.now + seconds
    while service.now < end:
        service.until(min(end, service.now + 1.0))
        for host in hosts:
            host.look()
