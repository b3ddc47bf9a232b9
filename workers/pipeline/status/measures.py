"""The measurements of one task of an operator over a window (Stutz, 4.2). Unknown is null.

A task processes batches, so one measured value belongs to a batch: for its n events, t seconds of work, d seconds since
the previous batch, and i arriving events

    latency t (an event leaves with its batch), service t / n, interval between arrivals d / i

Counts are over the window, those of inputs at their mean rate, and their variances are between batches. The variances
of an event's service and of the interval between two arrivals can't be read from the means of batches, which vary n
times less. They follow from how much the sums vary (`estimate_service_variance`, `estimate_arrival_cv2`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance

import numpy as np

from workers.documents.pipeline import ApplicationStatus
from workers.pipeline.patterns.shedding import ShedCounts
from workers.pipeline.tiers.finished_batch import InterEventBatch, ReplicaBatch

DIGITS = 6  # significant digits: a variance of microseconds is small, but not zero
MIN_BATCHES = 10  # with fewer, the variance is unreliable
RETAINED_SECONDS = 60.0
RESPONSE_SECONDS = 5.0
CLOCK_SECONDS = 1e-6  # resolution of a measured time; a difference of two has a variance of a sixth of its square
# Single pauses, such as the first batch of a process, cause a greater c². The events don't.
MAX_CV2 = 50.0


@dataclass(frozen=True)
class OutstandingPiece:
    """A piece of a replica that has no result yet. at: monotonic seconds of its dispatch."""

    at: float
    events: int


@dataclass(frozen=True)
class WorkSample:
    """One batch of a task.

    elapsed_seconds: the time before its start in which its inputs arrived; None: unknown, as for the first one. inputs:
    events that arrived at the task (its part of the operator's, in proportion to what it executed). executions: events
    that it processed.
    """

    elapsed_seconds: float | None
    inputs: float
    executions: int
    outputs: int
    seconds: float


def compute_measures(
    samples: Sequence[WorkSample], window_seconds: float, earlier: Sequence[WorkSample] = ()
) -> dict[str, float | None]:
    """Return the measures of a task by name. `controllers.parallelism.measured_topology.MEASURES` has their units.

    earlier: batches before the window, from which only the variances of service and arrivals are estimated.
    """
    worked = [sample for sample in samples if sample.executions]
    executions = sum(sample.executions for sample in samples)
    inputs = _count_inputs(samples, window_seconds)
    seconds = sum(sample.seconds for sample in samples)
    weighted = sum(sample.seconds * sample.executions for sample in worked)
    interval_seconds = window_seconds / inputs if inputs else None
    arrival_cv2 = estimate_arrival_cv2([*earlier, *samples])
    measures_of_task = {
        "latency_seconds": weighted / executions if executions else None,
        "latency_variance": _compute_variance([sample.seconds for sample in worked]),
        "service_seconds": seconds / executions if executions else None,
        "service_variance": estimate_service_variance([*earlier, *samples]),
        "arrival_interval_seconds": interval_seconds,
        "arrival_interval_variance": (
            None if interval_seconds is None or arrival_cv2 is None else arrival_cv2 * interval_seconds**2
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


def estimate_service_variance(samples: Sequence[WorkSample]) -> float | None:
    """Return the variance of the service of one event, s², or None for fewer than `MIN_BATCHES` batches.

    A batch of n events takes f + n s on average, with a variance of n σ². Therefore f and s are fitted with the weights
    1 / n, and σ² is the mean of the squared residuals over n. Equal sizes don't separate f from n s, which changes no
    residual.
    """
    worked = [sample for sample in samples if sample.executions]
    if len(worked) < MIN_BATCHES:
        return None
    sizes = np.asarray([sample.executions for sample in worked], dtype=float)
    seconds = np.asarray([sample.seconds for sample in worked])
    scale = 1 / np.sqrt(sizes)
    columns = np.column_stack([np.ones(len(worked)), sizes])
    fitted, _, rank, _ = np.linalg.lstsq(columns * scale[:, None], seconds * scale)
    squares = (seconds - columns @ fitted) ** 2 - CLOCK_SECONDS**2 / 6
    mean_seconds = float(seconds.sum() / sizes.sum())
    return min(max(0.0, float((squares / sizes).sum()) / (len(worked) - int(rank))), MAX_CV2 * mean_seconds**2)


def estimate_arrival_cv2(samples: Sequence[WorkSample]) -> float | None:
    """Return c² of the interval between two arrivals, or None for fewer than `MIN_BATCHES` batches.

    In d seconds, λ d events arrive with a variance of c² λ d, so c² is Σ (i - λ d)² / Σ λ d.
    """
    known = [(sample.elapsed_seconds, sample.inputs) for sample in samples if sample.elapsed_seconds is not None]
    if len(known) < MIN_BATCHES:
        return None
    elapsed, inputs = np.asarray(known).T
    if not inputs.sum() or not elapsed.sum():
        return None
    expected = inputs.sum() / elapsed.sum() * elapsed
    return float(((inputs - expected) ** 2).sum() / expected.sum()) * len(known) / (len(known) - 1)


def estimate_response(
    batches: Sequence[ReplicaBatch], outstanding: Sequence[OutstandingPiece], now: float
) -> float | None:
    """Return the response time of a replica now, by Little's law, or None before its first piece.

    It is the mean number of events in the replica during RESPONSE_SECONDS, divided by the rate at which it processes
    them. The mean of finished responses would be late by a response time. The replica is taken to process outstanding
    pieces at its recent rate. The response time is at least the time for which it has had work and finished nothing.
    """
    since = now - RESPONSE_SECONDS
    recent = [batch for batch in batches if batch.at > since] or batches[-1:]
    present, processed, waited_seconds = 0.0, 0.0, 0.0
    for batch in batches:
        present += batch.events * max(0.0, batch.at - max(since, batch.at - batch.response_seconds))
        processed += batch.events * min(1.0, max(0.0, batch.at - since) / max(batch.seconds, CLOCK_SECONDS))
    if outstanding:
        waited_seconds = now - max([outstanding[0].at, *(batch.at for batch in batches[-1:])])
        left = sum(piece.events for piece in outstanding)
        present += sum(piece.events * (now - max(since, piece.at)) for piece in outstanding)
        rate = sum(batch.events for batch in recent) / max(sum(batch.seconds for batch in recent), CLOCK_SECONDS)
        processed += min(left, rate * min(waited_seconds, RESPONSE_SECONDS))
    if processed or waited_seconds:
        return max(present / processed if processed else 0.0, waited_seconds)
    return fmean(batch.response_seconds for batch in recent) if recent else None


def _count_inputs(samples: Sequence[WorkSample], window_seconds: float) -> float:
    """Return the events that arrive in a window.

    The batches of a window also contain events that arrived before it, many if the batches are long. Their events are
    therefore divided by the time in which they arrived.
    """
    covered_seconds = sum(sample.elapsed_seconds or 0.0 for sample in samples)
    if not covered_seconds:
        return sum(sample.inputs for sample in samples)
    inputs = sum(sample.inputs for sample in samples if sample.elapsed_seconds is not None)
    return inputs * window_seconds / covered_seconds


def _compute_variance(values: Sequence[float]) -> float | None:
    return float(np.var(values, ddof=1)) if len(values) > 1 else None


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
