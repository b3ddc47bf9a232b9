"""Load offered to the pipeline's operators, and the share of their time that it takes, from one snapshot.

An overloaded operator counts the events that it processes and not those meant for it (Röger, VIII). Processed events
are therefore treated as a sample and scaled by what producers put into the application's queues, plus the backlog. An
event counts as processed when the combiner reads it: until the result queue is full, the replicas keep up with the
producers, however slow the operators are. Rates are those of patterns before shedding.

The latency doesn't grow while at least as many events are processed or dropped as arrive. The loop
therefore allows as much time for the backlog as the latency is below its bound, but at least DRAIN_SECONDS.
"""

import math
from collections.abc import Iterator

from controllers.shedding.law import LAW as SHEDDING
from workers.documents.pipeline import ApplicationStatus
from workers.documents.snapshot import Snapshot

DRAIN_SECONDS = 5.0
# However much other work there is, an operator has this share of its time for patterns, so that a table can
# be computed.
MIN_AVAILABLE = 0.05
# Minimum share of the offered events in the sample. Just after a start, the first events say nothing about the load.
MIN_SAMPLE = 0.02


def compute_latency_slack(application: str, snapshot: Snapshot) -> float | None:
    """Return how far the latency of an application is below the bound of its shedding loop; None if not known."""
    row = snapshot.pipeline.applications.get(application)
    bounds = [
        loop.setpoint
        for loop in snapshot.loops.values()
        if loop.law == SHEDDING.name and loop.target.get("application") == application and loop.setpoint is not None
    ]
    if row is None or row.latency_p95_seconds is None or not bounds:
        return None
    return max(0.0, float(min(bounds)) - row.latency_p95_seconds)


class OperatorLoad:
    """The operator load of one application.

    row: its part of the snapshot. drain_seconds: the backlog counts as offered, and is cleared in this time; infinite:
    it doesn't count, because the capacity of an operator does not depend on it.
    """

    def __init__(self, row: ApplicationStatus, snapshot: Snapshot, drain_seconds: float = math.inf) -> None:
        self.row, self._snapshot, self._drain_seconds = row, snapshot, drain_seconds
        self.scale = self._scale()

    def _scale(self) -> float:
        """Return offered events divided by processed events; 1 if one is unknown, or too few are processed."""
        read = self.row.combiner.in_per_second
        worked, offered = self.row.in_per_second if read is None else read, self._compute_offered_per_second()
        if not worked or offered is None or worked < MIN_SAMPLE * offered:
            return 1.0
        return max(0.0, (offered + self._count_waiting_events() / self._drain_seconds) / worked)

    def _compute_offered_per_second(self) -> float | None:
        """Return the rate at which producers fill the application's queues; None if one is unknown."""
        queues = self._snapshot.queues
        rates = [queues[name].in_per_second if name in queues else None for name in self.row.queues]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if len(known) == len(rates) else None

    def _count_waiting_events(self) -> float:
        """Return the events in the containers and the result queue, without those normally in transit."""
        result, passes = self.row.result_queue, self.elsewhere_seconds + 2 * self.batch_seconds + 1.0
        held = result.used_bytes / max(1.0, result.bytes_per_event)
        usual = (self.row.in_per_second or 0.0) * passes
        return max(0.0, (self.row.waiting_events or 0) + held - usual)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing arrives and nothing waits. The offered load is then 0, however little was measured."""
        return self._compute_offered_per_second() == 0 and not self.row.waiting_events

    @property
    def rows_per_second(self) -> float:
        """Return the rows per second that would be due in batches with sufficient capacity."""
        return self.scale * (self.row.combiner.rows_per_second or 0.0)

    @property
    def batch_seconds(self) -> float:
        """Return the time that a batch takes in addition to its events' work."""
        return float(self.row.batch_overhead_seconds or 0.0)

    @property
    def elsewhere_seconds(self) -> float:
        """Return the time before the operators: the replicas' response and the wait for late events."""
        answers = [replica.response_seconds or 0.0 for replica in self.row.replicas.values()]
        return float(self.row.controls.lateness_seconds + max(answers, default=0.0))

    def compute_wanted(self, pattern: str) -> dict[str, float]:
        """Return type → events/s that the pattern could use without shedding and with sufficient capacity."""
        row = self.row.patterns[pattern]
        types = {**row.types, **row.shed_per_second}
        return {
            name: self.scale * (row.types.get(name, 0.0) + row.shed_per_second.get(name, 0.0)) for name in sorted(types)
        }

    def compute_rates(self, operator: str) -> dict[str, float]:
        """Return type → events/s at an operator: the demand of the pattern that needs most of the type."""
        rates_by_type: dict[str, float] = {}
        for pattern in self.row.operators[operator].patterns:
            for name, rate in self.compute_wanted(pattern).items():
                rates_by_type[name] = max(rates_by_type.get(name, 0.0), rate)
        return rates_by_type

    def compute_arrivals(self) -> dict[str, dict[str, float]]:
        """Return operator → type → events/s, without types that patterns which may be shed emit."""
        inside = {pattern.emits for pattern in self.row.patterns.values() if pattern.sheddable}
        return {
            operator: {name: rate for name, rate in self.compute_rates(operator).items() if name not in inside}
            for operator in self.row.operators
        }

    def work(self, pattern: str) -> float:
        """Return the pattern's work in seconds per second."""
        seconds = self.row.patterns[pattern].seconds or 0.0
        return float(seconds * sum(self.compute_wanted(pattern).values()))

    def compute_availability(self, operator: str) -> float:
        """Return the share of an operator's time that is available to patterns that may be shed.

        It excludes the operator's other work, patterns that must not be shed, and the operators that run before and
        after it.
        """
        row = self.row.operators[operator]
        beside = (row.overhead_seconds or 0.0) * (row.in_per_second or 0.0) * self.scale
        fixed = sum(self.work(name) for name in row.patterns if not self._is_sheddable(name))
        others = sum(other.utilisation or 0.0 for name, other in self.row.operators.items() if name != operator)
        return max(MIN_AVAILABLE, 1 - (beside + fixed) / self.count_tasks(operator) - others)

    def count_tasks(self, operator: str) -> int:
        return int(self.row.operators[operator].tasks or 1)

    def compute_utilization(self) -> float:
        """Return the share of time that the whole offered load takes; operators run one after the other."""
        return sum(self._compute_operator_share(name) for name in self.row.operators)

    def _compute_operator_share(self, operator: str) -> float:
        row = self.row.operators[operator]
        beside = (row.overhead_seconds or 0.0) * (row.in_per_second or 0.0) * self.scale
        return (beside + sum(self.work(name) for name in row.patterns)) / self.count_tasks(operator)

    def iterate_sheddable_patterns(self) -> Iterator[str]:
        """Return the patterns that may be shed."""
        return (name for name in self.row.patterns if self._is_sheddable(name))

    def has_worked(self, pattern: str) -> bool:
        """Return whether the pattern has processed anything recently."""
        return bool(self.row.patterns[pattern].seconds) and any(self.compute_wanted(pattern).values())

    def _is_sheddable(self, pattern: str) -> bool:
        return bool(self.row.patterns[pattern].sheddable)
