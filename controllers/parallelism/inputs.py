"""The part of a topology that the parallelism laws observe, for every kind of plant.

It contains only operators whose tasks can be set, and the paths between them; everything else is outside the law. Rates
are those of all tasks of an operator; times and variabilities are those of one event in one task:

    rate = inputs / window,  c² = variance / mean²

Unmeasured values are null, and a law that needs them holds. An operator without arrivals is measured: its events take
no time, and at most one arrives per window.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

from common.parameter import value
from controllers.framework.decision import Decision
from controllers.framework.reason import format_names, format_no_action
from controllers.parallelism.measured_topology import MAX_TASKS, MeasuredOperator, MeasuredTopology

UNMEASURED = "unmeasured"  # the value of `limited_by` then
# Fields of the laws' observations.
Paths = Annotated[tuple[tuple[str, ...], ...], value("lists of operators", "Paths from a source to a sink.")]
PlantMinimum = Annotated[int, value("tasks", "Minimum tasks that the plant accepts.", 1, MAX_TASKS)]
PlantMaximum = Annotated[int, value("tasks", "Maximum tasks that the plant accepts.", 1, MAX_TASKS)]


class TaskRange(Protocol):
    """The minimum and maximum tasks of an operator: those of a loop, or those that a plant accepts."""

    @property
    def minimum(self) -> int: ...
    @property
    def maximum(self) -> int: ...


def list_operators(paths: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for path in paths for name in path))


def hold_unmeasured(missing: Sequence[str]) -> Decision | None:
    """Return a decision without an action if measurements of operators are missing, otherwise None."""
    if not missing:
        return None
    reason = format_no_action(f"{format_names(missing)} {'was' if len(missing) == 1 else 'were'} not measured")
    return Decision(None, reason, limited_by=UNMEASURED)


def compute_task_range(loop: TaskRange, plant: TaskRange) -> tuple[int, int]:
    """Return the minimum and maximum tasks of an operator: the loop's own, within what the plant accepts."""
    least, most = plant.minimum, plant.maximum
    return min(max(loop.minimum, least), most), max(min(loop.maximum, most), least)


def describe_changed_tasks(before: Mapping[str, int], tasks: Mapping[str, int], unchanged: str) -> str:
    changes = [f"{name} {count} → {tasks[name]}" for name, count in before.items() if tasks[name] != count]
    return f"Set tasks of {format_names(changes)}" if changes else unchanged


def list_steered_paths(topology: MeasuredTopology) -> tuple[tuple[str, ...], ...]:
    """Return the operators of each path that can be set, in order, each sequence once."""
    ways = (tuple(name for name in path if topology.operators[name].fixed is None) for path in topology.paths.values())
    return tuple(dict.fromkeys(filter(None, ways)))


def list_steered_operators(topology: MeasuredTopology) -> list[MeasuredOperator]:
    names = dict.fromkeys(name for path in list_steered_paths(topology) for name in path)
    return [topology.operators[name] for name in names]


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
    return sum((measure or 0) * (count or 0) for measure, count in pairs) / events


def estimate_backlog_events(topology: MeasuredTopology, operator: MeasuredOperator) -> float:
    return estimate_waiting_events(operator, topology.window_seconds, _measure_link_wait_seconds(topology, operator))


def estimate_waiting_events(operator: MeasuredOperator, window_seconds: float, wait_seconds: float | None) -> float:
    """Return the waiting events in front of an operator: as counted, or by Little's law.

    Little's law multiplies the arrivals per second by the waiting time. It gives nothing for a load that has ended,
    whatever it left behind.
    """
    if operator.waiting is not None:
        return operator.waiting
    return (wait_seconds or 0.0) * (compute_rate_per_second(operator, window_seconds) or 0.0)


def measure_wait_seconds(topology: MeasuredTopology, operator: MeasuredOperator) -> float | None:
    """Return how long an event waits for the operator, also for other events of its batch; None: unknown."""
    wait = _measure_link_wait_seconds(topology, operator)
    if wait is None or operator.batch_overhead_seconds is None:
        return wait
    latency, service = operator.measure("latency_seconds"), compute_service_seconds(operator)
    return None if latency is None or service is None else wait + max(0.0, latency - service)


def _measure_link_wait_seconds(topology: MeasuredTopology, operator: MeasuredOperator) -> float | None:
    """Return the longest wait in front of an operator, without the time in its sender's buffer; None: unknown."""
    waits = [
        max(0.0, link.latency_seconds - (link.batching_seconds or 0.0))
        for link in topology.links
        if link.target == operator.name and link.latency_seconds is not None
    ]
    return max(waits, default=None)


def compute_squared_variation(operator: MeasuredOperator, mean: str, variance: str) -> float:
    """Return c² of the measurements as the mean over tasks, or 1 (random) if unknown."""
    known = [
        spread / average**2
        for task in operator.tasks
        if (spread := task.get(variance)) is not None and (average := task.get(mean))
    ]
    return sum(known) / len(known) if known else 1.0
