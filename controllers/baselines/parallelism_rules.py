"""Baselines for the tasks of operators; each sees the same measurements of one interval.

| baseline | rule |
|---|---|
| ds2 | offered load and backlog, at a utilization of .7; only outside .4-1.0 (DS2, Flink) |
| hpa | tasks times utilization over its target, unchanged within 10 %; maximum of 300 s (Kubernetes) |
| dhalion | the operator that delays others grows by time delayed over time not; or the idlest shrinks by .2 |
| static-peak | tasks for the greatest rate of all, which is known in advance |
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.parallelism.queueing_topology import EXACT, QueueingOperator, build_operator

Tasks = Mapping[str, int]

TARGET = 0.7
DS2_LOW, DS2_HIGH, CATCH_UP_SECONDS = 0.4, 1.0, 300.0
HPA_TOLERANCE, HPA_DOWN_SECONDS = 0.1, 300.0
HELD_UP, MAX_HELD_UP, IDLE, SHRINK = 0.05, 0.75, 0.5, 0.8


@dataclass(frozen=True)
class MeasuredInterval:
    """One operator over an interval of `seconds`; `rate_per_second` is the load offered by all sources."""

    name: str
    tasks: int
    rate_per_second: float
    service_seconds: float
    backlog_events: float
    executed_events: float
    emitted_events: float
    held_up_share: float  # of the interval with more events waiting than it can pass in a second
    arrival_cv2: float = 1.0
    service_cv2: float = 1.0

    @property
    def utilisation(self) -> float:
        """Return the utilization of each task; above 1 if it can't keep up."""
        return self.rate_per_second * self.service_seconds / self.tasks

    def as_operator(self, minimum: int, maximum: int) -> QueueingOperator:
        """Return the input of the queueing laws; its service time is latency that tasks can't reduce."""
        row = {
            "tasks": self.tasks,
            "arrival_interval_seconds": self.tasks / max(self.rate_per_second, 1e-9),
            "service_seconds": self.service_seconds,
            "arrival_cv2": self.arrival_cv2,
            "service_cv2": self.service_cv2,
            "latency_seconds": self.service_seconds,
        }
        return build_operator(self.name, row, minimum, maximum, corrected=False)


@dataclass(frozen=True)
class SeenPath:
    operators: Sequence[MeasuredInterval]
    at_seconds: float
    minimum: int
    maximum: int
    failed_per_second: float | None = None

    def clip_tasks(self, tasks: float) -> int:
        return int(min(max(tasks, self.minimum), self.maximum))


def compute_sufficient_tasks(load_tasks: float, utilisation: float = TARGET) -> int:
    """Return the fewest tasks with at most this utilization."""
    return math.ceil(load_tasks / utilisation * (1 - EXACT))


def apply_ds2(seen: SeenPath) -> Tasks:
    """Return tasks from the true rate of a task; one step reaches the target."""
    return {measured.name: _compute_ds2_tasks(seen, measured) for measured in seen.operators}


def _compute_ds2_tasks(seen: SeenPath, of: MeasuredInterval) -> int:
    catch_up = of.backlog_events / CATCH_UP_SECONDS
    if of.utilisation >= DS2_LOW and of.utilisation + catch_up * of.service_seconds / of.tasks <= DS2_HIGH:
        return of.tasks
    wanted = compute_sufficient_tasks(of.rate_per_second * of.service_seconds) + catch_up * of.service_seconds
    return seen.clip_tasks(math.ceil(wanted * (1 - EXACT)))


class Hpa:
    def __init__(self) -> None:
        self._recommended: dict[str, list[tuple[float, int]]] = {}

    def decide(self, seen: SeenPath) -> Tasks:
        return {measured.name: self._choose_tasks(seen, measured) for measured in seen.operators}

    def _choose_tasks(self, seen: SeenPath, of: MeasuredInterval) -> int:
        # Utilization is at most 1: it doesn't show the work that a task can't do.
        ratio = min(1.0, of.utilisation) / TARGET
        near = abs(ratio - 1) <= HPA_TOLERANCE
        wanted = of.tasks if near else seen.clip_tasks(math.ceil(of.tasks * ratio * (1 - EXACT)))
        since = seen.at_seconds - HPA_DOWN_SECONDS
        lately = [(at, tasks) for at, tasks in self._recommended.get(of.name, []) if at >= since - EXACT]
        self._recommended[of.name] = [*lately, (seen.at_seconds, wanted)]
        return wanted if wanted >= of.tasks else min(of.tasks, max(n for _, n in self._recommended[of.name]))


def apply_dhalion(seen: SeenPath) -> Tasks:
    """Return tasks with a change of one operator at most."""
    tasks = {measured.name: measured.tasks for measured in seen.operators}
    slow = max(seen.operators, key=lambda each: each.held_up_share)
    if slow.held_up_share > HELD_UP:
        share = min(slow.held_up_share, MAX_HELD_UP)
        return tasks | {slow.name: seen.clip_tasks(math.ceil(slow.tasks * (1 + share / (1 - share))))}
    idle = min(seen.operators, key=lambda each: each.utilisation)
    if idle.utilisation < IDLE:
        return tasks | {idle.name: seen.clip_tasks(math.ceil(idle.tasks * SHRINK))}
    return tasks


def apply_static_peak(seen: SeenPath, peaks_per_second: Mapping[str, float]) -> Tasks:
    return {
        measured.name: seen.clip_tasks(
            compute_sufficient_tasks(peaks_per_second[measured.name] * measured.service_seconds)
        )
        for measured in seen.operators
    }
