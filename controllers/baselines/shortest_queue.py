"""Join the shortest queue: every event goes to the queue with the fewest events at that instant.

The rule counts events, not their processing time: behind a slow replica, a short queue can be a longer wait.
"""

import numpy as np
import numpy.typing as npt

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
