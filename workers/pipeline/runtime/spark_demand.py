"""The demand of a process's applications for Spark: its start and its end.

A thread of the pipeline process executes the small batches of a nearly idle application as fast as a Spark task, and
saves a Java process and the Python workers. All threads of the process share about one core, so Spark takes over before
that core is busy. It stays until the load has been low for a long time, because a change delays events by seconds.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workers.pipeline.status.status import ApplicationLoad

# From this rate on, the dispatcher also looks for events more often (`dispatcher.BUSY_EVENTS_PER_SECOND`).
MAX_EVENTS_PER_SECOND = 2_000.0
# Share of a core that the process uses. If the load doubles while Spark starts, the core still suffices.
MAX_CPU_SHARE = 0.5
# The period of both measurements. A backlog of up to 10,000 events, such as after a restart, doesn't start Spark.
WINDOW_SECONDS = 5.0
# Hysteresis: the load is low below a tenth of the limits.
QUIET_SHARE = 0.1
QUIET_SECONDS = 900.0  # a start of Spark takes about 15 s of CPU time, so it can start at most four times an hour
LIMIT = f"Spark starts above {MAX_EVENTS_PER_SECOND:,.0f} events/s"


@dataclass(frozen=True)
class _Sample:
    at: float
    events: int
    cpu_seconds: float


class SparkDemand:
    """Observes the load of all applications of a process. Call `observe` every second.

    cpu_seconds: returns the CPU time of the process. events_per_second: of all applications.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, cpu_seconds: Callable[[], float] = time.process_time
    ) -> None:
        self._monotonic, self._cpu_seconds = monotonic, cpu_seconds
        self._admitted: dict[str, int] = {}
        self._samples: deque[_Sample] = deque()
        self._busy_at = monotonic()
        self.events_per_second = 0.0

    def observe(self, loads: Mapping[str, ApplicationLoad]) -> str | None:
        """Return why the applications need Spark, as a clause; None if they don't."""
        cpu_share = self._add_sample(loads)
        busy_share = sum(load.busy_share for load in loads.values())
        tasks = max((load.tasks for load in loads.values()), default=1)
        if (
            self.events_per_second > QUIET_SHARE * MAX_EVENTS_PER_SECOND
            or busy_share > QUIET_SHARE * MAX_CPU_SHARE
            or tasks > 1
        ):
            self._busy_at = self._monotonic()
        if self.events_per_second > MAX_EVENTS_PER_SECOND:
            return f"{self.events_per_second:,.0f} events/s exceed {MAX_EVENTS_PER_SECOND:,.0f} events/s"
        if cpu_share > MAX_CPU_SHARE:
            return f"the process used {cpu_share:.0%} of a core, more than {MAX_CPU_SHARE:.0%}"
        if tasks > 1:
            return f"{tasks} tasks are set for an operator"
        return None

    @property
    def quiet_seconds(self) -> float:
        """Return for how long the load has been low."""
        return self._monotonic() - self._busy_at

    def _add_sample(self, loads: Mapping[str, ApplicationLoad]) -> float:
        """Update the rate, and return the process's share of a core.

        The events of an application count from the first time that it is observed.
        """
        known = self._admitted.keys() & loads.keys()
        new = sum(max(0, loads[name].admitted_events - self._admitted[name]) for name in known)
        self._admitted = {name: load.admitted_events for name, load in loads.items()}
        events = self._samples[-1].events + new if self._samples else 0
        newest = _Sample(self._monotonic(), events, self._cpu_seconds())
        self._samples.append(newest)
        while len(self._samples) > 2 and self._samples[1].at <= newest.at - WINDOW_SECONDS:
            self._samples.popleft()
        oldest = self._samples[0]
        # In the first seconds, the window is not full.
        seconds = max(WINDOW_SECONDS, newest.at - oldest.at)
        self.events_per_second = (newest.events - oldest.events) / seconds
        return (newest.cpu_seconds - oldest.cpu_seconds) / seconds
