"""Baselines for the tasks of operators; each sees the same measurements of one interval.

| baseline | rule |
|---|---|
| ds2 | offered load and backlog, at a utilization of .7; only outside .4-1.0 (DS2, Flink) |
| hpa | tasks times utilization over its target, unchanged within 10 %; maximum of 300 s (Kubernetes) |
| dhalion | the operator that delays others grows by time delayed over time not; or the idlest shrinks by .2 |
| static-peak | tasks for the greatest rate of all, which is known in advance |

WT: Lohrmann's algorithm as in the thesis (Stutz, chapter 7), which `parallelism_queueing` corrects.

An operator with a utilization of 1 or more is a bottleneck: it gets ⌊2 p max(1, λS)⌋ tasks, and the others wait until
there is none. Otherwise one path after another starts from max(p_min, ⌊λSp⌋ + 1), and the operator whose next task
gains most jumps to max(p + 1, P_Δ) (7.1.6), more than the bound needs (ERRATA E32); the last one below its maximum gets
⌈a / w + b⌉ e tasks (7.1.8, E31). A bottleneck at its maximum, and a bound that can't be kept, are exceptions there
(7.1.4, 7.1.5): nothing changes.

RG: Zacheilas' algorithm as in the thesis (Stutz, chapter 8), which `parallelism_forecast` corrects.

An operator's input and output in a window are regressed on records made while WT was in control:

    k(x, x') = σ² exp(-½ Σ |x_d - x'_d| / λ_d),  mean k(x, X) (K + I / 100)^-1 y

input over (timestamp, elapsed), output over (timestamp, elapsed, tasks), y as it is, around 0. λ are the evaluation's
10 000 s and 10 tasks. With its timestamps in seconds and a λ of 1, nothing would correlate with anything (ERRATA E34),
so here they count days, weakly weighted, as its text says. The cheapest path through six windows at costs of 1 (8.2.3)
gives the tasks; the last operator emits nothing and is never scaled (E35).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.parallelism.forecast_law import find_cheapest_path
from controllers.parallelism.queueing_law import QueueingRow
from controllers.parallelism.task_allocation import EXACT, QueueingOperator

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
        row = QueueingRow(
            tasks=self.tasks,
            arrival_interval_seconds=self.tasks / max(self.rate_per_second, 1e-9),
            service_seconds=self.service_seconds,
            arrival_cv2=self.arrival_cv2,
            service_cv2=self.service_cv2,
            latency_seconds=self.service_seconds,
        )
        return row.build_operator(self.name, minimum, maximum)


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
    slow = max(seen.operators, key=lambda operator: operator.held_up_share)
    if slow.held_up_share > HELD_UP:
        share = min(slow.held_up_share, MAX_HELD_UP)
        return tasks | {slow.name: seen.clip_tasks(math.ceil(slow.tasks * (1 + share / (1 - share))))}
    idle = min(seen.operators, key=lambda operator: operator.utilisation)
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


def apply_wt(seen: SeenPath, bound_seconds: float, correction: float = 1.0) -> Tasks:
    """Return the tasks of every operator on the path. The evaluation had e switched off, which is a correction of 1."""
    operators = [operator.as_operator(seen.minimum, seen.maximum) for operator in seen.operators]
    now = {operator.name: operator.tasks for operator in operators}
    busy = [operator for operator in operators if operator.utilisation >= 1.0]
    if busy:
        if any(operator.tasks >= operator.maximum for operator in busy):
            return now
        return now | {
            operator.name: seen.clip_tasks(math.floor(2 * operator.tasks * max(1.0, operator.utilisation)))
            for operator in busy
        }
    budget = bound_seconds - math.fsum(operator.latency_seconds for operator in operators)
    if math.fsum(operator.wait_seconds(operator.maximum) for operator in operators) > budget:
        return now
    return now | _allocate_path_tasks(operators, budget, correction)


def _allocate_path_tasks(
    operators: Sequence[QueueingOperator], budget_seconds: float, correction: float
) -> dict[str, int]:
    tasks = {operator.name: min(operator.fewest, operator.maximum) for operator in operators}
    while (wait := sum(operator.wait_seconds(tasks[operator.name]) for operator in operators)) > budget_seconds:
        below = [operator for operator in operators if tasks[operator.name] < operator.maximum]
        if len(below) == 1:
            left = budget_seconds - (wait - below[0].wait_seconds(tasks[below[0].name]))
            # From the rest of the bound; the product with e is that of the thesis, with too many or too few tasks.
            wanted = math.ceil(below[0].compute_fewest_tasks(left) * correction)
            return tasks | {below[0].name: min(max(wanted, below[0].minimum), below[0].maximum)}
        first, second = sorted(below, key=lambda operator: -_compute_gain(operator, tasks[operator.name]))[:2]
        gain = _compute_gain(second, tasks[second.name])
        jump = first.maximum  # P_Δ of Lohrmann's paper
        if gain > 0:
            jump = math.ceil(first.load + (-1 + math.sqrt(1 + 4 * first.weight / gain)) / 2)
        tasks[first.name] = min(max(tasks[first.name] + 1, jump), first.maximum)
    return tasks


def _compute_gain(of: QueueingOperator, tasks: int) -> float:
    return of.wait_seconds(tasks) - of.wait_seconds(tasks + 1)


Floats = npt.NDArray[np.float64]
DAY_SECONDS, ELAPSED_SECONDS, TASKS = 86_400.0, 10_000.0, 10.0
WINDOWS, NOISE = 6, 0.01


@dataclass(frozen=True)
class Record:
    at_seconds: float
    tasks: int
    executed_events: float
    emitted_events: float


class ThesisRegression:
    """The algorithm, trained once on records by operator; the last operator is the last of the path."""

    def __init__(self, records: Mapping[str, Sequence[Record]], window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._into, self._out = dict[str, _Regression](), dict[str, _Regression]()
        self._selectivity = dict[str, float]()
        for name, rows in list(records.items())[:-1]:
            if not rows:  # a run shorter than a window gives no records: the operator keeps its tasks
                continue
            into = np.asarray([row.executed_events for row in rows])
            out = np.asarray([row.emitted_events for row in rows])
            times = np.asarray([[row.at_seconds / DAY_SECONDS, row.at_seconds] for row in rows])
            tasks = np.asarray([[row.tasks] for row in rows], dtype=float)
            self._into[name] = _Regression(times, into, (1.0, ELAPSED_SECONDS))
            self._out[name] = _Regression(np.hstack([times, tasks]), out, (1.0, ELAPSED_SECONDS, TASKS))
            self._selectivity[name] = float(out.sum() / max(into.sum(), 1e-9))

    def decide(self, seen: SeenPath) -> Tasks:
        """Return the first step of each operator's cheapest path."""
        return {
            operator.name: self._choose_tasks(seen, operator.name, operator.tasks)
            if operator.name in self._into
            else operator.tasks
            for operator in seen.operators
        }

    def _choose_tasks(self, seen: SeenPath, name: str, tasks: int) -> int:
        ahead = seen.at_seconds + self._window_seconds * np.arange(1, WINDOWS + 1)
        counts = np.arange(seen.minimum, seen.maximum + 1, dtype=float)
        times = np.column_stack([ahead / DAY_SECONDS, ahead])
        grid = np.column_stack([np.repeat(times, counts.size, axis=0), np.tile(counts, ahead.size)])
        out = self._out[name].compute_mean(grid).reshape(ahead.size, counts.size)
        missed = np.maximum(0.0, self._into[name].compute_mean(times)[:, None] * self._selectivity[name] - out)
        columns, _ = find_cheapest_path(missed, tasks - seen.minimum, 1.0, 1.0, 1.0, seen.minimum)
        return seen.minimum + columns[0]


class _Regression:
    def __init__(self, points: Floats, values: Floats, scales: Sequence[float]) -> None:
        self._points, self._scales = points, np.asarray(scales)
        covariance = self._compute_kernel(points) + NOISE * np.eye(len(points))
        self._weights = np.linalg.solve(covariance, values)

    def _compute_kernel(self, points: Floats) -> Floats:
        distance = np.abs(points[:, None, :] - self._points[None, :, :]) / self._scales
        return np.asarray(np.exp(-0.5 * distance.sum(axis=2)))

    def compute_mean(self, points: Floats) -> Floats:
        return np.asarray(self._compute_kernel(points) @ self._weights)
