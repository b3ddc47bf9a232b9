"""The number of workers of a batch task: just enough to meet its deadline."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from statistics import median

# Work planned to end exactly at the deadline ends after it, so a part of the time is kept in reserve.
RESERVE_SHARE = 0.2


def compute_worker_count(
    chunks_left: int | None, chunk_seconds: Sequence[float], seconds_left: float | None, most: int
) -> int:
    """Return the number of workers, from 1 to `most`.

    ceil(chunks / rounds), rounds = floor(seconds left * (1 - reserve) / median seconds a chunk): the number of chunks
    that one worker completes in time, without a chunk that would start too late.

    This is Houtman's formula of 2.1 (workers = work / (throughput * time)) with the measured throughput. Without a
    deadline, a measurement, or a known amount of work: `most`. Nothing left: 0. After the deadline: `most`.
    """
    if chunks_left == 0:
        return 0
    if chunks_left is None or seconds_left is None or not chunk_seconds:
        return most if chunks_left is None else min(most, chunks_left)
    # A chunk that took no measurable time counts as a millisecond.
    rounds = math.floor(seconds_left * (1 - RESERVE_SHARE) / max(0.001, median(chunk_seconds)))
    if rounds <= 0:
        return min(most, chunks_left)
    return min(most, math.ceil(chunks_left / rounds))


def compute_next_deadline(by: time | None, now: datetime) -> datetime | None:
    """Return the next time of day `by` (UTC)."""
    if by is None:
        return None
    today = datetime.combine(now.astimezone(UTC).date(), by, UTC)
    return today if today > now else today + timedelta(days=1)
