"""How many workers a batch task gets: enough to be done by its deadline, and no more."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from statistics import median

# What is planned to end exactly at the deadline ends after it: a part of the time is kept in reserve.
RESERVE_SHARE = 0.2


def workers_for(
    chunks_left: int | None, chunk_seconds: Sequence[float], seconds_left: float | None, most: int
) -> int:
    """ceil(chunks / rounds), rounds = floor(seconds left * (1 - reserve) / median seconds a chunk): so many
    chunks one worker ends in time, a chunk begun too late not among them. From 1 to `most`.

    Houtman's formula of 2.1 (workers = work / (throughput * time)) with the throughput measured. Without a
    deadline, a measurement, or a known amount of work: `most`. Nothing left: 0. After the deadline: `most`.
    """
    if chunks_left == 0:
        return 0
    if chunks_left is None or seconds_left is None or not chunk_seconds:
        return most if chunks_left is None else min(most, chunks_left)
    # A chunk that took no measurable time is taken for a millisecond.
    rounds = math.floor(seconds_left * (1 - RESERVE_SHARE) / max(0.001, median(chunk_seconds)))
    if rounds <= 0:
        return min(most, chunks_left)
    return min(most, math.ceil(chunks_left / rounds))


def next_deadline(by: time | None, now: datetime) -> datetime | None:
    """The next time that it is `by` o'clock (UTC)."""
    if by is None:
        return None
    today = datetime.combine(now.astimezone(UTC).date(), by, UTC)
    return today if today > now else today + timedelta(days=1)
