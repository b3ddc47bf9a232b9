"""The queueing law: how many tasks each operator needs so that every path keeps its bound (Lohrmann).

The waiting on a path may be  batching_share * bound - Σ latency  (the rest of the bound is for batches; Stutz, 7.2.2).
`queueing_topology` gives the wait of an operator for any number of tasks, `task_allocation` finds the fewest. An
operator with a utilization of `bottleneck_threshold` or more is a bottleneck: its offered load is not reliable then,
and it gets at least twice its tasks, times its utilization if that is above 1 (7.1.3).

If even the maximum doesn't keep a bound, the operators of that path get the maximum, and the decision names the path
and the bound, or the number of tasks, that would suffice. The law decides nothing on an operator that was not measured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from common.parameter import Parameter, check_range
from controllers.framework.decision import Decision, Json
from controllers.framework.law import Law, Remedy, UntypedLaw, Values
from controllers.framework.reason import NO_ACTION, format_count, format_names, format_reason
from controllers.parallelism.inputs import TAKEN, compute_task_range, hold_unmeasured, list_operators
from controllers.parallelism.measured_topology import MAX_TASKS
from controllers.parallelism.task_allocation import (
    Path,
    QueueingOperator,
    allocate_fewest_tasks,
    build_operator,
    check_paths,
    find_lacking_path,
)

PARAMETERS = (
    Parameter("bound_seconds", "s", "Maximum latency of every path.", 1.0, 1e-9, 1e6),
    Parameter("minimum", "tasks", "Minimum tasks of each operator.", 1, 1, MAX_TASKS, "integer"),
    Parameter("maximum", "tasks", "Maximum tasks of each operator.", 10, 1, MAX_TASKS, "integer"),
    Parameter(
        "batching_share", "share of the bound", "Share for waiting and service; the rest is for batches.", 0.8, 0.001, 1
    ),
    Parameter(
        "bottleneck_threshold",
        "utilization",
        "Utilization from which an operator is a bottleneck and its tasks are doubled.",
        1.0,
        0.8,
        1.0,
    ),
    Parameter(
        "use_correction",
        "flag",
        "True: use the ratio of measured to computed wait (e). Set false if e includes the channel's latency.",
        True,
        kind="flag",
    ),
    Parameter(
        "only_changes",
        "flag",
        "True: unchanged tasks are no action, so a loop cools down only after changes.",
        False,
        kind="flag",
    ),
)
OPERATOR = (
    Parameter("tasks", "tasks", "Current tasks.", None, 1, MAX_TASKS, "integer", required=True),
    Parameter(
        "arrival_interval_seconds", "s", "Time between arrivals at one task; null: not measured.", None, 1e-12, 1e9
    ),
    Parameter("service_seconds", "s", "Service time of an event; null: not measured.", None, 0, 1e6),
    Parameter("arrival_cv2", "variance over mean²", "Variability of the arrivals.", 1.0, 0, 1e6),
    Parameter("service_cv2", "variance over mean²", "Variability of the service.", 1.0, 0, 1e6),
    Parameter("correction", "times", "Ratio of measured to computed wait, e.", 1.0, 0, 1e6),
    Parameter("latency_seconds", "s", "Other time that an event spends in the operator.", 0.0, 0, 1e6),
    *TAKEN,
)
OBSERVATION = (
    Parameter("paths", "lists of operators", "Paths from a source to a sink.", kind="names", required=True),
    Parameter(
        "operators",
        "by name",
        "Measurements by operator.",
        kind="map",
        required=True,
        items=(Parameter("operator", "operator", "Measurements of one operator.", kind="object", items=OPERATOR),),
    ),
)


class QueueingParallelism(UntypedLaw):
    """Fewest tasks within the bound; see the module for bottlenecks and bounds that can't be kept."""

    name = "parallelism_queueing"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = ()
    actuator: str | None = None
    guard_defaults: Values = {}
    remedy, rank = Remedy("workers"), 1

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` if minimum is above maximum."""
        check_range(parameters["minimum"], parameters["maximum"])

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` for invalid paths, or tasks outside the range."""
        check_paths(observation["paths"], list(observation["operators"]), f"{where}.paths")

    def build_initial_state(self, parameters: Values) -> Json:
        """Return an empty state: only the current measurements decide."""
        return {}

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Accept every state: it is empty."""

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return the tasks of every operator on a path."""
        rows, names = observation["operators"], list_operators(observation["paths"])
        if held := hold_unmeasured(rows, names, ("arrival_interval_seconds", "service_seconds")):
            return state, held
        operators = {name: _build_limited_operator(parameters, name, rows[name]) for name in names}
        paths = [_build_path(parameters, operators, path) for path in observation["paths"]]
        return state, _build_decision(parameters, operators, paths)


LAW: Law = QueueingParallelism()


def _build_limited_operator(parameters: Values, name: str, row: Mapping[str, Any]) -> QueueingOperator:
    low, high = compute_task_range(parameters, row)
    result = build_operator(name, row, low, high, parameters["use_correction"])
    if result.utilisation < parameters["bottleneck_threshold"]:
        return result
    doubled = math.floor(2 * result.tasks * max(1.0, result.utilisation))
    return replace(result, minimum=max(low, min(doubled, high)))


def _build_path(parameters: Values, operators: Mapping[str, QueueingOperator], names: Sequence[str]) -> Path:
    spent = math.fsum(operators[name].latency_seconds for name in names)
    return Path(tuple(names), parameters["batching_share"] * parameters["bound_seconds"] - spent)


def _build_decision(parameters: Values, operators: Mapping[str, QueueingOperator], paths: Sequence[Path]) -> Decision:
    worst = find_lacking_path(operators, paths)
    feasible = worst is None
    if worst is None:
        tasks, cause = allocate_fewest_tasks(operators, paths), _cause(parameters, operators, paths)
    else:
        tasks, cause = (_compute_fallback_tasks(operators, paths), _explain_shortage(parameters, operators, *worst))
    waits = {name: operators[name].wait_seconds(count) for name, count in tasks.items()}
    action = {
        "tasks": tasks,
        "expected_wait_seconds": {name: wait if math.isfinite(wait) else None for name, wait in waits.items()},
        "feasible": feasible,
    }
    terms = {
        "tasks_before": {name: each.tasks for name, each in operators.items()},
        "utilisation": {name: round(each.utilisation, 6) for name, each in operators.items()},
        "budget_seconds": [round(path.budget_seconds, 9) for path in paths],
        "tasks_total": sum(tasks.values()),
    }
    stay = parameters["only_changes"] and tasks == terms["tasks_before"]
    reason = format_reason(NO_ACTION if stay else _describe_action(operators, tasks), cause)
    return Decision(None if stay else action, reason, terms, None if feasible else "maximum")


def _describe_action(operators: Mapping[str, QueueingOperator], tasks: Mapping[str, int]) -> str:
    changes = [f"{name} {operators[name].tasks} → {n}" for name, n in tasks.items() if n != operators[name].tasks]
    return f"Set tasks of {format_names(changes)}" if changes else "Keep the tasks"


def _cause(parameters: Values, operators: Mapping[str, QueueingOperator], paths: Sequence[Path]) -> str:
    threshold, bound = parameters["bottleneck_threshold"], f"{parameters['bound_seconds']:g} s"
    busy = [name for name, each in operators.items() if each.utilisation >= threshold]
    if busy:
        be, get = ("is a bottleneck", "gets") if len(busy) == 1 else ("are bottlenecks", "get")
        words = f"{format_names(busy)} {be} (utilization ≥ {threshold:g}) and {get} twice the tasks"
        return f"{words}; the other operators get the fewest tasks that meet the bound of {bound}"
    which = "the path meets" if len(paths) == 1 else "all paths meet"
    return f"these are the fewest tasks with which {which} the bound of {bound}"


def _compute_fallback_tasks(operators: Mapping[str, QueueingOperator], paths: Sequence[Path]) -> dict[str, int]:
    held = [path for path in paths if find_lacking_path(operators, [path]) is None]
    lost = {name for path in paths if path not in held for name in path.operators}
    fewest = allocate_fewest_tasks(operators, held) if held else {}
    return {
        name: each.maximum if name in lost else fewest.get(name, min(each.fewest, each.maximum))
        for name, each in operators.items()
    }


def _explain_shortage(
    parameters: Values, operators: Mapping[str, QueueingOperator], path: Path, wait_seconds: float
) -> str:
    stages, bound = " → ".join(path.operators), parameters["bound_seconds"]
    spent = parameters["batching_share"] * bound - path.budget_seconds
    if path.budget_seconds <= 0:
        suffices = f"an event spends {spent:.4g} s there besides waiting, so the bound must be longer"
    else:
        tasks = _find_sufficient_maximum(operators, path)
        suffices = f"{format_count(tasks, 'task')} would suffice" if tasks else "no number of tasks suffices"
        if math.isfinite(wait_seconds):
            enough = (spent + wait_seconds) / parameters["batching_share"]
            suffices += f", or a bound of {enough:.4g} s would"
    most = max(operators[name].maximum for name in path.operators)
    allowed = f"at most {format_count(most, 'task')} per operator"
    return f"{stages} can't meet the bound of {bound:g} s with {allowed}; {suffices}"


def _find_sufficient_maximum(operators: Mapping[str, QueueingOperator], path: Path) -> int | None:
    low, high = 1, MAX_TASKS * 10
    there = {name: operators[name] for name in path.operators}

    def holds(most: int) -> bool:
        return path.holds(there, dict.fromkeys(there, most))

    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
