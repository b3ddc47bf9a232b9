"""An event simulation of engines whose threads process events at shared stations.

A thread takes an event through its engine's station, a delay, and the shared stations, and starts the next one at once;
there is always work. A pool that grows starts threads immediately; one that shrinks loses them as they finish their
events. A competitor is an open stream with a fixed rate at the last station (ERRATA E15: not a closed one). Service
times are Pareto with k = 2.5, as in the paper's experiments (Tang, 4.2). Times in s.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

PARETO_K = 2.5
CHUNK = 4_096


@dataclass
class EngineStation:
    """A station with its queue.

    `stretch(there)` multiplies the service time by the events at the station, `crowd(threads)` by the threads under way
    (a shared memory).
    """

    servers: int
    service_seconds: float
    stretch: Callable[[int], float] | None = None
    crowd: Callable[[int], float] | None = None
    busy: int = 0
    waiting: deque[int] = field(default_factory=deque)
    busy_seconds: float = 0.0


@dataclass
class EnginePool:
    """An engine: its own station, and the completions of its threads since the last check."""

    own: EngineStation
    target_threads: int = 0
    alive: int = 0
    completions: list[float] = field(default_factory=list)
    completed: int = 0


class ThreadEngine:
    """All engines on one clock. `run(until)` advances it."""

    def __init__(
        self, pools: list[EnginePool], shared: list[EngineStation], delay_seconds: float, chance: np.random.Generator
    ) -> None:
        self.pools, self.shared, self.delay_seconds = pools, shared, delay_seconds
        self.now = 0.0
        self.events: list[tuple[float, int, int]] = []  # time, thread (or below 0 a competitor's arrival), stage
        self.of_thread: list[int] = []  # thread → pool
        self.free: list[int] = []
        self.draws = _pareto(chance)
        self.gaps = _exponential(chance)
        self.competitor_per_second = 0.0

    def resize(self, pool: int, threads: int) -> None:
        there = self.pools[pool]
        there.target_threads = threads
        while there.alive < threads:
            there.alive += 1
            thread = self._allocate_thread(pool)
            self._enter(thread, 0)

    def compete(self, per_second: float) -> None:
        """Start an open stream at the last shared station; 0 ends it."""
        if self.competitor_per_second == 0 and per_second > 0:
            heapq.heappush(self.events, (self.now + next(self.gaps) / per_second, -1, 0))
        self.competitor_per_second = per_second

    def run(self, until: float) -> None:
        events = self.events
        while events and events[0][0] <= until:
            self.now, thread, stage = heapq.heappop(events)
            if thread == -1:
                if self.competitor_per_second > 0:
                    heapq.heappush(self.events, (self.now + next(self.gaps) / self.competitor_per_second, -1, 0))
                    self._enter(-2, len(self.shared) + 1)
            else:
                self._leave(thread, stage)
        self.now = until

    def _allocate_thread(self, pool: int) -> int:
        if self.free:
            thread = self.free.pop()
            self.of_thread[thread] = pool
            return thread
        self.of_thread.append(pool)
        return len(self.of_thread) - 1

    def _place(self, thread: int, stage: int) -> EngineStation | None:
        """Return the station of a stage: 0 is the engine's own, 1 the delay (None), 2 and up are shared."""
        if thread < 0:
            return self.shared[-1]
        if stage == 0:
            return self.pools[self.of_thread[thread]].own
        return None if stage == 1 else self.shared[stage - 2]

    def _enter(self, thread: int, stage: int) -> None:
        place = self._place(thread, stage)
        if place is None:
            heapq.heappush(self.events, (self.now + self.delay_seconds, thread, stage))
        elif place.busy < place.servers:
            self._serve(place, thread, stage)
        else:
            place.waiting.append(thread)

    def _serve(self, place: EngineStation, thread: int, stage: int) -> None:
        place.busy += 1
        seconds = place.service_seconds * next(self.draws)
        if place.stretch is not None:
            seconds *= place.stretch(place.busy + len(place.waiting))
        if place.crowd is not None:
            seconds *= place.crowd(sum(pool.alive for pool in self.pools))
        place.busy_seconds += seconds
        heapq.heappush(self.events, (self.now + seconds, thread, stage))

    def _leave(self, thread: int, stage: int) -> None:
        place = self._place(thread, stage)
        if place is not None:
            place.busy -= 1
            # A station may have lost servers since.
            if place.waiting and place.busy < place.servers:
                self._serve(place, place.waiting.popleft(), stage)
        if thread < -1:
            return
        if stage - 1 < len(self.shared):
            self._enter(thread, stage + 1)
        else:
            pool = self.pools[self.of_thread[thread]]
            pool.completions.append(self.now)
            pool.completed += 1
            if pool.alive > pool.target_threads:
                pool.alive -= 1
                self.free.append(thread)
            else:
                self._enter(thread, 0)


def _pareto(chance: np.random.Generator) -> Iterator[float]:
    """Yield Pareto values with mean 1 and k = 2.5; the minimum is 0.6."""
    least = (PARETO_K - 1) / PARETO_K
    while True:
        yield from (least * (1 + chance.pareto(PARETO_K, CHUNK))).tolist()


def _exponential(chance: np.random.Generator) -> Iterator[float]:
    while True:
        yield from chance.exponential(1.0, CHUNK).tolist()
