"""The effect of a pause within a minute, computed from arrival rates, handler times, and worker slots.

Events of a queue are taken to have arrived at an even rate since the oldest one. Of N events that came in `age`
seconds, the oldest that is left after the first p were processed is (1 - p / N) * age old. Free slots are divided among
the other queues in proportion to their work.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from queues.models import Queue
from queues.pausing import CONSUMPTION, INTAKE
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot

AHEAD_SECONDS = 60.0
JOBS_ROLE = "jobs"


@dataclass(frozen=True, kw_only=True)
class PredictedRow:
    """A figure now and in a minute, in words."""

    name: str
    now: str
    then: str


def predict_pause(queue: str, part: str, affected: Iterable[str], snapshot: Snapshot) -> list[PredictedRow]:
    """Return the oldest event of each affected queue, and the free worker slots. Empty if a figure is missing."""
    row = snapshot.queues.get(queue)
    if row is None or row.wait_seconds is None:
        return []
    if part == INTAKE:
        return [PredictedRow(name=queue, now=_format_age(row.wait_seconds), then=_predict_without_arrivals(row))]
    if part != CONSUMPTION or row.kind != Queue.Kind.JOBS:
        return []
    others = {
        name: other
        for name, other in snapshot.queues.items()
        if name != queue and other.kind == Queue.Kind.JOBS and not any(pause.part == part for pause in other.pauses)
    }
    hosts = [host for host in snapshot.hosts.values() if host.role == JOBS_ROLE and not host.drained]
    slots, busy = sum(host.slots for host in hosts), sum(host.at_work or 0.0 for host in hosts)
    if not slots or row.service_seconds is None:
        return []
    work = {name: _compute_work(other) for name, other in others.items()}
    # The slots of the queue become free when its current runs end.
    free = max(0.0, slots * AHEAD_SECONDS - (row.workers_at_once or 0.0) * min(AHEAD_SECONDS, row.service_seconds))
    known = sum(seconds for seconds in work.values() if seconds is not None)
    share = 1.0 if known <= free else free / known
    rows = [
        PredictedRow(name=name, now=_format_age(other.wait_seconds), then=_predict_age(other, work[name], share))
        for name in affected
        if (other := others.get(name)) is not None and other.wait_seconds is not None
    ]
    own = f"{_format_age(row.wait_seconds + AHEAD_SECONDS)}, growing" if row.waiting_events else "no event waits"
    used = sum((other.in_per_second or 0.0) * (other.service_seconds or 0.0) for other in others.values())
    then = max(0.0, slots - used) if share == 1.0 else 0.0
    return [
        *rows,
        PredictedRow(name=queue, now=_format_age(row.wait_seconds), then=own),
        PredictedRow(
            name="Free worker slots", now=f"{max(0.0, slots - busy):.0f} of {slots}", then=f"{then:.1f} of {slots}"
        ),
    ]


def _compute_work(row: QueueStatus) -> float | None:
    """Return the work of a queue within the minute, in seconds of a slot; None if its handler time is unknown."""
    events = (row.waiting_events or 0) + AHEAD_SECONDS * (row.in_per_second or 0.0)
    if not events:
        return 0.0
    return None if row.service_seconds is None else events * row.service_seconds


def _predict_age(row: QueueStatus, work: float | None, share: float) -> str:
    if work is None:
        return "unknown"
    age = (1 - share) * ((row.wait_seconds or 0.0) + AHEAD_SECONDS)
    least = max(1.0, round(2 * (row.service_seconds or 0.0)))
    return f"below {least:.0f} s" if age < least else _format_age(age)


def _predict_without_arrivals(row: QueueStatus) -> str:
    waiting, done = row.waiting_events or 0, AHEAD_SECONDS * (row.out_per_second or 0.0)
    if done >= waiting:
        return "no event waits"
    return _format_age((1 - done / waiting) * (row.wait_seconds or 0.0) + AHEAD_SECONDS)


def _format_age(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:,.0f}\u00a0s"
