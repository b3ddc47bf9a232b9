"""The maximum utilization of an operator at which an event's time in it keeps a bound.

With arrivals λ [events/s] (shed events count, at no service), utilization u, mean service S = u/λ [s], and the squared
coefficient of variation c² of the service times (Pollaczek-Khinchine):

    T(u) = S + u S (1 + c²) / (2 (1 - u))

T grows with u, so the greatest u with T(u) ≤ bound is found by bisection. For c² = 1 it is the M/M/1 answer λ / (λ +
1/bound) (Röger, equations 1 and 2; ERRATA E20). Shedding itself makes service more variable, c² > 1, and the M/M/1
budget breaks its own bound (E25). Therefore c² has to be measured, shed events included.

An operator that works in batches, each with a fixed cost h [s] besides its work, has batches of C = h / (1 - u): the
arrivals of one batch are the work of the next. Almost all of its events wait one batch until their own starts, and one
for it to end:

    T(u) = 2 h / (1 - u)

If h varies by c² from batch to batch, an event that arrives at random takes

    (1.5 + c² (0.5 + u) (1 - u) / (1 + u)) h / (1 - u)

(it waits for half a batch, more likely a long one, and the batch after a long one is long, too). The longer of both
times applies: 2 covers every c² up to 1, and a c² of 1.5 from u = 0.5 on.

If few events are in a batch, they also wait because their number and their work vary, as in M/M/1 with the mean
processing time s of an event in all patterns:

    u s / (1 - u)

This does not apply if batches with too many rows are limited, so that none has more work than

    bound / 1.5 - h

because, on average, an event waits for half a batch and then for its own batch, however long the queue is at the
moment. Without this limit, about half of all short periods exceed a bound that the mean keeps.

The time outside the operator (waiting for late events, earlier stages) is added to either.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

HIGHEST = 1 - 1e-12
MEAN_BATCHES = 1.5  # mean time of an event in batches, if all batches take equally long
REDUCED_FACTOR = 2.0  # the second table is for batches with this many times the rows of the first table


@dataclass(frozen=True)
class WaitingTimeModel:
    """A model of the time that events take.

    The time consists of their service, or of the fixed cost of a batch, plus other times. service_cv2: the variability
    of the service times or of the fixed cost. event_seconds: of operators that work in batches, the processing time of
    an event.
    """

    service_cv2: float = 1.0
    batch_seconds: float | None = None
    elsewhere_seconds: float = 0.0
    event_seconds: float = 0.0

    def compute_time_seconds(self, utilisation: float, arrivals_per_second: float) -> float:
        """Return T(u) plus the time elsewhere; infinite from u = 1 on."""
        if self.batch_seconds is None:
            inside = compute_operator_seconds(utilisation, arrivals_per_second, self.service_cv2)
        else:
            inside = self._compute_batch_seconds(self.batch_seconds, utilisation)
        return self.elsewhere_seconds + inside

    def compute_minimum_seconds(self, service_seconds: float) -> float:
        inside = service_seconds
        if self.batch_seconds is not None:
            inside = self._compute_batch_seconds(self.batch_seconds, 0.0)
        return self.elsewhere_seconds + inside

    def compute_utilisation_budget(self, bound_seconds: float, arrivals_per_second: float) -> float:
        """Return the greatest utilization whose T is at most the bound; 0 if there is none."""
        left = bound_seconds - self.elsewhere_seconds
        if left <= 0:
            return 0.0
        if self.batch_seconds is None:
            return compute_operator_budget(left, arrivals_per_second, self.service_cv2)
        return _find_greatest_utilisation(
            bound_seconds, lambda utilisation: self.compute_time_seconds(utilisation, arrivals_per_second)
        )

    def compute_batch_work(self, bound_seconds: float) -> float | None:
        """Return the maximum seconds of work in a batch; None if the operators do not work in batches."""
        if self.batch_seconds is None:
            return None
        return max(0.0, (bound_seconds - self.elsewhere_seconds) / MEAN_BATCHES - self.batch_seconds)

    def _compute_batch_seconds(self, batch_seconds: float, utilisation: float) -> float:
        """Return an event's time in batches with this fixed cost."""
        u = utilisation
        if u >= 1:
            return math.inf
        varied = self.service_cv2 * (0.5 + u) * (1 - u) / (1 + u)
        return (max(2.0, 1.5 + varied) * batch_seconds + u * self.event_seconds) / (1 - u)


def compute_operator_seconds(utilisation: float, arrivals_per_second: float, service_cv2: float) -> float:
    """Return T(u), infinite from u = 1 on; 0 if nothing arrives."""
    if utilisation >= 1:
        return math.inf
    if arrivals_per_second == 0:
        return 0.0
    service = utilisation / arrivals_per_second
    return service * (1 + utilisation * (1 + service_cv2) / (2 * (1 - utilisation)))


def compute_operator_budget(bound_seconds: float, arrivals_per_second: float, service_cv2: float = 1.0) -> float:
    """Return the greatest utilization whose mean time in the operator is at most the bound."""
    return _find_greatest_utilisation(
        bound_seconds, lambda utilisation: compute_operator_seconds(utilisation, arrivals_per_second, service_cv2)
    )


def _find_greatest_utilisation(bound_seconds: float, time_seconds: Callable[[float], float]) -> float:
    """Return the greatest utilization whose time, which grows with it, is at most the bound; 0 if none is."""
    low, high = 0.0, HIGHEST
    # Bisect until no number lies between the two: exact to the last bit, and as fast as a tolerance.
    while low < (middle := (low + high) / 2) < high:
        if time_seconds(middle) <= bound_seconds:
            low = middle
        else:
            high = middle
    return low
