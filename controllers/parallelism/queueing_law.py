"""The queueing law: how many tasks each operator needs so that every path keeps its bound (Lohrmann).

The waiting on a path may be  batching_share * bound - Σ latency  (the rest of the bound is for batches; Stutz, 7.2.2).
`task_allocation` gives the wait of an operator for any number of tasks, and finds the fewest. An operator with a
utilization of `bottleneck_threshold` or more is a bottleneck: its offered load is not reliable then, and it gets at
least twice its tasks, times its utilization if that is above 1 (7.1.3).

An operator that processes batches lets events wait for the next batch, and then for each other. With a fixed time H of
a batch (without its events) and a utilization of ρ = b / p, a batch follows the previous one after C = H / (1 - ρ), and
an event waits for C / 2 + ρ C = H / 2 + 3/2 H b / (p - b). Therefore 3/2 H b is added to a, and H / 2 to the latency.

The coefficient e is the ratio of the measured waiting to the computed one (7.1.8). The waiting, a and b are averaged
with exponentially decreasing weights, and e follows while the utilization is in `LEARNED_UTILISATION`: below, the
waiting is too short to be measured; above, it depends on how long the load has lasted. The measured waiting excludes
batching (7.2.4). Tasks with a common queue, as in a worker pool, wait less than the formula says: e is small there.

If even the maximum doesn't keep a bound, the operators of that path get the maximum, and the decision names the path
and the bound, or the number of tasks, that would suffice. The law decides nothing on an operator that was not measured.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from common.parameter import check_range, value
from controllers.framework.decision import Decision
from controllers.framework.law import Law, Remedy
from controllers.framework.reason import NO_ACTION, format_count, format_names, format_reason
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import MAX_TASKS, MeasuredTopology
from controllers.parallelism.task_allocation import (
    Path,
    QueueingOperator,
    allocate_fewest_tasks,
    check_paths,
    find_lacking_path,
)

LEARNED_SHARE = 0.1  # weight of the newest waiting
LEARNED_UTILISATION = (0.2, 0.97)
MIN_CORRECTION, MAX_CORRECTION = 0.02, 5.0


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
            "True: use the learned ratio of measured to computed wait (e). Set false if the measured wait includes the"
            " network's latency.",
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
    wait_seconds: Annotated[
        float | None, value("s", "Measured wait of an event without batching; null: not measured.", 0, 1e9)
    ] = None
    correction: Annotated[
        float | None, value("times", "Ratio of measured to computed wait, e; null: the learned ratio.", 0, 1e6)
    ] = None
    batch_seconds: Annotated[
        float, value("s", "Fixed time of a batch, excluding its events; 0: no batches.", 0, 1e6)
    ] = 0.0
    latency_seconds: Annotated[float, value("s", "Other time that an event spends in the operator.", 0, 1e6)] = 0.0
    minimum: inputs.PlantMinimum = 1
    maximum: inputs.PlantMaximum = MAX_TASKS

    @property
    def is_measured(self) -> bool:
        return self.arrival_interval_seconds is not None and self.service_seconds is not None

    def build_operator(self, name: str, minimum: int, maximum: int, correction: float = 1.0) -> QueueingOperator:
        """Return what determines the operator's waiting time; it must be measured. correction: e."""
        rate, service = 1 / (self.arrival_interval_seconds or 0.0), self.service_seconds or 0.0
        variability = (self.arrival_cv2 + self.service_cv2) / 2
        load = rate * service * self.tasks
        weight = load * (service * variability + 1.5 * self.batch_seconds)
        latency = self.latency_seconds + self.batch_seconds / 2
        return QueueingOperator(name, self.tasks, correction * weight, load, latency, minimum, maximum)


class QueueingObservation(msgspec.Struct, frozen=True, kw_only=True):
    paths: inputs.Paths
    operators: Annotated[
        dict[str, Annotated[QueueingRow, value("operator", "Measurements of one operator.")]],
        value("by name", "Measurements by operator."),
    ]


class QueueingMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The averages of an operator since its number of tasks changed, and e as learned from them."""

    tasks: Annotated[int, value("tasks", "Tasks at the time.", 1, MAX_TASKS, required=True)]
    count: Annotated[int, value("observations", "Observations, at most 1,000.", 0, 1_000, required=True)]
    wait_seconds: Annotated[float, value("s", "Measured wait.", 0, 1e9, required=True)]
    weight: Annotated[float, value("s", "Computed wait times free tasks.", 0, 1e15, required=True)]
    load: Annotated[float, value("tasks", "Busy tasks.", 0, 1e9, required=True)]
    correction: Annotated[float, value("times", "Ratio of measured to computed wait, e.", 0, 1e6, required=True)]

    @classmethod
    def start(cls, computed: QueueingOperator, correction: float) -> "QueueingMemory":
        """Return the memory of new tasks. Until they are measured, e is that of the former ones."""
        wait = correction * computed.wait_seconds(computed.tasks)
        return cls(
            tasks=computed.tasks,
            count=1,
            wait_seconds=wait,
            weight=computed.weight,
            load=computed.load,
            correction=correction,
        )

    def learn(self, wait_seconds: float, computed: QueueingOperator) -> "QueueingMemory":
        share = max(LEARNED_SHARE, 1 / (self.count + 1))
        wait = self.wait_seconds + share * (wait_seconds - self.wait_seconds)
        weight = self.weight + share * (computed.weight - self.weight)
        load = self.load + share * (computed.load - self.load)
        low, high = LEARNED_UTILISATION
        correction = self.correction
        if weight > 0 and low <= load / self.tasks <= high:
            correction = min(max(wait * (self.tasks - load) / weight, MIN_CORRECTION), MAX_CORRECTION)
        count = min(self.count + 1, 1_000)
        return replace(self, count=count, wait_seconds=wait, weight=weight, load=load, correction=correction)


class QueueingState(msgspec.Struct, frozen=True, kw_only=True):
    operators: Annotated[
        dict[str, Annotated[QueueingMemory, value("operator", "Averages of one operator.")]],
        value("by name", "Learned waiting by operator."),
    ] = {}

    def learn(self, name: str, row: QueueingRow) -> "QueueingState":
        computed = row.build_operator(name, 1, MAX_TASKS)
        if row.wait_seconds is None or not computed.utilisation < 1:
            return self
        before = self.operators.get(name)
        if before is None or before.tasks != row.tasks:
            before = QueueingMemory.start(computed, before.correction if before else 1.0)
        after = before.learn(max(0.0, row.wait_seconds - row.batch_seconds / 2), computed)
        return QueueingState(operators={**self.operators, name: after})

    def get_correction(self, name: str, row: QueueingRow) -> float:
        if row.correction is not None:
            return row.correction
        return self.operators[name].correction if name in self.operators else 1.0


class QueueingParallelism(Law[QueueingParameters, QueueingObservation, QueueingState]):
    """Fewest tasks within the bound; see the module for bottlenecks and bounds that can't be kept."""

    name = "parallelism_queueing"
    Parameters, Observation, State = QueueingParameters, QueueingObservation, QueueingState
    remedy, rank = Remedy("workers"), 1

    def check(self, parameters: QueueingParameters) -> None:
        check_range(parameters.minimum, parameters.maximum)

    def check_observation(self, parameters: QueueingParameters, observation: QueueingObservation, where: str) -> None:
        check_paths(observation.paths, list(observation.operators), f"{where}.paths")

    def decide(
        self, parameters: QueueingParameters, state: QueueingState, observation: QueueingObservation
    ) -> tuple[QueueingState, Decision]:
        """Return the tasks of every operator on a path."""
        rows, operators = observation.operators, dict[str, QueueingOperator]()
        names = inputs.list_operators(observation.paths)
        if held := inputs.hold_unmeasured([name for name in names if not rows[name].is_measured]):
            return state, held
        corrections = dict[str, float]()
        for name in names:
            state = state.learn(name, rows[name])
            corrections[name] = state.get_correction(name, rows[name]) if parameters.use_correction else 1.0
            low, high = inputs.compute_task_range(parameters, rows[name])
            operator = rows[name].build_operator(name, low, high, corrections[name])
            if operator.utilisation >= parameters.bottleneck_threshold:
                doubled = math.floor(2 * operator.tasks * max(1.0, operator.utilisation))
                operator = dataclasses.replace(operator, minimum=max(low, min(doubled, high)))
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
            "corrections": {name: round(correction, 4) for name, correction in corrections.items()},
            "wait_seconds_before": {
                name: wait if math.isfinite(wait := operators[name].wait_seconds(count)) else None
                for name, count in before.items()
            },
            "budget_seconds": [round(path.budget_seconds, 9) for path in paths],
            "tasks_total": sum(tasks.values()),
        }
        stay = parameters.only_changes and tasks == before
        what = NO_ACTION if stay else inputs.describe_changed_tasks(before, tasks, "Keep the tasks")
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
    rows = {}
    for operator in inputs.list_steered_operators(topology):
        rate = inputs.compute_rate_per_second(operator, topology.window_seconds)
        interval = (
            None if rate is None else operator.parallelism * topology.window_seconds
        )  # at least, without arrivals
        if rate:
            interval = operator.parallelism / rate
        service, latency = inputs.compute_service_seconds(operator), operator.measure("latency_seconds") or 0.0
        rows[operator.name] = QueueingRow(
            tasks=operator.parallelism,
            arrival_interval_seconds=interval,
            service_seconds=service,
            arrival_cv2=inputs.compute_squared_variation(
                operator, "arrival_interval_seconds", "arrival_interval_variance"
            ),
            service_cv2=inputs.compute_squared_variation(operator, "service_seconds", "service_variance"),
            wait_seconds=inputs.measure_wait_seconds(topology, operator),
            # In a batch, events wait for each other: only the service of one is spent whatever the tasks.
            latency_seconds=latency if not operator.batch_overhead_seconds else min(latency, service or 0.0),
            batch_seconds=operator.batch_overhead_seconds or 0.0,
            minimum=max(1, operator.minimum),
            maximum=max(1, operator.maximum),
        )
    return QueueingObservation(paths=inputs.list_steered_paths(topology), operators=rows)
