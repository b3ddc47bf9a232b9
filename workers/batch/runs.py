"""Runs of batch tasks: start, cancel, resume. A request is refused before anything is changed.

Two settings of the plant say how much one person may ask for: open runs, and seconds of workers in an hour. Runs of the
schedule and of the command line have no owner, and no quota.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import redis
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Sum

from common import checks, parsing
from common.errors import BadInput, RateLimited, WeirError
from queues import keys
from workers.batch import catalog
from workers.batch.job import ChunkSpec, Job, JobContext, Values
from workers.coordination.leases import lock_until_commit
from workers.models import Chunk, Run, Task
from workers.plants.registry import LOCAL
from workers.steering import plant_settings
from workers.task_history.own_tasks import record_run

OPEN_RUNS, BATCH_SECONDS = "quota.open_runs", "quota.batch_seconds"
WINDOW = timedelta(hours=1)
RETRY_SECONDS = 60


logger = logging.getLogger(__name__)
OPEN = (Run.State.QUEUED, Run.State.RUNNING)
RESUMABLE = (Run.State.FAILED, Run.State.CANCELLED)


def get_task(name: str) -> Task:
    """Return the task. Raises BadInput naming it."""
    task = Task.objects.filter(name=name).first()
    if task is None:
        known = ", ".join(Task.objects.order_by("name").values_list("name", flat=True)) or "none"
        raise BadInput("task", f"must be one of {known}, not {name}.")
    return task


def run_of(number: object) -> Run:
    """Return the run. Raises BadInput naming the run."""
    known = parsing.parse_digits(str(number)[: checks.MAX_SHOWN])
    run = None if known is None else Run.objects.select_related("task").filter(pk=known).first()
    if run is None:
        raise BadInput("run", f"{str(number)[: checks.MAX_SHOWN]} does not exist.")
    return run


def begin(
    name: str,
    where: JobContext,
    parameters: Mapping[str, Any] | None = None,
    *,
    owner: User | None = None,
    deadline_at: datetime | None = None,
) -> Run:
    """Create a queued run with its chunks, and return it; the manager starts it.

    The given parameters override the task's. The run is done at once when there is nothing to do, and failed where its
    work cannot be determined.

    Raises BadInput: an unknown task or parameter, a deadline in the past, a single-instance task that has an open run;
    RateLimited for an owner who has requested too much already.
    """
    task = get_task(name)
    job = catalog.get_job(task.job)
    values = job.read({**task.parameters, **(parameters or {})})
    if deadline_at is not None and deadline_at <= where.now:
        raise BadInput("deadline", f"must be in the future, not {deadline_at.isoformat()}.")
    _check_quota(owner, where.now)  # before the work is planned, which may take long
    planned, error = _plan_chunks(job, values, replace(where, owner=owner.pk if owner else None))
    try:
        with transaction.atomic():
            _check_quota(owner, where.now)
            run = Run.objects.create(
                task=task,
                parameters=values,
                single_instance=task.single_instance,
                owner=owner,
                deadline_at=deadline_at or compute_next_deadline(task.deadline, where.now),
                created_at=where.now,
                chunks_total=None if planned is None else len(planned),
            )
            Chunk.objects.bulk_create(
                Chunk(run=run, identifier=piece.identifier, place=place, content=dict(piece.content))
                for place, piece in enumerate(planned or ())
            )
    except IntegrityError:
        raise _build_open_error(task) from None
    if planned == []:
        end(run, Run.State.FAILED if error else Run.State.DONE, where.now, error)
    return run_of(run.pk)


def _check_quota(owner: User | None, now: datetime) -> None:
    """Raise RateLimited where a person has requested too much already.

    The owner's other requests wait until this transaction ends, so that none passes the limit.
    """
    if owner is None:
        return
    with transaction.atomic():
        # By name: a role for workers may not lock rows of accounts (`console.storage.worker_tables`).
        lock_until_commit(f"runs of user {owner.pk}")
        open_runs = Run.objects.filter(owner=owner, state__in=OPEN).count()
        max_runs = plant_settings.get_setting_value(OPEN_RUNS)
        if open_runs >= max_runs:
            raise RateLimited(
                "run",
                f"{owner.get_username()} has {open_runs} runs queued or running. The limit is {max_runs} "
                f"({OPEN_RUNS}). Wait until a run ends, or cancel a run.",
                RETRY_SECONDS,
            )
        # How long workers were at the owner's chunks that somebody worked at within the last hour.
        recent = Chunk.objects.filter(run__owner=owner, beat_at__gt=now - WINDOW)
        spent = recent.aggregate(spent=Sum("spent_seconds", default=0.0))["spent"]
        max_seconds = plant_settings.get_setting_value(BATCH_SECONDS)
        if spent >= max_seconds:
            raise RateLimited(
                "run",
                f"{owner.get_username()} has used {spent:,.0f} s of batch worker time in the last hour. "
                f"The limit is {max_seconds:,} s ({BATCH_SECONDS}). Try again later.",
                RETRY_SECONDS,
            )


def _plan_chunks(job: Job, values: Values, where: JobContext) -> tuple[list[ChunkSpec] | None, str]:
    """Return the chunks, None where their number is unknown in advance, and the error of planning, else "".

    Planning may fail, for example for an unreadable folder. Such a run fails visibly; a schedule that creates no run
    would fail unseen.
    """
    if job.pieces is None:
        return None, ""
    try:
        return list(job.pieces(values, where)), ""
    except (WeirError, redis.RedisError, DatabaseError):
        raise
    except Exception as error:
        logger.exception("A run of %s cannot be planned", job.name)
        return [], f"{type(error).__name__}: {error}"


def cancel(run: Run, now: datetime) -> Run:
    """Cancel an open run. Raises BadInput when it has ended.

    Its workers stop at their next heartbeat, and nothing of theirs is published any more. Completed chunks stay.
    """
    if not end(run, Run.State.CANCELLED, now):
        ended = run_of(run.pk)
        raise BadInput("run", f"{run.pk} is already {ended.state}. Only a queued or running run can be canceled.")
    return run_of(run.pk)


def resume(run: Run, now: datetime) -> Run:
    """Resume a failed or cancelled run without repeating completed chunks.

    Raises BadInput otherwise, for a job that no longer exists, and for a run whose chunks could not be planned;
    RateLimited as `begin` does.
    """
    if run.state in RESUMABLE and run.chunks_total == 0:
        raise BadInput("run", f"{run.pk} cannot be resumed, because it could not be planned. Start another run.")
    try:
        with transaction.atomic():
            _check_quota(run.owner, now)
            if not Run.objects.filter(pk=run.pk, state__in=RESUMABLE).update(
                state=Run.State.QUEUED, ended_at=None, error="", deadline_at=None
            ):
                raise BadInput(
                    "run", f"{run.pk} is {run_of(run.pk).state}. Only a failed or canceled run can be resumed."
                )
            unfinished = Chunk.objects.filter(run=run).exclude(state=Chunk.State.DONE)
            if catalog.get_job(run.task.job).next_piece is not None:
                # A chunk that failed was the last: the number of chunks is determined once it is done.
                Run.objects.filter(pk=run.pk).update(chunks_total=None)
            # A worker that is still at a chunk finds its number outdated.
            unfinished.update(state=Chunk.State.PENDING, tries=0, fence=0, error="")
    except IntegrityError:
        raise _build_open_error(run.task) from None
    return run_of(run.pk)


def end(run: Run, state: str, now: datetime, error: str = "") -> bool:
    """Close an open run, and store it in the task history; return False when it has ended already."""
    with transaction.atomic():
        has_ended = Run.objects.filter(pk=run.pk, state__in=OPEN).update(
            state=state, ended_at=now, error=checks.make_storable(error), workers_wanted=0
        )
        if has_ended:
            ended = run_of(run.pk)
            times = ended.created_at, ended.started_at, now
            record_run(LOCAL, ended.pk, ended.task.name, state, ended.parameters, ended.error, *times)
    return bool(has_ended)


def forget_live(control: redis.Redis, number: int) -> None:
    """Delete live data that is not needed after a run's end."""
    control.delete(keys.JOB.build(number), keys.JOB_WORKERS.build(number))


def compute_next_deadline(by: time | None, now: datetime) -> datetime | None:
    """Return the next time of day `by` (UTC)."""
    if by is None:
        return None
    today = datetime.combine(now.astimezone(UTC).date(), by, UTC)
    return today if today > now else today + timedelta(days=1)


def _build_open_error(task: Task) -> BadInput:
    going_on = task.runs.filter(state__in=OPEN).first()
    number = f" (run {going_on.pk})" if going_on else ""
    return BadInput(
        "task", f"{task.name} allows one run at a time, and a run is open{number}. Wait until it ends, or cancel it."
    )
