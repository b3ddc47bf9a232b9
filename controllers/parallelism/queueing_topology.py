"""The topology as the parallelism laws see it: operators with what queues at them, and paths through them.

For operator v with p tasks, each offered λ tuples/s, service S [s] and squared coefficients of variation c² of arrivals
and service, Kingman's formula gives the waiting time for any other number p* of tasks (Stutz,
7.1.3, with ERRATA E30):

    a = λ S² p (c_A² + c_S²) / 2,  b = λ S p,  W(p*) = e a / (p* - b)   for p* > b

e is the ratio of measured to computed waiting time, 1 if it isn't used. b is the operator's load in tasks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from common.errors import BadInput

# Rounding must not make a load of exactly p tasks look smaller.
EXACT = 1e-9


@dataclass(frozen=True)
class QueueingOperator:
    """What determines the waiting time of an operator; `tasks` is the current number."""

    name: str
    tasks: int
    weight: float  # e a [s]
    load: float  # b [tasks]
    latency_seconds: float
    minimum: int
    maximum: int

    def wait_seconds(self, tasks: int) -> float:
        """Return W(p*), infinite if the tasks can't keep up."""
        if tasks <= self.load * (1 + EXACT):
            return math.inf
        return self.weight / (tasks - self.load)

    def compute_fewest_tasks(self, wait_seconds: float) -> int:
        """Return the fewest tasks with at most this wait: ⌈e a / w + b⌉, the exact inverse (ERRATA E31)."""
        if wait_seconds <= 0:
            return self.maximum if self.weight > 0 else self.fewest
        wanted = math.ceil((self.weight / wait_seconds + self.load) * (1 - EXACT))
        return max(wanted, self.fewest)

    @property
    def fewest(self) -> int:
        """Return the fewest tasks that keep up, at least the minimum: max(p_min, ⌊b⌋ + 1) (ERRATA E30)."""
        return max(self.minimum, math.floor(self.load * (1 + EXACT)) + 1)

    @property
    def utilisation(self) -> float:
        return self.load / self.tasks


def build_operator(name: str, row: Mapping[str, Any], minimum: int, maximum: int, corrected: bool) -> QueueingOperator:
    rate = 1 / row["arrival_interval_seconds"]
    service, tasks = row["service_seconds"], int(row["tasks"])
    variability = (row["arrival_cv2"] + row["service_cv2"]) / 2
    weight = rate * service**2 * tasks * variability * (row["correction"] if corrected else 1.0)
    return QueueingOperator(name, tasks, weight, rate * service * tasks, row["latency_seconds"], minimum, maximum)


def check_paths(paths: Sequence[Sequence[str]], known: Sequence[str], field: str) -> None:
    """Raise `BadInput` for an invalid path, and for paths that form a cycle.

    A path is invalid if it is empty, or if it names an operator twice or an unmeasured one.
    """
    if not paths:
        raise BadInput(field, "must have at least one path")
    for at, path in enumerate(paths):
        if not path:
            raise BadInput(f"{field}[{at}]", "must have at least one operator")
        for place, name in enumerate(path):
            if name not in known:
                raise BadInput(f"{field}[{at}][{place}]", f"{name} is not an operator; known: {', '.join(known)}")
            if name in path[:place]:
                raise BadInput(f"{field}[{at}][{place}]", f"{name} appears twice; a path must not have a cycle")
    if (loop := _cycle(paths)) is not None:
        raise BadInput(field, f"must not form a cycle; {loop} leads back to itself")


def _cycle(paths: Sequence[Sequence[str]]) -> str | None:
    """Return an operator that comes before itself, or None."""
    order: TopologicalSorter[str] = TopologicalSorter()
    for path in paths:
        for left, right in pairwise(path):
            order.add(right, left)
    try:
        order.prepare()
    except CycleError as error:
        return str(min(error.args[1]))
    return None
