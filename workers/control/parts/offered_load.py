"""What the pipeline's operators are offered, and what that takes of their time: from one snapshot.

An overloaded operator counts what it manages, not what is meant for it (Röger, VIII). So what is worked is
taken as a sample, and scaled by what producers put into the application's queues, with what waits to be
worked off within DRAIN_SECONDS. Rates are those of patterns before anything is shed.
"""

from collections.abc import Iterator

from workers.documents.pipeline import ApplicationStatus
from workers.documents.snapshot import Snapshot

DRAIN_SECONDS = 5.0
# However much other work there is, an operator has this much of its time: a table has to come out.
LEAST_AVAILABLE = 0.05


class OperatorLoad:
    """Of one application: `row`, its part of the snapshot."""

    def __init__(self, row: ApplicationStatus, snapshot: Snapshot) -> None:
        self.row, self._snapshot = row, snapshot
        self.scale = self._scale()

    def _scale(self) -> float:
        """Offered over worked events; 1 where one is not known."""
        worked, offered = self.row.in_per_second, self._compute_offered_per_second()
        if not worked or offered is None:
            return 1.0
        return max(0.0, (offered + self._count_waiting_events() / DRAIN_SECONDS) / worked)

    def _compute_offered_per_second(self) -> float | None:
        """What producers put into the application's queues; None where that of one is not known."""
        queues = self._snapshot.queues
        rates = [queues[name].in_per_second if name in queues else None for name in self.row.queues]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if len(known) == len(rates) else None

    def _count_waiting_events(self) -> float:
        """In the containers and in the result queue, beyond what is on its way through anyway."""
        result, passes = self.row.result_queue, self.elsewhere_seconds + 2 * self.batch_seconds + 1.0
        held = result.used_bytes / max(1.0, result.bytes_per_event)
        usual = (self.row.in_per_second or 0.0) * passes
        return max(0.0, (self.row.waiting_events or 0) + held - usual)

    @property
    def is_idle(self) -> bool:
        """Whether nothing comes and nothing waits: then nothing is offered, however little was measured."""
        return self._compute_offered_per_second() == 0 and not self.row.waiting_events

    @property
    def batch_seconds(self) -> float:
        """What a batch takes beside its work."""
        return float(self.row.batch_overhead_seconds or 0.0)

    @property
    def elsewhere_seconds(self) -> float:
        """Before the operators: the replicas' answer, and the wait for late events."""
        answers = [replica.response_seconds or 0.0 for replica in self.row.replicas.values()]
        return float(self.row.controls.lateness_seconds + max(answers, default=0.0))

    def compute_wanted(self, pattern: str) -> dict[str, float]:
        """Type → events/s that the pattern could use, were none shed and all worked."""
        found = self.row.patterns[pattern]
        types = {**found.types, **found.shed_per_second}
        return {
            name: self.scale * (found.types.get(name, 0.0) + found.shed_per_second.get(name, 0.0))
            for name in sorted(types)
        }

    def rates(self, operator: str) -> dict[str, float]:
        """Type → events/s of it that come to an operator: what the pattern that wants most of it wants."""
        rates_by_type: dict[str, float] = {}
        for pattern in self.row.operators[operator].patterns:
            for name, rate in self.compute_wanted(pattern).items():
                rates_by_type[name] = max(rates_by_type.get(name, 0.0), rate)
        return rates_by_type

    def arrivals(self) -> dict[str, dict[str, float]]:
        """Operator → type → events/s, of what no pattern that may be shed emits."""
        inside = {pattern.emits for pattern in self.row.patterns.values() if pattern.sheddable}
        return {
            operator: {name: rate for name, rate in self.rates(operator).items() if name not in inside}
            for operator in self.row.operators
        }

    def work(self, pattern: str) -> float:
        """Seconds of work per second that a pattern would be."""
        seconds = self.row.patterns[pattern].seconds or 0.0
        return float(seconds * sum(self.compute_wanted(pattern).values()))

    def available(self, operator: str) -> float:
        """The share of an operator's time that patterns which may be shed can have: without its work beside
        its patterns, those that can't be shed, and the operators that are worked before and after it.
        """
        row = self.row.operators[operator]
        beside = (row.overhead_seconds or 0.0) * (row.in_per_second or 0.0) * self.scale
        fixed = sum(self.work(name) for name in row.patterns if not self._sheddable(name))
        others = sum(each.utilisation or 0.0 for name, each in self.row.operators.items() if name != operator)
        return max(LEAST_AVAILABLE, 1 - (beside + fixed) / self.tasks(operator) - others)

    def tasks(self, operator: str) -> int:
        return int(self.row.operators[operator].tasks or 1)

    def utilisation(self) -> float:
        """What all that is offered would take of the time of the operators, which are worked one after the
        other.
        """
        return sum(self._whole(name) for name in self.row.operators)

    def _whole(self, operator: str) -> float:
        row = self.row.operators[operator]
        beside = (row.overhead_seconds or 0.0) * (row.in_per_second or 0.0) * self.scale
        return (beside + sum(self.work(name) for name in row.patterns)) / self.tasks(operator)

    def sheddable(self) -> Iterator[str]:
        """The patterns that may be shed."""
        return (name for name in self.row.patterns if self._sheddable(name))

    def has_worked(self, pattern: str) -> bool:
        """Whether it has worked anything lately."""
        return bool(self.row.patterns[pattern].seconds) and any(self.compute_wanted(pattern).values())

    def _sheddable(self, pattern: str) -> bool:
        return bool(self.row.patterns[pattern].sheddable)
