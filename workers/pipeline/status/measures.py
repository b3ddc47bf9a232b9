"""The measurements of one task of an operator over a window (Stutz, 4.2). Unknown is null.

A task processes batches, so one measured value belongs to a batch: for its n events, t seconds of work, d seconds since
the previous batch, and i arriving events

    latency t (an event leaves with its batch), service t / n, interval between arrivals d / i

and variances are those of the sample of such values. Counts are over the window, their variances between batches.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance

from workers.documents.pipeline import ApplicationStatus
from workers.pipeline.patterns.shedding import ShedCounts
from workers.pipeline.tiers.finished_batch import InterEventBatch

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
    """Return the measures of a task by name. `controllers.parallelism.measured_topology.MEASURES` has their units."""
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


MIN_BATCHES = 10  # with fewer, the variance says little
RETAINED_SECONDS = 60.0


class BatchOverheads:
    """The batches that finished in the last RETAINED_SECONDS. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float]] = deque()

    def add(self, at: float, overhead_seconds: float) -> None:
        """Add a finished batch. overhead_seconds: its own time without that of its operators."""
        self._batches.append((at, overhead_seconds))

    def forget(self, now: float) -> None:
        while self._batches and self._batches[0][0] < now - RETAINED_SECONDS:
            self._batches.popleft()

    def cv2(self, between_seconds: float) -> float | None:
        """Return variance / mean² of a batch's time with the pause before the next; None for few batches."""
        overheads = [overhead for _, overhead in self._batches]
        mean = between_seconds + fmean(overheads) if overheads else 0.0
        if len(overheads) < MIN_BATCHES or mean <= 0:
            return None
        return round(variance(overheads) / mean**2, 4)


class EventAges:
    """All events of a batch count alike: as old as all but its oldest 5 % (`early_us`) at most."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float, int]] = deque()

    def add(self, at: float, age_seconds: float, events: int) -> None:
        """Add a finished batch with this number of events. at: monotonic seconds."""
        self._batches.append((at, age_seconds, events))

    def forget(self, before: float) -> None:
        while self._batches and self._batches[0][0] < before:
            self._batches.popleft()

    def quantile(self, share: float) -> float | None:
        """Return the age that this share of the events did not exceed; None without events."""
        ages = sorted((age, events) for _, age, events in self._batches)
        counted, whole = 0, sum(events for _, events in ages)
        for age, events in ages:
            counted += events
            if counted >= share * whole:
                return round(age, 3)
        return None


@dataclass
class Totals:
    """The cumulative counts of an application."""

    matches: dict[str, int] = field(default_factory=dict)
    suppressed: dict[str, int] = field(default_factory=dict)
    shed: ShedCounts = field(default_factory=dict)
    late_events: int = 0
    admitted_events: int = 0

    @classmethod
    def load(cls, before: ApplicationStatus | None) -> "Totals":
        """Load what an earlier process has left."""
        if before is None:
            return cls()
        patterns = before.patterns
        return cls(
            matches={name: pattern.matches for name, pattern in patterns.items()},
            suppressed={name: pattern.quiet for name, pattern in patterns.items()},
            shed={name: dict(pattern.shed_events) for name, pattern in patterns.items()},
            late_events=before.late_events,
            admitted_events=before.admitted_events or 0,
        )

    def add(self, batch: InterEventBatch) -> None:
        for operator in batch.operators.values():
            self.late_events += operator.late
            for name, pattern in operator.patterns.items():
                self.matches[name] = self.matches.get(name, 0) + pattern.matches
                self.suppressed[name] = self.suppressed.get(name, 0) + pattern.suppressed
