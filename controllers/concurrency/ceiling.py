"""The ceiling of a pool: the size past which its throughput collapses, because the memory of a machine is full.

Past its ceiling, a pool completes almost nothing, and the events in progress take long to finish. The law therefore
tests a size past the ceiling only once, until the ceiling expires. It halves the distance to the greatest size that
works, down to one step. The ceiling expires after `VALID_SECONDS`, and with a change of the mix of work or of the
throughput, because other events need a different amount of memory. The events that a collapse leaves in progress delay
the next measurement, which therefore starts when they have left (Little's law).
"""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from common.parameter import value
from controllers.concurrency.parameters import MAX_THREADS
from controllers.concurrency.throughput import ThroughputMoments

VALID_SECONDS = 3_600.0
# Throughput that collapses is less than this share of the throughput of fewer threads. Contention alone reduces it
# less: if throughput is inversely proportional to the size, doubling the size halves it.
COLLAPSE_SHARE = 1 / 3
# A shorter time without a sample may be a pause.
PAUSE_SECONDS = 1.0
MAX_DRAIN_SECONDS = 30.0


class Ceiling(msgspec.Struct, frozen=True):
    good: Annotated[int, value("threads", "Greatest size that works.", 1, MAX_THREADS)]
    bad: Annotated[int, value("threads", "Smallest size whose throughput collapsed.", 1, MAX_THREADS)]
    drain_seconds: Annotated[
        float, value("s", "Time until the events in progress are finished.", 0, MAX_DRAIN_SECONDS)
    ] = 0.0
    age_seconds: Annotated[float, value("s", "Time since the collapse.", 0, 1e15, required=True)] = 0.0

    @classmethod
    def learn(cls, good: int, collapsed: ThroughputMoments) -> "Ceiling":
        """Return the ceiling after a measurement of a size whose throughput collapsed."""
        drain_seconds = collapsed.threads / collapsed.throughput_per_second
        return cls(good, collapsed.threads, min(MAX_DRAIN_SECONDS, drain_seconds))

    @property
    def is_draining(self) -> bool:
        return self.age_seconds < self.drain_seconds

    def add_age(self, seconds: float) -> "Ceiling | None":
        aged = replace(self, age_seconds=self.age_seconds + seconds)
        return aged if aged.age_seconds < VALID_SECONDS else None

    def limit_threads(self, step: float) -> int:
        """Return the maximum size to test: halfway to the ceiling, or the size that works within one step of it."""
        return self.good if self.bad <= self.good * (1 + step) + 1 else (self.good + self.bad) // 2

    def record_size(self, threads: int) -> "Ceiling":
        """Return the ceiling after a size that did not collapse."""
        return replace(self, good=threads) if self.good < threads < self.bad else self


def has_collapsed(now: ThroughputMoments, fewer_per_second: float) -> bool:
    return now.throughput_per_second < COLLAPSE_SHARE * fewer_per_second
