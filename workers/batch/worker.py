"""A worker of a batch task.

It processes chunks until there are none, fewer workers are wanted, its host is drained, or another run is due for its
place. Scheduled runs (roll-ups, retention) have precedence over requested runs (experiments, extracts: those with an
owner). A worker at a requested run gives its chunk back as soon as a scheduled run of the same role waits, at most
MAX_YIELDS times per chunk. Between chunks it leaves if a run waits whose owner was served less recently, so that people
take turns. A worker at a scheduled run leaves between chunks if a run with an earlier deadline waits.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import redis
from django.db import DatabaseError, transaction
from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from common.checks import make_storable
from common.errors import BadInput
from queues import keys
from workers.batch import catalog, files, runs
from workers.batch.chunk_leases import ChunkLease, ChunkLeaseLost, ChunkYielded, claim, is_beating
from workers.batch.job import Job, JobContext, Work
from workers.batch.task_managers import LIVE_SECONDS, PRESENT_SECONDS, can_run_here, find_role, get_urgency, note_worker
from workers.models import Chunk, Run, Task

# Work that is given back is repeated: after this many times the scheduled run waits until the chunk is done.
MAX_YIELDS = 3
MAX_REQUESTED_CHUNK_SECONDS = 7_200.0
URGENT_AFTER_SECONDS = 5.0  # a free worker starts within this time, and no other worker has to leave


def must_yield(run: Run, chunk: Chunk, now: datetime) -> bool:
    """Return whether a worker must give this chunk back before it is done."""
    return chunk.yields < MAX_YIELDS and is_blocking_scheduled_run(run, now)


def is_blocking_scheduled_run(run: Run, now: datetime) -> bool:
    """Return whether a scheduled run has no worker while one of its role is at this requested run."""
    if not run.is_requested:
        return False
    role = find_role(run.task.requirements)
    requirements = _select_waiting_runs(now).filter(owner=None).values_list("task__requirements", flat=True)
    return any(can_run_here(requirement, role) for requirement in requirements)


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
        if can_run_here(requirements, role)
    }
    return any((served_at := _find_last_service_time(owner)) is None or served_at < mine for owner in owners)


def is_more_urgent_run_waiting(run: Run, now: datetime) -> bool:
    """Return whether a scheduled run that is more urgent than this one has waited for a worker of the role."""
    if run.is_requested:
        return False
    role, since = find_role(run.task.requirements), now - timedelta(seconds=URGENT_AFTER_SECONDS)
    waiting = _select_waiting_runs(now).filter(owner=None, started_at__lt=since).select_related("task")
    return any(get_urgency(row) < get_urgency(run) and can_run_here(row.task.requirements, role) for row in waiting)


def _find_last_service_time(owner: int | None) -> datetime | None:
    """Return when a worker last processed a run of this person. None for the schedule, and before the first time."""
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


logger = logging.getLogger(__name__)


class BatchWorker:
    """A worker at one run.

    `clock` gives the time; host: the host whose drain ends the worker after its chunk, "" for none.
    """

    def __init__(self, run: Run, worker: str, where: JobContext, clock: Callable[[], datetime], host: str = "") -> None:
        self._run, self._worker, self._where, self._clock, self._host = run, worker, where, clock, host
        self._job = catalog.get_job(run.task.job)

    def run(self) -> int:
        """Process chunks until none is left for it; return how many."""
        done = 0
        try:
            self._be_present()
            if self._should_leave():
                return done
            with self._job.opened(self._where) as work:
                while not self._should_leave() and (chunk := self._take_next()) is not None:
                    done += self._do(chunk, work)
        finally:
            self._where.control.zrem(keys.JOB_WORKERS.build(self._run.pk), self._worker)
        return done

    def _take_next(self) -> Chunk | None:
        self._be_present()
        # The next chunk is new work, which another host takes.
        if self._host and self._where.control.exists(keys.DRAIN.build(self._host)):
            return None
        chunk = claim(self._run.pk, self._worker, self._clock())
        if chunk is None and self._job.next_piece is not None and extend(self._run.pk, self._job, self._where):
            chunk = claim(self._run.pk, self._worker, self._clock())
        return chunk

    def _should_leave(self) -> bool:
        """Return whether another run is due for the worker's place."""
        now = self._clock()
        checks = (is_blocking_scheduled_run, is_others_turn, is_more_urgent_run_waiting)
        return any(check(self._run, now) for check in checks)

    def _do(self, chunk: Chunk, work: Work) -> bool:
        """Process one chunk, recording any failure with it; return whether it was done."""
        lease = ChunkLease(
            chunk,
            self._where,
            self._clock,
            note=lambda progress: self._note(chunk, progress),
            max_seconds=self._max_seconds(),
            must_yield=lambda: must_yield(self._run, chunk, self._clock()),
        )
        began = time.monotonic()
        try:
            lease.check({"rows": 0, "share": 0.0})
            lease.commit(work(lease), time.monotonic() - began)
        except ChunkLeaseLost as error:
            logger.warning("%s", error)
            return False
        except ChunkYielded as error:
            logger.info("%s", error)
            lease.give_back()
            return False
        except BadInput as error:
            # Another try reads the same input: the run ends here with the reason.
            if lease.fail(str(error), final=True):
                runs.end(self._run, Run.State.FAILED, self._clock(), f"{chunk.identifier}: {error}")
            return False
        except Exception as error:
            logger.exception("Chunk %s of run %s failed", chunk.identifier, self._run.pk)
            lease.fail(f"{type(error).__name__}: {error}", final=False)
            return False
        finally:
            self._where.control.hdel(keys.JOB.build(self._run.pk), chunk.identifier)
            self._sweep(lease)
        return True

    def _max_seconds(self) -> float | None:
        """Return the maximum duration of a chunk. A run that a person requested always has one."""
        if self._job.max_chunk_seconds is None and self._run.is_requested:
            return MAX_REQUESTED_CHUNK_SECONDS
        return self._job.max_chunk_seconds

    def _note(self, chunk: Chunk, progress: Mapping[str, Any]) -> None:
        """Record the progress. A failure to do so ends no work: the lease is in the database."""
        document = {**progress, "worker": self._worker, "at": self._clock().timestamp()}
        key = keys.JOB.build(self._run.pk)
        with suppress(redis.RedisError):
            self._be_present()
            self._where.control.hset(key, chunk.identifier, orjson.dumps(document))
            self._where.control.expire(key, LIVE_SECONDS)

    def _be_present(self) -> None:
        until = self._clock().timestamp() + PRESENT_SECONDS
        note_worker(self._where.control, self._run.pk, self._worker, until)

    def _sweep(self, lease: ChunkLease) -> None:
        """Remove hidden files of this and earlier workers of the chunk.

        A folder that cannot be removed, such as one into which an ending Spark still writes, stays hidden.
        """
        try:
            files.sweep(self._where.data, f"{lease.chunk.run_id}-{lease.chunk.pk}-", lease.chunk.fence)
        except OSError as error:
            logger.warning("Temporary files of chunk %s cannot be removed: %s", lease.chunk.identifier, error)


