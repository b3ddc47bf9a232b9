"""A loop's record of some days, as the ledger keeps it: only the stretches that a tuning reads."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import numpy as np

from controllers import catalog
from controllers.framework.law import decide_next, start_state
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


SLUGGISH = {"setpoint": 1e7, "minimum": 512.0, "a": 1.0, "b": -100.0, "delay": 1, "kp": -0.0002, "ki": -0.00001}


def flow_loop() -> Loop:
    return Loop.objects.create(
        name="flow/performance",
        law="flow",
        target={"application": "performance"},
        interval_seconds=EVERY_SECONDS,
        parameters=SLUGGISH,
    )


def record_flow(loop: Loop, days_back: Iterable[int]) -> None:
    """A result queue that its law keeps half free, badly: 4,000 events a tick are worked, by a hog 2,000."""
    law, chance = catalog.get_law("flow"), np.random.default_rng(1)
    parameters = catalog.read_parameters(law, SLUGGISH)

    def stretch(ticks: int) -> Iterator[dict[str, float]]:
        state, free, applied = start_state(law, parameters), 1e7, (4_000.0, 4_000.0)
        for tick in range(ticks):
            seen = {"measured": free, "applied": applied[0]}
            yield seen
            state, decision = decide_next(law, parameters, state, seen)
            applied = (float((decision.action or {})["admit"]), applied[0])
            worked = (2_000 if tick % 60 < 20 else 4_000) * chance.normal(1, 0.05)
            free = min(2e7, max(0.0, free - 100 * (applied[1] - worked)))

    _write(loop, days_back, stretch)


def record(loop: Loop, days_back: Iterable[int], seed: int = 1) -> None:
    """What came on those days, each tick removed at once; a rate that wanders."""
    chance = np.random.default_rng(seed)

    def stretch(ticks: int) -> Iterator[dict[str, float]]:
        rates = 8.0 * np.exp(np.repeat(chance.standard_normal(ticks // 10 + 1), 10)[:ticks])
        for came in chance.poisson(rates * EVERY_SECONDS).tolist():
            yield {"queue_length": 0, "removed": came, "started": 0, "waiting_to_run": 0}

    _write(loop, days_back, stretch)


def _write(loop: Loop, days_back: Iterable[int], stretch: Callable[[int], Iterator[dict[str, float]]]) -> None:
    """An entry a tick, of the stretches that a tuning reads."""
    rows = []
    for back in days_back:
        midnight = datetime.combine(NOW.date() - timedelta(days=back), time(), UTC)
        for place in tuning._draw_places(f"{loop.name} {midnight:%F}"):
            begin = midnight + timedelta(seconds=place * tuning.STRETCH_SECONDS)
            for number, seen in enumerate(stretch(int(tuning.STRETCH_SECONDS / EVERY_SECONDS))):
                at = begin + timedelta(seconds=number * EVERY_SECONDS)
                rows.append(
                    LedgerEntry(loop=loop, at=at, mode="auto", parameters={}, observation=seen, reason="a test")
                )
    LedgerEntry.objects.bulk_create(rows)
