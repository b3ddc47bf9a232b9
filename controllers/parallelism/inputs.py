"""What the parallelism laws share: operators of paths, and which of their measurements are missing.

What the parallelism laws observe of a topology, for every kind of plant.

It contains only operators whose tasks can be set, and the paths between them; everything else is outside the law. Rates
are those of all tasks of an operator; times and variabilities are those of one event in one task:

    rate = inputs / window,  c² = variance / mean²

Unmeasured values are null, and a law that needs them holds. An operator without arrivals is measured: its events take
no time, and at most one arrives per window.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from common.parameter import Parameter
from controllers.framework.decision import Decision
from controllers.framework.reason import format_names, format_no_action
from controllers.parallelism.measured_topology import MAX_TASKS, MeasuredOperator, MeasuredTopology

UNMEASURED = "unmeasured"  # the value of `limited_by` then
# Fields of an observed operator.
TAKEN = (
    Parameter("minimum", "tasks", "Minimum tasks that the plant accepts.", 1, 1, MAX_TASKS, "integer"),
    Parameter("maximum", "tasks", "Maximum tasks that the plant accepts.", MAX_TASKS, 1, MAX_TASKS, "integer"),
)


def list_operators(paths: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for path in paths for name in path))


def hold_unmeasured(
    rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], needed: Sequence[str]
) -> Decision | None:
    """Return a decision without an action if a `needed` measurement is missing, otherwise None."""
    missing = [name for name in names if any(rows[name][measure_] is None for measure_ in needed)]
    if not missing:
        return None
    reason = format_no_action(f"{format_names(missing)} {'was' if len(missing) == 1 else 'were'} not measured")
    return Decision(None, reason, limited_by=UNMEASURED)


def compute_task_range(parameters: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[int, int]:
    """Return the minimum and maximum tasks of an operator: the loop's own, within what the plant accepts."""
    least, most = int(row["minimum"]), int(row["maximum"])
    return min(max(int(parameters["minimum"]), least), most), max(min(int(parameters["maximum"]), most), least)


Observation = dict[str, Any]


def list_steered_paths(topology: MeasuredTopology) -> list[list[str]]:
    ways = (tuple(name for name in path if topology.operators[name].fixed is None) for path in topology.paths.values())
    return [list(way) for way in dict.fromkeys(filter(None, ways))]


def list_steered_operators(topology: MeasuredTopology) -> list[MeasuredOperator]:
    names = dict.fromkeys(name for path in list_steered_paths(topology) for name in path)
    return [topology.operators[name] for name in names]


def observe_queueing(topology: MeasuredTopology) -> Observation:
    return {
        "paths": list_steered_paths(topology),
        "operators": {
            steered_operator.name: _observe_operator(steered_operator, topology.window_seconds)
            for steered_operator in list_steered_operators(topology)
        },
    }


def build_joint_observation(
    topology: MeasuredTopology, forecast_per_second: Sequence[float] = (), deviation_per_second: Sequence[float] = ()
) -> Observation:
    """Build the observation of `parallelism_joint`; the forecast is that of the sources.

    Unknown values are null.
    """
    return {
        "at_seconds": topology.at,
        "source_per_second": compute_source_per_second(topology),
        "failed_per_second": compute_failed_per_second(topology),
        "forecast_per_second": list(forecast_per_second),
        "deviation_per_second": list(deviation_per_second),
        "paths": list_steered_paths(topology),
        "operators": {
            steered_operator.name: _build_operator_observation(steered_operator, topology)
            for steered_operator in list_steered_operators(topology)
        },
    }


def compute_source_per_second(topology: MeasuredTopology) -> float:
    """Return the arrivals at the first controlled operators of all paths, or 0 if unknown."""
    first = dict.fromkeys(path[0] for path in list_steered_paths(topology))
    rates = (compute_rate_per_second(topology.operators[name], topology.window_seconds) for name in first)
    return sum(rate for rate in rates if rate is not None)


