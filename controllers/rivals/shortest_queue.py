"""Join the shortest queue: every event goes where the fewest wait, given the lengths at that very instant.

It counts events, not the time they take: behind a slow replica a short queue can be the longer wait.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def join(lengths: Floats, events: float) -> Floats:
    """How many of the events each queue gets: the shortest ones are filled to one level."""
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    # Raising the n shortest to the next one's length takes so many events.
    needed = np.arange(len(lengths)) * ordered - np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    filled = int(np.flatnonzero(needed <= events)[-1]) + 1
    level = (events + float(ordered[:filled].sum())) / filled
    return np.asarray(np.maximum(level - lengths, 0.0))