def extend(number: int, job: Job, where: JobContext) -> bool:
    """Add one more chunk to a run with an unknown amount of work.

    Return False when there is none, or one is open. When nothing is left, the amount is known from then on.
    """
    assert job.next_piece is not None
    with transaction.atomic():
        run = Run.objects.get(pk=number)
        list(Task.objects.select_for_update().filter(pk=run.task_id))
        newest = run.chunks.order_by("-place").first()
        if run.state != Run.State.RUNNING or run.chunks_total is not None:
            return False
        failed = newest is not None and newest.state == Chunk.State.FAILED
        if newest is not None and run.single_instance and newest.state != Chunk.State.DONE and not failed:
            return False  # a worker has it, and the next one starts where it ends
        # There is no next chunk after a failed one: the run ends with it.
        piece = None if failed else job.next_piece(run.parameters, where, newest.identifier if newest else None)
        place = 0 if newest is None else newest.place + 1
        if piece is None:
            Run.objects.filter(pk=number).update(chunks_total=place)
            return False
        Chunk.objects.create(run=run, identifier=piece.identifier, place=place, content=dict(piece.content))
    return True


def work_at(
    number: int, worker: str, control: redis.Redis, data: Path, clock: Callable[[], datetime], host: str = ""
) -> int:
    """Run one worker from start to end at a run, which may have ended in the meantime.

    A failure outside of a chunk, such as in its job's code, would occur for every worker: the run ends with the reason.
    Raises what a server or a database that is away raises.
    """
    run = Run.objects.select_related("task").filter(pk=number, state=Run.State.RUNNING).first()
    if run is None:
        return 0
    try:
        return BatchWorker(run, worker, JobContext(data, control, clock()), clock, host).run()
    except (redis.RedisError, DatabaseError):
        raise
    except BadInput as error:
        runs.end(run, Run.State.FAILED, clock(), str(error))
    except Exception as error:
        logger.exception("Run %s failed outside of its chunks.", number)
        runs.end(run, Run.State.FAILED, clock(), make_storable(f"{type(error).__name__}: {error}"))
    return 0
