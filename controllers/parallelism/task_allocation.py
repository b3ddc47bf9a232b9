"""The topology as the parallelism laws see it: operators with what queues at them, and paths through them.

For operator v with p tasks, each offered λ tuples/s, service S [s] and squared coefficients of variation c² of arrivals
and service, Kingman's formula gives the waiting time for any other number p* of tasks (Stutz,
7.1.3, with ERRATA E30):

    a = λ S² p (c_A² + c_S²) / 2,  b = λ S p,  W(p*) = e a / (p* - b)   for p* > b

e is the ratio of measured to computed waiting time, 1 if it isn't used. b is the operator's load in tasks.

Allocation of the fewest tasks that keep every path within its bound.

One more task at an operator with b + x tasks reduces the wait by e a / (x (x + 1)), less with every task. On one path
it is therefore exact to give tasks in the order of their gain. The tasks that gain δ or more are known at once (P_Δ,
ERRATA E32), so δ is found by bisection, and only the last few tasks are given one by one: no step overshoots the bound.

Several paths are one problem (E33). Without integrality its optimum has b + √(e a μ) tasks, with μ the sum of the
multipliers of the operator's paths. From there, rounded down, each task goes where it reduces the remaining excess
most, and superfluous tasks are removed, one at a time or as two for one.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from common.errors import BadInput

# Rounding must not make a load of exactly p tasks look smaller.
EXACT = 1e-9


@dataclass(frozen=True)
class QueueingOperator:
    """The values that determine the waiting time of an operator; `tasks` is the current number."""

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


def check_paths(paths: Sequence[Sequence[str]], known: Sequence[str], field: str) -> None:
    """Raise `BadInput` for an invalid path, and for paths that form a cycle.

    A path is invalid if it is empty, or if it names an operator twice or an unmeasured one.
    """
    if not paths:
        raise BadInput(field, "must have at least one path")
    order: TopologicalSorter[str] = TopologicalSorter()
    for at, path in enumerate(paths):
        if not path:
            raise BadInput(f"{field}[{at}]", "must have at least one operator")
        for place, name in enumerate(path):
            if name not in known:
                raise BadInput(f"{field}[{at}][{place}]", f"{name} is not an operator; known: {', '.join(known)}")
            if name in path[:place]:
                raise BadInput(f"{field}[{at}][{place}]", f"{name} appears twice; a path must not have a cycle")
        for left, right in pairwise(path):
            order.add(right, left)
    try:
        order.prepare()
    except CycleError as error:
        raise BadInput(field, f"must not form a cycle; {min(error.args[1])} leads back to itself") from None


Floats = npt.NDArray[np.float64]
# Rounds of scaling the multipliers; the remaining excess is filled afterwards.
ROUNDS = 60
# With more operators than this, a single task is too small to search for swaps.
SWAPPED = 40
# Excess over a path's budget that counts as rounding.
TOLERANCE = 1e-9
# A path without any time to wait is kept if nothing waits; it can't be a divisor.
MIN_BUDGET = 1e-12


@dataclass(frozen=True)
class Path:
    operators: tuple[str, ...]
    budget_seconds: float

    def wait_seconds(self, operators: Mapping[str, QueueingOperator], tasks: Mapping[str, int]) -> float:
        return math.fsum(operators[name].wait_seconds(tasks[name]) for name in self.operators)

    def compute_excess_seconds(self, operators: Mapping[str, QueueingOperator], tasks: Mapping[str, int]) -> float:
        return self.wait_seconds(operators, tasks) - self.budget_seconds

    def holds(self, operators: Mapping[str, QueueingOperator], tasks: Mapping[str, int]) -> bool:
        return self.compute_excess_seconds(operators, tasks) <= TOLERANCE * max(MIN_BUDGET, self.budget_seconds)


def find_lacking_path(operators: Mapping[str, QueueingOperator], paths: Sequence[Path]) -> tuple[Path, float] | None:
    """Return the path that exceeds its budget most even with the maximum, and its waiting then.

    The waiting is in s, infinite if an operator can't keep up.
    """
    most = {name: operator.maximum for name, operator in operators.items()}
    over = [
        (path.compute_excess_seconds(operators, most), at)
        for at, path in enumerate(paths)
        if not path.holds(operators, most)
    ]
    if not over:
        return None
    path = paths[max(over)[1]]
    return path, path.wait_seconds(operators, most)


def allocate_fewest_tasks(operators: Mapping[str, QueueingOperator], paths: Sequence[Path]) -> dict[str, int]:
    tasks = {name: min(operator.fewest, operator.maximum) for name, operator in operators.items()}
    if len(paths) == 1:
        return tasks | _on_one_path(operators, paths[0])
    there = [operators[name] for name in dict.fromkeys(name for path in paths for name in path.operators)]
    joint = _JointProblem.build(there, paths)
    joint.fill()
    while joint.drop(joint.tasks) or (len(there) <= SWAPPED and joint.swap()):
        pass
    return tasks | {operator.name: int(count) for operator, count in zip(there, joint.tasks, strict=True)}


def _on_one_path(operators: Mapping[str, QueueingOperator], path: Path) -> dict[str, int]:
    """Return the tasks with the highest gain, until the path is within its budget."""
    there = [operators[name] for name in path.operators]
    columns = _Columns.build(there)
    tasks = columns.fewest if columns.wait(columns.fewest) <= path.budget_seconds else _find_last_failing(columns, path)
    allocation = {operator.name: int(count) for operator, count in zip(there, tasks, strict=True)}
    gains = [(-_compute_gain(operator, allocation[operator.name]), operator.name) for operator in there]
    heapq.heapify(gains)
    while not path.holds(operators, allocation):
        _, name = gains[0]
        allocation[name] += 1
        heapq.heapreplace(gains, (-_compute_gain(operators[name], allocation[name]), name))
    return allocation


@dataclass(frozen=True)
class _Columns:
    weight: Floats
    load: Floats
    fewest: Floats
    most: Floats

    @classmethod
    def build(cls, operators: Sequence[QueueingOperator]) -> "_Columns":
        rows = [
            (operator.weight, operator.load, min(operator.fewest, operator.maximum), operator.maximum)
            for operator in operators
        ]
        return cls(*np.asarray(rows, dtype=float).T)

    def wait(self, tasks: Floats) -> float:
        """Return the total waiting, s."""
        return float((self.weight / (tasks - self.load)).sum())

    def compute_tasks_for_gain(self, gain: float) -> Floats:
        """Return all tasks that gain this much or more: P_Δ, within minimum and maximum."""
        wanted = self.load + (-1 + np.sqrt(1 + 4 * self.weight / gain)) / 2
        return np.clip(np.ceil(wanted), self.fewest, self.most)


def _find_last_failing(columns: _Columns, path: Path) -> Floats:
    # In logarithms: gains span many decades.
    low, high = -100.0, 60.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if columns.wait(columns.compute_tasks_for_gain(math.exp(middle))) <= path.budget_seconds:
            low = middle
        else:
            high = middle
    return columns.compute_tasks_for_gain(math.exp(high))


def _compute_gain(operator: QueueingOperator, tasks: int) -> float:
    """Return what one more task saves in waiting; nothing at the maximum."""
    if tasks >= operator.maximum:
        return -1.0
    before, after = operator.wait_seconds(tasks), operator.wait_seconds(tasks + 1)
    return math.inf if math.isinf(before) else before - after


@dataclass
class _JointProblem:
    """Several paths over operators as arrays; `on` is paths by operators, `tasks` the current allocation."""

    columns: _Columns
    on: Floats
    budgets: Floats
    tasks: Floats

    @classmethod
    def build(cls, operators: Sequence[QueueingOperator], paths: Sequence[Path]) -> "_JointProblem":
        columns = _Columns.build(operators)
        on = np.asarray([[operator.name in path.operators for operator in operators] for path in paths], dtype=float)
        joint = cls(columns, on, np.asarray([path.budget_seconds for path in paths]), columns.fewest)
        joint.tasks = joint.find_near_optimum()
        return joint

    def compute_wait_seconds(self, tasks: Floats) -> Floats:
        """Return the waiting of each operator, s; infinite if it can't keep up."""
        room = tasks - self.columns.load
        return np.where(room > 0, self.columns.weight / np.where(room > 0, room, 1.0), np.inf)

    def find_near_optimum(self) -> Floats:
        """Return the optimum without integrality, rounded down. Multipliers are scaled until each path is kept."""
        root, load = np.sqrt(self.columns.weight), self.columns.load
        budgets = np.maximum(self.budgets, MIN_BUDGET)
        multipliers = ((self.on @ root) / budgets) ** 2
        for _ in range(ROUNDS):
            tasks = np.clip(load + root * np.sqrt(multipliers @ self.on), self.columns.fewest, self.columns.most)
            multipliers *= (self.on @ self.compute_wait_seconds(tasks)) / budgets
        return np.asarray(np.floor(tasks))

    def compute_excess(self, tasks: Floats) -> Floats:
        """Return the excess of each path, s, without rounding errors."""
        allowed = self.budgets + TOLERANCE * np.maximum(MIN_BUDGET, self.budgets)
        return np.asarray(self.on @ self.compute_wait_seconds(tasks) - allowed)

    def fill(self) -> None:
        """Add tasks where they reduce the remaining excess most, never more than needed.

        Ends when nothing is missing or, because of rounding, no operator there may have more.
        """
        while (excess := self.compute_excess(self.tasks)).max() > 0:
            free = (self.tasks < self.columns.most) & (self.on[excess > 0] > 0).any(axis=0)
            if not free.any():
                return
            gains = self.compute_wait_seconds(self.tasks) - self.compute_wait_seconds(self.tasks + 1)
            missing = np.where(excess > 0, excess, np.inf)
            worth = (self.on * np.minimum(1.0, gains / missing[:, None])).sum(axis=0)
            self.tasks[int(np.argmax(np.where(free, worth, -1.0)))] += 1

    def drop(self, tasks: Floats, kept: int | None = None) -> bool:
        """Remove the task with the lowest loss (none that is `kept`), if every path is kept without it."""
        losses = self.compute_wait_seconds(tasks - 1) - self.compute_wait_seconds(tasks)
        slack = np.where(self.on > 0, -self.compute_excess(tasks)[:, None], np.inf).min(axis=0)
        free = (tasks > self.columns.fewest) & (losses <= slack)
        if kept is not None:
            free[kept] = False
        if not free.any():
            return False
        tasks[int(np.argmin(np.where(free, losses, np.inf)))] -= 1
        return True

    def swap(self) -> bool:
        for at in np.flatnonzero(self.tasks < self.columns.most).tolist():
            trial = self.tasks.copy()
            trial[at] += 1
            if self.drop(trial, at) and self.drop(trial, at):
                self.tasks = trial
                return True
        return False