def compute_failed_per_second(topology: MeasuredTopology) -> float | None:
    """Return the failures per second of source events, or None if nothing counts them."""
    counts = [operator.failed for operator in topology.operators.values() if operator.failed is not None]
    return sum(counts) / topology.window_seconds if counts else None


def compute_rate_per_second(operator: MeasuredOperator, window_seconds: float) -> float | None:
    inputs = operator.measure("inputs")
    return None if inputs is None else inputs / window_seconds


def compute_service_seconds(operator: MeasuredOperator) -> float | None:
    """Return the service time of an event in a task: the mean over events, so that idle tasks don't count."""
    pairs = [
        (task.get("service_seconds"), task.get("executions"))
        for task in operator.tasks
        if task.get("service_seconds") is not None and task.get("executions")
    ]
    events = sum(count or 0 for _, count in pairs)
    if not events:
        return 0.0 if operator.measure("inputs") == 0 else None
    return sum((each or 0) * (count or 0) for each, count in pairs) / events


def estimate_backlog_events(topology: MeasuredTopology, operator: MeasuredOperator) -> float:
    waits = [
        link.latency_seconds
        for link in topology.links
        if link.target == operator.name and link.latency_seconds is not None
    ]
    return estimate_waiting_events(operator, topology.window_seconds, max(waits, default=None))


def estimate_waiting_events(operator: MeasuredOperator, window_seconds: float, wait_seconds: float | None) -> float:
    """Return the waiting events in front of an operator: as counted, or by Little's law.

    Little's law multiplies the arrivals per second by the waiting time. It gives nothing for a load that has ended,
    whatever it left behind.
    """
    if operator.waiting is not None:
        return operator.waiting
    return (wait_seconds or 0.0) * (compute_rate_per_second(operator, window_seconds) or 0.0)


def compute_squared_variation(operator: MeasuredOperator, mean: str, variance: str) -> float:
    """Return c² of the measurements as the mean over tasks, or 1 (random) if unknown."""
    known = [
        spread / value**2
        for task in operator.tasks
        if (spread := task.get(variance)) is not None and (value := task.get(mean))
    ]
    return sum(known) / len(known) if known else 1.0


def _observe_operator(operator: MeasuredOperator, window_seconds: float) -> Observation:
    rate = compute_rate_per_second(operator, window_seconds)
    return {
        "tasks": operator.parallelism,
        "arrival_interval_seconds": _compute_interval_seconds(operator, rate, window_seconds),
        "service_seconds": compute_service_seconds(operator),
        "arrival_cv2": compute_squared_variation(operator, "arrival_interval_seconds", "arrival_interval_variance"),
        "service_cv2": compute_squared_variation(operator, "service_seconds", "service_variance"),
        "correction": 1.0,  # the measured wait includes the channel's latency
        "latency_seconds": operator.measure("latency_seconds") or 0.0,
        **_limit_to_plant(operator),
    }


def _compute_interval_seconds(operator: MeasuredOperator, rate: float | None, window_seconds: float) -> float | None:
    """Return the time between arrivals at one task; at least the window if nothing arrived."""
    if rate is None:
        return None
    return operator.parallelism / rate if rate else operator.parallelism * window_seconds


def _build_operator_observation(operator: MeasuredOperator, topology: MeasuredTopology) -> Observation:
    arrivals = compute_squared_variation(operator, "arrival_interval_seconds", "arrival_interval_variance")
    service = compute_squared_variation(operator, "service_seconds", "service_variance")
    return {
        "tasks": operator.parallelism,
        "rate_per_second": compute_rate_per_second(operator, topology.window_seconds),
        "service_seconds": compute_service_seconds(operator),
        "backlog_events": estimate_backlog_events(topology, operator),
        "variability": (arrivals + service) / 2,
        "latency_seconds": operator.measure("latency_seconds") or 0.0,
        **_limit_to_plant(operator),
    }


def _limit_to_plant(operator: MeasuredOperator) -> Observation:
    """Return the tasks that the plant accepts; it would refuse others at each tick."""
    return {"minimum": max(1, operator.minimum), "maximum": max(1, operator.maximum)}
