"""WT: Lohrmann's algorithm as in the thesis (Stutz, chapter 7), which `parallelism_queueing` corrects.

An operator with a utilization of 1 or more is a bottleneck: it gets ⌊2 p max(1, λS)⌋ tasks, and the others wait until
there is none. Otherwise one path after another starts from max(p_min, ⌊λSp⌋ + 1), and the operator whose next task
gains most jumps to max(p + 1, P_Δ) (7.1.6), more than the bound needs (ERRATA E32); the last one below its maximum gets
⌈a / w + b⌉ e tasks (7.1.8, E31). A bottleneck at its maximum, and a bound that can't be kept, are exceptions there
(7.1.4, 7.1.5): nothing changes.
"""

import math
from collections.abc import Sequence

from controllers.baselines.parallelism_rules import SeenPath, Tasks
from controllers.parallelism.queueing_topology import QueueingOperator


def apply_wt(seen: SeenPath, bound_seconds: float, correction: float = 1.0) -> Tasks:
    """Return the tasks of every operator on the path.

    The evaluation had e switched off, which is a correction of 1.
    """
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
            # From the rest of the bound; the product with e is that of the thesis, with too many or too few
            # tasks.
            wanted = math.ceil(below[0].compute_fewest_tasks(left) * correction)
            return tasks | {below[0].name: min(max(wanted, below[0].minimum), below[0].maximum)}
        first, second = sorted(below, key=lambda operator: -_compute_gain(operator, tasks[operator.name]))[:2]
        jump = _compute_tasks_for_gain(first, _compute_gain(second, tasks[second.name]))
        tasks[first.name] = min(max(tasks[first.name] + 1, jump), first.maximum)
    return tasks


def _compute_gain(of: QueueingOperator, tasks: int) -> float:
    return of.wait_seconds(tasks) - of.wait_seconds(tasks + 1)


def _compute_tasks_for_gain(of: QueueingOperator, gain: float) -> int:
    """Return P_Δ of Lohrmann's paper."""
    if gain <= 0:
        return of.maximum
    return math.ceil(of.load + (-1 + math.sqrt(1 + 4 * of.weight / gain)) / 2)
