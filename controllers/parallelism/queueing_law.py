"""The queueing law: how many tasks each operator needs so that every path keeps its bound (Lohrmann).

The waiting on a path may be  batching_share * bound - Σ latency  (the rest of the bound is for batches; Stutz, 7.2.2).
`task_allocation` gives the wait of an operator for any number of tasks, and finds the fewest. An operator with a
utilization of `bottleneck_threshold` or more is a bottleneck: its offered load is not reliable then, and it gets at
least twice its tasks, times its utilization if that is above 1 (7.1.3).

If even the maximum doesn't keep a bound, the operators of that path get the maximum, and the decision names the path
and the bound, or the number of tasks, that would suffice. The law decides nothing on an operator that was not measured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from common.parameter import check_range, value
from controllers.framework.decision import Decision
from controllers.framework.law import Law, NoState, Remedy
from controllers.framework.reason import NO_ACTION, format_count, format_names, format_reason
from controllers.parallelism.inputs import (
    Paths,
    PlantMaximum,
    PlantMinimum,
    compute_rate_per_second,
    compute_service_seconds,
    compute_squared_variation,
    compute_task_range,
    describe_changed_tasks,
    hold_unmeasured,
    list_operators,
    list_steered_operators,
    list_steered_paths,
)
from controllers.parallelism.measured_topology import MAX_TASKS, MeasuredTopology
from controllers.parallelism.task_allocation import (
    Path,
    QueueingOperator,
    allocate_fewest_tasks,
    check_paths,
    find_lacking_path,
)


class QueueingParameters(msgspec.Struct, frozen=True, kw_only=True):
    bound_seconds: Annotated[float, value("s", "Maximum latency of every path.", 1e-9, 1e6)] = 1.0
    minimum: Annotated[int, value("tasks", "Minimum tasks of each operator.", 1, MAX_TASKS)] = 1
    maximum: Annotated[int, value("tasks", "Maximum tasks of each operator.", 1, MAX_TASKS)] = 10
    batching_share: Annotated[
        float, value("share of the bound", "Share for waiting and service; the rest is for batches.", 0.001, 1)
    ] = 0.8
    bottleneck_threshold: Annotated[
        float,
        value("utilization", "Utilization from which an operator is a bottleneck and its tasks are doubled.", 0.8, 1.0),
    ] = 1.0
    use_correction: Annotated[
        bool,
        value(
            "flag",
            "True: use the ratio of measured to computed wait (e). Set false if e includes the channel's latency.",
        ),
    ] = True
    only_changes: Annotated[
        bool, value("flag", "True: unchanged tasks are no action, so a loop cools down only after changes.")
    ] = False


class QueueingRow(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one operator."""

    tasks: Annotated[int, value("tasks", "Current tasks.", 1, MAX_TASKS)]
    arrival_interval_seconds: Annotated[
        float | None, value("s", "Time between arrivals at one task; null: not measured.", 1e-12, 1e9)
    ] = None
    service_seconds: Annotated[float | None, value("s", "Service time of an event; null: not measured.", 0, 1e6)] = None
    arrival_cv2: Annotated[float, value("variance over mean²", "Variability of the arrivals.", 0, 1e6)] = 1.0
    service_cv2: Annotated[float, value("variance over mean²", "Variability of the service.", 0, 1e6)] = 1.0
    correction: Annotated[float, value("times", "Ratio of measured to computed wait, e.", 0, 1e6)] = 1.0
    latency_seconds: Annotated[float, value("s", "Other time that an event spends in the operator.", 0, 1e6)] = 0.0
    minimum: PlantMinimum = 1
    maximum: PlantMaximum = MAX_TASKS

    @property
    def is_measured(self) -> bool:
        return self.arrival_interval_seconds is not None and self.service_seconds is not None

    def build_operator(self, name: str, minimum: int, maximum: int, corrected: bool = True) -> QueueingOperator:
        """Return what determines the operator's waiting time; it must be measured."""
        rate, service = 1 / (self.arrival_interval_seconds or 0.0), self.service_seconds or 0.0
        variability = (self.arrival_cv2 + self.service_cv2) / 2
        weight = rate * service**2 * self.tasks * variability * (self.correction if corrected else 1.0)
        load = rate * service * self.tasks
        return QueueingOperator(name, self.tasks, weight, load, self.latency_seconds, minimum, maximum)


class QueueingObservation(msgspec.Struct, frozen=True, kw_only=True):
    paths: Paths
    operators: Annotated[
        dict[str, Annotated[QueueingRow, value("operator", "Measurements of one operator.")]],
        value("by name", "Measurements by operator."),
    ]


