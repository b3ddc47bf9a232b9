"""The cumulative counts of an application, which continue across restarts."""

from dataclasses import dataclass, field

from workers.documents.pipeline import ApplicationStatus
from workers.pipeline.inter_event.finished_batch import InterEventBatch
from workers.pipeline.shedding.shed_counts import ShedCounts


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
