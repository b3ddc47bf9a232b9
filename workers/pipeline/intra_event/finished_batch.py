"""What is known of a replica's batch once it is finished."""

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
