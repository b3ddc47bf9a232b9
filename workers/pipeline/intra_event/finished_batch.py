"""The measurements of a replica's finished batch."""

from dataclasses import dataclass, field
from typing import Any

from workers.pipeline.shedding.shed_counts import ShedCounts


@dataclass(frozen=True)
class ReplicaBatch:
    """One finished batch of a replica. at: monotonic seconds. response_seconds: from dispatch to result."""

    at: float
    batch: int
    events: int
    retained: int
    size_bytes: int
    seconds: float
    rules: list[dict[str, Any]]
    response_seconds: float
    shed: ShedCounts = field(default_factory=dict)
