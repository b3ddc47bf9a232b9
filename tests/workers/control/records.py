"""A loop's record of some days, as the ledger keeps it: only the stretches that a tuning reads."""

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import numpy as np

from workers.control import tuning
from workers.models import LedgerEntry, Loop

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


def record(loop: Loop, days_back: Iterable[int], seed: int = 1) -> None:
    """What came on those days, each tick removed at once; a rate that wanders."""
    chance = np.random.default_rng(seed)
    rows = []
    for back in days_back:
        midnight = datetime.combine(NOW.date() - timedelta(days=back), time(), UTC)
        for place in tuning._drawn(f"{loop.name} {midnight:%F}"):
            begin = midnight + timedelta(seconds=place * tuning.STRETCH_SECONDS)
            ticks = int(tuning.STRETCH_SECONDS / EVERY_SECONDS)
            rates = 8.0 * np.exp(np.repeat(chance.standard_normal(ticks // 10 + 1), 10)[:ticks])
            for number, came in enumerate(chance.poisson(rates * EVERY_SECONDS).tolist()):
                seen = {"queue_length": 0, "removed": came, "started": 0, "waiting_to_run": 0}
                at = begin + timedelta(seconds=number * EVERY_SECONDS)
                rows.append(
                    LedgerEntry(
                        loop=loop, at=at, mode="auto", parameters={}, observation=seen, reason="a test"
                    )
                )
    LedgerEntry.objects.bulk_create(rows)
