"""A loop whose parameters are worse than they could be."""

from datetime import UTC, datetime
from typing import Any

from workers.models import Loop

NOW = datetime(2026, 3, 10, 4, 0, tzinfo=UTC)
EVERY_SECONDS = 2.0
# Few start for what is coming, and those find little: what is in force can be improved.
WASTEFUL = {
    "events_per_worker": 1_000,
    "upper_limit": 1_200,
    "max_wait_seconds": 120.0,
    "start_when": "always",
    "fill_share": 0.05,
    "caution": 0.0,
    "interval_seconds": EVERY_SECONDS,
}


def wasteful_loop(**more: Any) -> Loop:
    return Loop.objects.create(
        name="worker_rate/alert/n1",
        law="worker_rate",
        target={"queue": "alert", "node": "n1"},
        interval_seconds=EVERY_SECONDS,
        parameters=WASTEFUL,
        **more,
    )
