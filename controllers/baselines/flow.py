"""Spark Streaming's rate estimator: a PID on the processing rate that ignores the queue behind the batch.

At the end of a batch of n events that waited for `scheduling_delay_seconds` and took `processing_seconds`:

    error(k) = rate(k-1) - n / processing_seconds
    waiting(k) = scheduling_delay_seconds · (n / processing_seconds) / batch_seconds
    rate(k) = max(rate(k-1) - proportional·error(k) - integral·waiting(k), minimum)

with Spark's defaults 1, 0.2, and 100 events/s. Its derivative term is 0 by default, and omitted. The first rate is that
of the first batch.

Join the shortest queue: every event goes to the queue with the fewest events at that instant.

The rule counts events, not their processing time: behind a slow replica, a short queue can be a longer wait.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

PROPORTIONAL, INTEGRAL, MINIMUM_PER_SECOND = 1.0, 0.2, 100.0


@dataclass(frozen=True)
class SparkPid:
    """The estimator. Rates are in events/s; `rate_per_second` is None before the first batch."""

    batch_seconds: float
    rate_per_second: float | None = None
    minimum_per_second: float = MINIMUM_PER_SECOND

    def update(self, events: float, processing_seconds: float, scheduling_delay_seconds: float) -> "SparkPid":
        """Return the estimator after a batch; a batch without events or time changes nothing."""
        if events <= 0 or processing_seconds <= 0:
            return self
        processed = events / processing_seconds
        if self.rate_per_second is None:
            return replace(self, rate_per_second=processed)
        error = self.rate_per_second - processed
        waiting = scheduling_delay_seconds * processed / self.batch_seconds
        rate = self.rate_per_second - PROPORTIONAL * error - INTEGRAL * waiting
        return replace(self, rate_per_second=max(rate, self.minimum_per_second))


Floats = npt.NDArray[np.float64]


def join(lengths: Floats, events: float) -> Floats:
    """Return the number of events that each queue gets: the shortest queues are filled to one level."""
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    # Events needed to raise the n shortest queues to the length of the next.
    needed = np.arange(len(lengths)) * ordered - np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    filled = int(np.flatnonzero(needed <= events)[-1]) + 1
    level = (events + float(ordered[:filled].sum())) / filled
    return np.asarray(np.maximum(level - lengths, 0.0))
