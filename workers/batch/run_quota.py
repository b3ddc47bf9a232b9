"""How much batch work one person may ask for: open runs, and seconds of workers in an hour.

Two settings of the plant say how much. Runs of the schedule and of the command line have no owner, and no quota.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Sum

from common.errors import RateLimited
from workers.coordination.leases import lock_until_commit
from workers.models import Chunk
from workers.steering import plant_settings

OPEN_RUNS, BATCH_SECONDS = "quota.open_runs", "quota.batch_seconds"
WINDOW = timedelta(hours=1)
RETRY_SECONDS = 60


def check(owner: Any, open_runs: int, now: datetime) -> None:
    """Raise RateLimited where the owner of `open_runs` runs may not begin another."""
    max_runs = plant_settings.get_setting_value(OPEN_RUNS)
    if open_runs >= max_runs:
        raise RateLimited(
            "run",
            f"{owner.get_username()} has {open_runs} runs queued or running; the limit is {max_runs} "
            f"({OPEN_RUNS}). Wait until a run ends, or cancel a run.",
            RETRY_SECONDS,
        )
    spent, max_seconds = sum_spent_seconds(owner, now), plant_settings.get_setting_value(BATCH_SECONDS)
    if spent >= max_seconds:
        raise RateLimited(
            "run",
            f"{owner.get_username()} has used {spent:,.0f} s of batch worker time in the last hour; "
            f"the limit is {max_seconds:,} s ({BATCH_SECONDS}). Try again later.",
            RETRY_SECONDS,
        )


def sum_spent_seconds(owner: Any, now: datetime) -> float:
    """How long workers were at the owner's chunks that somebody worked at within the last hour."""
    recent = Chunk.objects.filter(run__owner=owner, beat_at__gt=now - WINDOW)
    return float(recent.aggregate(spent=Sum("spent_seconds", default=0.0))["spent"])


def lock(owner: Any) -> None:
    """Make the owner's other requests wait until this transaction ends, so that none passes the limit."""
    # By name: a role for workers may not lock rows of accounts (`console.storage.worker_tables`).
    lock_until_commit(f"runs of user {owner.pk}")
