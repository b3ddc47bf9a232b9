"""The cost of an event by the number of tasks of its operator, learned from past sizes.

Tasks that share a resource slow each other down:  service(p) = c + d p,  d ≥ 0, so p tasks pass p / (c + d p) events/s,
which is r p / (1 + σ (p - 1)) with r = 1 / (c + d) and σ = d / (c + d). The line goes through the newest points by
least squares. Measurements are noisy (`NOISE` of the service), so the slope is drawn towards 0, more so the closer the
points are: a slope of `SLOPE` of the service is usual.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controllers.parallelism.queueing_topology import EXACT

NOISE, SLOPE, REMEMBERED, NEWEST_WEIGHT = 0.02, 0.02, 4, 0.5


@dataclass(frozen=True)
class ScalingCurve:
    """service(p) = base + slope p, s."""

    base_seconds: float
    slope_seconds: float

    @classmethod
    def fit(cls, points: Mapping[int, float], tasks: int) -> "ScalingCurve":
        """Fit tasks → service (s), exactly through the point of `tasks`, which is measured now."""
        counts, services = np.asarray(list(points), dtype=float), np.asarray(list(points.values()))
        spread = float(((counts - counts.mean()) ** 2).sum())
        slope, now = 0.0, points[tasks]
        if spread > 0 and now > 0:
            slope = float(((counts - counts.mean()) * services).sum()) / spread
            slope *= SLOPE**2 / (SLOPE**2 + NOISE**2 / spread)
        # A task costs something, even where noise says that the others do all of it.
        slope = min(max(0.0, slope), 0.9 * now / tasks)
        return cls(now - slope * tasks, slope)

    def compute_service_seconds(self, tasks: float) -> float:
        return self.base_seconds + self.slope_seconds * tasks

    def compute_capacity_per_second(self, tasks: float) -> float:
        """Return the capacity of all tasks; infinite if service takes no time."""
        service = self.compute_service_seconds(tasks)
        return tasks / service if service > 0 else math.inf

    def compute_fewest_tasks(self, rate_per_second: float, utilisation: float) -> float:
        """Return the fewest tasks that pass this rate at this utilization; infinite if no number does."""
        room = utilisation - rate_per_second * self.slope_seconds
        if room <= 0:
            return math.inf
        return max(1, math.ceil(rate_per_second * self.base_seconds / room * (1 - EXACT)))


def remember(points: Mapping[int, float], tasks: int, service_seconds: float) -> dict[int, float]:
    """Return the points with this one, newest last; an earlier measurement there has half the weight."""
    before = points.get(tasks, service_seconds)
    kept = {count: service for count, service in points.items() if count != tasks}
    kept[tasks] = NEWEST_WEIGHT * service_seconds + (1 - NEWEST_WEIGHT) * before
    return dict(list(kept.items())[-REMEMBERED:])
