"""What an application counts on over restarts."""

from dataclasses import dataclass, field
from typing import Any

from workers.pipeline.inter_event.finished_batch import InterEventBatch
from workers.pipeline.shedding.shed_counts import ShedCounts


@dataclass
class Totals:
    """What counts on over restarts."""

    matches: dict[str, int] = field(default_factory=dict)
    suppressed: dict[str, int] = field(default_factory=dict)
    shed: ShedCounts = field(default_factory=dict)
    late_events: int = 0
    admitted_events: int = 0

    @classmethod
    def of(cls, before: dict[str, Any]) -> "Totals":
        """Of the document that a process before has left; nothing when it can't be read."""
        try:
            patterns = before.get("patterns", {})
            matches = {name: int(pattern["matches"]) for name, pattern in patterns.items()}
            suppressed = {name: int(pattern["quiet"]) for name, pattern in patterns.items()}
            shed = {name: pattern.get("shed_events", {}) for name, pattern in patterns.items()}
            late, admitted = before.get("late_events"), before.get("admitted_events")
            return cls(matches, suppressed, shed, int(late or 0), int(admitted or 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def add(self, batch: InterEventBatch) -> None:
        for operator in batch.operators.values():
            self.late_events += operator.late
            for name, pattern in operator.patterns.items():
                self.matches[name] = self.matches.get(name, 0) + pattern.matches
                self.suppressed[name] = self.suppressed.get(name, 0) + pattern.suppressed
