"""The measurements of one task of an operator over a window (Stutz, 4.2). Unknown is null.

A task processes batches, so one measured value belongs to a batch: for its n events, t seconds of work, d seconds since
the previous batch, and i arriving events

    latency t (an event leaves with its batch), service t / n, interval between arrivals d / i

and variances are those of the sample of such values. Counts are over the window, their variances between batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import variance

DIGITS = 6  # significant digits: a variance of microseconds is small, but not zero


@dataclass(frozen=True)
class WorkSample:
    """One batch of a task.

    elapsed_seconds: since the previous batch. inputs: events that arrived at the task (its part of the operator's, in
    proportion to what it executed). executions: events that it processed.
    """

    elapsed_seconds: float
    inputs: float
    executions: int
    outputs: int
    seconds: float


def compute_measures(samples: Sequence[WorkSample], window_seconds: float) -> dict[str, float | None]:
    """Return the measures of a task by name.

    `controllers.parallelism.measured_topology.MEASURES` has their units.
    """
    worked = [sample for sample in samples if sample.executions]
    executions = sum(sample.executions for sample in samples)
    inputs = sum(sample.inputs for sample in samples)
    seconds = sum(sample.seconds for sample in samples)
    weighted = sum(sample.seconds * sample.executions for sample in worked)
    measures_of_task = {
        "latency_seconds": weighted / executions if executions else None,
        "latency_variance": _compute_variance([sample.seconds for sample in worked]),
        "service_seconds": seconds / executions if executions else None,
        "service_variance": _compute_variance([sample.seconds / sample.executions for sample in worked]),
        "arrival_interval_seconds": window_seconds / inputs if inputs else None,
        "arrival_interval_variance": _compute_variance(
            [sample.elapsed_seconds / sample.inputs for sample in samples if sample.inputs]
        ),
        "utilisation": min(1.0, seconds / window_seconds),
        "inputs": inputs,
        "inputs_variance": _compute_variance([sample.inputs for sample in samples]),
        "executions": executions,
        "executions_variance": _compute_variance([sample.executions for sample in samples]),
        "outputs": sum(sample.outputs for sample in samples),
        "outputs_variance": _compute_variance([sample.outputs for sample in samples]),
    }
    return {name: None if value is None else float(f"{value:.{DIGITS}g}") for name, value in measures_of_task.items()}


def _compute_variance(values: Sequence[float]) -> float | None:
    return variance(values) if len(values) > 1 else None