class QueueingParallelism(Law[QueueingParameters, QueueingObservation, NoState]):
    """Fewest tasks within the bound; see the module for bottlenecks and bounds that can't be kept."""

    name = "parallelism_queueing"
    Parameters, Observation = QueueingParameters, QueueingObservation
    remedy, rank = Remedy("workers"), 1

    def check(self, parameters: QueueingParameters) -> None:
        check_range(parameters.minimum, parameters.maximum)

    def check_observation(self, parameters: QueueingParameters, observation: QueueingObservation, where: str) -> None:
        check_paths(observation.paths, list(observation.operators), f"{where}.paths")

    def decide(
        self, parameters: QueueingParameters, state: NoState, observation: QueueingObservation
    ) -> tuple[NoState, Decision]:
        """Return the tasks of every operator on a path."""
        rows, operators = observation.operators, dict[str, QueueingOperator]()
        names = list_operators(observation.paths)
        if held := hold_unmeasured([name for name in names if not rows[name].is_measured]):
            return state, held
        for name in names:
            low, high = compute_task_range(parameters, rows[name])
            operator = rows[name].build_operator(name, low, high, parameters.use_correction)
            if operator.utilisation >= parameters.bottleneck_threshold:
                doubled = math.floor(2 * operator.tasks * max(1.0, operator.utilisation))
                operator = replace(operator, minimum=max(low, min(doubled, high)))
            operators[name] = operator
        allowed = parameters.batching_share * parameters.bound_seconds
        paths = [
            Path(path, allowed - math.fsum(operators[name].latency_seconds for name in path))
            for path in observation.paths
        ]
        worst = find_lacking_path(operators, paths)
        if worst is None:
            tasks, cause = allocate_fewest_tasks(operators, paths), _explain_allocation(parameters, operators, paths)
        else:
            # The maximum for operators of paths that can't be kept, and the fewest for the others.
            held_paths = [path for path in paths if find_lacking_path(operators, [path]) is None]
            lost = {name for path in paths if path not in held_paths for name in path.operators}
            fewest = allocate_fewest_tasks(operators, held_paths) if held_paths else {}
            tasks = {
                name: operator.maximum if name in lost else fewest.get(name, min(operator.fewest, operator.maximum))
                for name, operator in operators.items()
            }
            cause = _explain_shortage(parameters, operators, *worst)
        waits = {name: operators[name].wait_seconds(count) for name, count in tasks.items()}
        action = {
            "tasks": tasks,
            "expected_wait_seconds": {name: wait if math.isfinite(wait) else None for name, wait in waits.items()},
            "feasible": worst is None,
        }
        before = {name: operator.tasks for name, operator in operators.items()}
        terms = {
            "tasks_before": before,
            "utilisation": {name: round(operator.utilisation, 6) for name, operator in operators.items()},
            "budget_seconds": [round(path.budget_seconds, 9) for path in paths],
            "tasks_total": sum(tasks.values()),
        }
        stay = parameters.only_changes and tasks == before
        what = NO_ACTION if stay else describe_changed_tasks(before, tasks, "Keep the tasks")
        limited_by = None if worst is None else "maximum"
        return state, Decision(None if stay else action, format_reason(what, cause), terms, limited_by)


LAW = QueueingParallelism()


def _explain_allocation(
    parameters: QueueingParameters, operators: Mapping[str, QueueingOperator], paths: Sequence[Path]
) -> str:
    threshold, bound = parameters.bottleneck_threshold, f"{parameters.bound_seconds:g} s"
    busy = [name for name, operator in operators.items() if operator.utilisation >= threshold]
    if busy:
        be, get = ("is a bottleneck", "gets") if len(busy) == 1 else ("are bottlenecks", "get")
        words = f"{format_names(busy)} {be} (utilization ≥ {threshold:g}) and {get} twice the tasks"
        return f"{words}; the other operators get the fewest tasks that meet the bound of {bound}"
    which = "the path meets" if len(paths) == 1 else "all paths meet"
    return f"these are the fewest tasks with which {which} the bound of {bound}"


def _explain_shortage(
    parameters: QueueingParameters, operators: Mapping[str, QueueingOperator], path: Path, wait_seconds: float
) -> str:
    stages, bound = " → ".join(path.operators), parameters.bound_seconds
    spent = parameters.batching_share * bound - path.budget_seconds
    if path.budget_seconds <= 0:
        suffices = f"an event spends {spent:.4g} s there besides waiting, so the bound must be longer"
    else:
        tasks = _find_sufficient_maximum(operators, path)
        suffices = f"{format_count(tasks, 'task')} would suffice" if tasks else "no number of tasks suffices"
        if math.isfinite(wait_seconds):
            enough = (spent + wait_seconds) / parameters.batching_share
            suffices += f", or a bound of {enough:.4g} s would"
    most = max(operators[name].maximum for name in path.operators)
    allowed = f"at most {format_count(most, 'task')} per operator"
    return f"{stages} can't meet the bound of {bound:g} s with {allowed}; {suffices}"


def _find_sufficient_maximum(operators: Mapping[str, QueueingOperator], path: Path) -> int | None:
    low, high = 1, MAX_TASKS * 10
    there = {name: operators[name] for name in path.operators}
    if not path.holds(there, dict.fromkeys(there, high)):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if path.holds(there, dict.fromkeys(there, middle)) else (middle + 1, high)
    return low


def observe(topology: MeasuredTopology) -> QueueingObservation:
    """Return the observation of a topology."""
    rows = {}
    for operator in list_steered_operators(topology):
        rate = compute_rate_per_second(operator, topology.window_seconds)
        interval = (
            None if rate is None else operator.parallelism * topology.window_seconds
        )  # at least, without arrivals
        if rate:
            interval = operator.parallelism / rate
        rows[operator.name] = QueueingRow(
            tasks=operator.parallelism,
            arrival_interval_seconds=interval,
            service_seconds=compute_service_seconds(operator),
            arrival_cv2=compute_squared_variation(operator, "arrival_interval_seconds", "arrival_interval_variance"),
            service_cv2=compute_squared_variation(operator, "service_seconds", "service_variance"),
            correction=1.0,  # the measured wait includes the channel's latency
            latency_seconds=operator.measure("latency_seconds") or 0.0,
            minimum=max(1, operator.minimum),
            maximum=max(1, operator.maximum),
        )
    return QueueingObservation(paths=list_steered_paths(topology), operators=rows)
