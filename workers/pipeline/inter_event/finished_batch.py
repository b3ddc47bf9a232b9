"""What is known of an inter-event batch once it is finished."""

from dataclasses import dataclass

from workers.pipeline.inter_event.combining import Combined
from workers.pipeline.inter_event.operator_counts import OperatorCount
from workers.pipeline.patterns.graph import Graph, Operator


@dataclass(frozen=True)
class InterEventBatch:
    """One finished inter-event batch. operators: what was done of each. worked: the same, task by task."""

    at: float
    batch: int
    combined: Combined
    operators: dict[str, OperatorCount]
    worked: tuple[OperatorCount, ...]
    seconds: float

    @property
    def alerts(self) -> int:
        return sum(operator.matches for operator in self.operators.values())

    def tasks_of(self, operator: str) -> int:
        """How many worked it."""
        return sum(count.operator == operator for count in self.worked)

    def inputs_of(self, operator: Operator, graph: Graph) -> int:
        """Rows that came to the operator with this batch: those of its route that are read for the first
        time, and what operators before it have emitted.
        """
        fresh = sum(
            blob.rows for result in self.combined.fresh for blob in result.blobs if blob.route == operator.key
        )
        emitted = (
            self.operators[edge.source].patterns[pattern.name].matches
            for edge in graph.edges
            if edge.target == operator.name and edge.source in self.operators
            for pattern in graph.operator(edge.source).patterns
            if pattern.emits == edge.type and pattern.name in self.operators[edge.source].patterns
        )
        return fresh + sum(emitted)

    @property
    def work_seconds(self) -> float:
        """What its operators took of its time, one after the other, each on its tasks at once."""
        return sum(each.seconds / max(1, self.tasks_of(name)) for name, each in self.operators.items())

    @property
    def overhead_seconds(self) -> float:
        """What it took beside its operators. Those of a level that are worked at the same time add up to more
        than they took: then 0, which a cost may be, and nothing less.
        """
        return max(0.0, self.seconds - self.work_seconds)

    def late_seconds(self, now_seconds: float) -> tuple[float, int] | None:
        """(age of all but the oldest 5 % of its events, how many); None without any."""
        oldest = [operator.early_us for operator in self.operators.values() if operator.early_us is not None]
        events = max((operator.events for operator in self.operators.values()), default=0)
        return (now_seconds - min(oldest) / 1e6, events) if oldest else None
