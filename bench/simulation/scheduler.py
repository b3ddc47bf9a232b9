"""The scheduler of a simulation: processes and their threads on virtual time, one at a time, in an order set by a seed.

Each thread of a simulated process is a greenlet. It runs until it calls `pause`, which every simulated server, database
and clock does. The scheduler then continues the thread whose time is next, and sets the virtual time to it, so that
time in which nothing happens costs nothing.

A process that crashes is never continued: its greenlets end with `ProcessKilled`, and whatever their `finally` blocks
try to write fails with it, too.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import greenlet

MAX_TRACE = 400  # of the newest steps, which a report of a violation shows
# A thread that never pauses would end the simulation without a report.
MAX_STEPS_AT_ONCE = 200_000


class ProcessKilled(BaseException):
    """The simulated process has crashed: it does nothing more."""


class SimulationStuckError(RuntimeError):
    """Virtual time does not advance: a thread repeats something without a pause."""


class VirtualProcess:
    """A process of the simulated plant. memory: what a real process would keep in global variables."""

    def __init__(self, name: str, host: str) -> None:
        self.name, self.host = name, host
        self.is_alive = True
        self.frozen_until = 0.0
        self.clock_offset = 0.0  # its host's clock minus the virtual time
        self.threads: list[VirtualThread] = []
        self.memory: dict[str, Any] = {}


class VirtualThread:
    """A thread of a process, as far as `threading.Thread` is used by simulated code."""

    def __init__(self, process: VirtualProcess, run: Callable[[], object], name: str, hub: greenlet) -> None:
        self.process, self.name, self.is_over = process, name, False
        self.error: BaseException | None = None
        self.waiters: list[VirtualThread] = []
        self.memory: dict[str, Any] = {}  # what a real thread would keep in `threading.local`
        self.on_end: list[Callable[[], None]] = []
        self.greenlet = greenlet(self._run, parent=hub)
        self.wake_number = 0  # a wake-up that was scheduled before the newest one is void
        self._target = run

    def _run(self) -> None:
        try:
            self._target()
        except ProcessKilled:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.is_over = True


class Scheduler:
    """The scheduler. now: virtual time, in seconds since 1970."""

    def __init__(self, seed: int, starts_at: float) -> None:
        self.now = self.starts_at = starts_at
        self.random = random.Random(f"{seed} order")
        self._trace: deque[tuple[float, str, str | Callable[[], str]]] = deque(maxlen=MAX_TRACE)
        self.steps = 0
        self.current: VirtualThread | None = None
        self.errors: list[tuple[str, BaseException]] = []
        self._hub = greenlet.getcurrent()
        self._heap: list[tuple[float, int, VirtualThread | Callable[[], None], int]] = []
        self._numbers = itertools.count()

    @property
    def process(self) -> VirtualProcess | None:
        """Return the process that runs now; None outside of the simulation."""
        return self.current.process if self.current is not None else None

    def start_thread(self, process: VirtualProcess, run: Callable[[], object], name: str) -> VirtualThread:
        thread = VirtualThread(process, run, name, self._hub)
        process.threads.append(thread)
        self._wake(thread, self.now)
        return thread

    def call_at(self, at: float, act: Callable[[], None]) -> None:
        """Call a function of the simulation itself at a virtual time. It must not pause."""
        heapq.heappush(self._heap, (at, next(self._numbers), act, 0))

    def pause(self, seconds: float) -> None:
        """Let this thread wait for a virtual time, and others run. Raises `ProcessKilled` in a crashed process."""
        thread = self.current
        if thread is None:
            return
        if not thread.process.is_alive:
            raise ProcessKilled
        self._wake(thread, self.now + seconds)
        self._switch(thread)

    def wait(self, waiters: list[VirtualThread], seconds: float | None) -> None:
        """Let this thread wait until another one wakes the waiters, or for a time."""
        thread = self.current
        assert thread is not None, "only a simulated thread can wait"
        if not thread.process.is_alive:
            raise ProcessKilled
        waiters.append(thread)
        if seconds is None:
            thread.wake_number += 1
        else:
            self._wake(thread, self.now + seconds)
        try:
            self._switch(thread)
        finally:
            if thread in waiters:
                waiters.remove(thread)

    def wake_all(self, waiters: list[VirtualThread]) -> None:
        for thread in waiters:
            self._wake(thread, self.now)

    def kill(self, process: VirtualProcess) -> None:
        """Crash a process. Call this outside of simulated threads (`call_at`)."""
        process.is_alive = False
        for thread in list(process.threads):
            self._end(thread)

    def run(self, until: float) -> None:
        """Run everything that happens until a virtual time. Call this in the greenlet that created the scheduler."""
        count_at_once = 0
        while self._heap and self._heap[0][0] <= until:
            at, _, item, number = heapq.heappop(self._heap)
            count_at_once = count_at_once + 1 if at <= self.now else 0
            if count_at_once > MAX_STEPS_AT_ONCE:
                raise SimulationStuckError(f"{MAX_STEPS_AT_ONCE} steps without progress of the virtual time.")
            self.now = max(self.now, at)
            if not isinstance(item, VirtualThread):
                item()
            elif number == item.wake_number and not item.is_over:
                self._continue(item)
        self.now = max(self.now, until)

    def note(self, what: str | Callable[[], str]) -> None:
        """Add a line to the trace. what: a text, or a function that returns it if the trace is shown."""
        self._trace.append((self.now, self.current.process.name if self.current else "-", what))

    def format_trace(self) -> list[str]:
        """Return the newest steps, with their times in seconds since the start."""
        return [
            f"{at - self.starts_at:12.4f} {process:12} {what if isinstance(what, str) else what()}"
            for at, process, what in self._trace
        ]

    def _wake(self, thread: VirtualThread, at: float) -> None:
        thread.wake_number += 1
        heapq.heappush(self._heap, (at, next(self._numbers), thread, thread.wake_number))

    def _continue(self, thread: VirtualThread) -> None:
        process = thread.process
        if process.frozen_until > self.now:
            self._wake(thread, process.frozen_until + self.random.random() * 1e-3)
            return
        self.steps += 1
        self.current = thread
        try:
            thread.greenlet.switch()
        finally:
            self.current = None
        if thread.is_over:
            self._note_end(thread)

    def _end(self, thread: VirtualThread) -> None:
        """End a thread's greenlet; its `finally` blocks run, and fail at the first thing that they try."""
        if not thread.is_over:
            before, self.current = self.current, thread
            try:
                if thread.greenlet:
                    thread.greenlet.throw(ProcessKilled)
            finally:
                self.current = before
            thread.is_over = True
            self._note_end(thread)

    def _note_end(self, thread: VirtualThread) -> None:
        process = thread.process
        for act in thread.on_end:
            act()
        if thread in process.threads:
            process.threads.remove(thread)
        self.wake_all(thread.waiters)
        if thread.error is not None and process.is_alive:
            self.errors.append((process.name, thread.error))

    def _switch(self, thread: VirtualThread) -> None:
        self._hub.switch()
        if not thread.process.is_alive:
            raise ProcessKilled
