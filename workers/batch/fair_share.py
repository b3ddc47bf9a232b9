"""Allocation of a role's workers to runs of batch tasks when there are too few.

Scheduled runs (roll-ups, retention) have precedence over requested runs (experiments, extracts: those with an owner). A
worker at a requested run gives its chunk back as soon as a scheduled run of the same role waits, at most MAX_YIELDS
times per chunk. Between chunks it leaves if a run waits whose owner was served less recently, so that people take
turns.
"""

from datetime import datetime

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from workers.batch import runs
from workers.batch.chunk_leases import is_beating
from workers.batch.task_managers import find_role
from workers.models import Chunk, Run

# Work that is given back is repeated: after this many times the scheduled run waits until the chunk is done.
MAX_YIELDS = 3
MAX_REQUESTED_CHUNK_SECONDS = 7_200.0


def must_yield(run: Run, chunk: Chunk, now: datetime) -> bool:
    """Return whether a worker must give this chunk back before it is done."""
    return chunk.yields < MAX_YIELDS and is_blocking_scheduled_run(run, now)


def is_blocking_scheduled_run(run: Run, now: datetime) -> bool:
    """Return whether a scheduled run has no worker while one of its role is at this requested run."""
    if not run.is_requested:
        return False
    role = find_role(run.task.requirements)
    requirements = _select_waiting_runs(now).filter(owner=None).values_list("task__requirements", flat=True)
    return any(find_role(requirement) == role for requirement in requirements)


def is_others_turn(run: Run, now: datetime) -> bool:
    """Return whether a run waits whose owner was served less recently than this requested run's owner."""
    mine = _find_last_service_time(run.owner_id)
    if mine is None:
        return False
    others = _select_waiting_runs(now).exclude(owner=None).exclude(owner=run.owner_id)
    role = find_role(run.task.requirements)
    owners = {
        owner
        for owner, requirements in others.values_list("owner", "task__requirements")
        if find_role(requirements) == role
    }
    return any((served_at := _find_last_service_time(owner)) is None or served_at < mine for owner in owners)


def _find_last_service_time(owner: int | None) -> datetime | None:
    """Return when a worker last processed a run of this person.

    None for the schedule, and before the first time.
    """
    if owner is None:
        return None
    last: datetime | None = Chunk.objects.filter(run__owner=owner).aggregate(last=Max("beat_at"))["last"]
    return last


def _select_waiting_runs(now: datetime) -> QuerySet[Run]:
    """Return open runs with work left and no worker."""
    chunks = Chunk.objects.filter(run=OuterRef("pk"))
    at_work = chunks.filter(is_beating(now), state=Chunk.State.WORKING)
    left = chunks.filter(state__in=(Chunk.State.PENDING, Chunk.State.WORKING))
    open_runs = Run.objects.filter(state__in=runs.OPEN).filter(~Exists(at_work))
    return open_runs.filter(Exists(left) | Q(chunks_total=None))
