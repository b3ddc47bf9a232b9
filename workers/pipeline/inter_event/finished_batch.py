"""The measurements of a finished inter-event batch."""

from dataclasses import dataclass

from workers.pipeline.inter_event.combining import CombinedOffset
from workers.pipeline.inter_event.operator_counts import OperatorCount
from workers.pipeline.patterns.graph import Graph, Operator


@dataclass(frozen=True)
class InterEventBatch:
    """One finished inter-event batch.

    operators: the counts of each operator. worked: the same, task by task.
    """

    at: float
    batch: int
    combined: CombinedOffset
    operators: dict[str, OperatorCount]
    worked: tuple[OperatorCount, ...]
    seconds: float

    @property
    def alerts(self) -> int:
        return sum(operator.matches for operator in self.operators.values())

    def count_tasks(self, operator: str) -> int:
        """Return how many tasks the operator ran on."""
        return sum(count.operator == operator for count in self.worked)

    def count_inputs(self, operator: Operator, graph: Graph) -> int:
        """Return the rows that arrived at the operator with this batch.

        These are the rows of its route that are read for the first time, and those that earlier operators have emitted.
        """
        fresh = sum(blob.rows for result in self.combined.fresh for blob in result.blobs if blob.route == operator.key)
        emitted = (
            self.operators[edge.source].patterns[pattern.name].matches
            for edge in graph.edges
            if edge.target == operator.name and edge.source in self.operators
            for pattern in graph.get_operator(edge.source).patterns
            if pattern.emits == edge.type and pattern.name in self.operators[edge.source].patterns
        )
        return fresh + sum(emitted)

    @property
    def work_seconds(self) -> float:
        """Return the time of the operators, one after the other, each on its tasks in parallel."""
        return sum(each.seconds / max(1, self.count_tasks(name)) for name, each in self.operators.items())

    @property
    def overhead_seconds(self) -> float:
        """Return the time of the batch besides that of its operators, at least 0.

        Operators of a level that run in parallel add up to more than they took, hence the lower bound.
        """
        return max(0.0, self.seconds - self.work_seconds)

    def compute_p95_age(self, now_seconds: float) -> tuple[float, int] | None:
        """Return the age that all but the oldest 5 % of its events have at most, and their number.

        Return None without events.
        """
        oldest = [operator.early_us for operator in self.operators.values() if operator.early_us is not None]
        events = max((operator.events for operator in self.operators.values()), default=0)
        return (now_seconds - min(oldest) / 1e6, events) if oldest else None
