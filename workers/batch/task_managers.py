"""Managers of batch tasks (Houtman 3.5.2.1).

They measure the remaining work and the duration of a chunk, start as many workers as the deadline requires, and close
completed runs. Their whole state is in the database and on the control server, and every step is repeatable: when a
manager is killed, the next tick takes over on any host.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

import orjson
import redis
from django.db.models import Count, Q, Sum

from common.errors import BadInput
from queues import keys
from queues.control.replies import expect_bytes
from workers.batch import runs
from workers.coordination.leases import Lease
from workers.models import Chunk, Run
from workers.pool.hosts import read_capabilities
from workers.pool.orders import read_host_reports
from workers.pool.selection import HostSelection

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


LEASE_SECONDS = 10.0
# How long a requested worker counts before it starts; then it is requested again, and the earlier message has expired.
SUBMISSION_SECONDS = 60.0
PRESENT_SECONDS = 15.0
LIVE_SECONDS = 86_400
MEASURED_CHUNKS = 20
# Requirement → the role of workers that meet it; "memory": Spark's hosts have most of it.
ROLE_OF = {"spark": "spark", "memory": "spark"}
DEFAULT_ROLE = "jobs"
# Priorities of workers, 0 first. Consumers of most queues come before all of them.
DEADLINE_PRIORITY, SCHEDULED_PRIORITY, REQUESTED_PRIORITY = 6, 7, 8
NO_DEADLINE = datetime.max.replace(tzinfo=UTC)
Submit = Callable[[int, str, str, int], None]  # run, worker, host or role, priority


def tick(control: redis.Redis, now: datetime, submit: Submit) -> list[Run]:
    """Advance every open run: by priority, then the earliest deadline, then the oldest.

    Nothing is done while another process does so.
    """
    with Lease(control, "task-managers", LEASE_SECONDS) as number:
        if number is None:
            return []
        hosts = HostSelection(read_host_reports(control), now.timestamp())
        open_runs = Run.objects.filter(state__in=runs.OPEN).select_related("task").order_by("created_at", "pk")
        # Of the same priority, workers take runs in the order in which they were requested.
        in_order = sorted(open_runs, key=get_urgency)
        return [manage_run(run, control, now, submit, hosts) for run in in_order]


def get_priority(run: Run) -> int:
    """Return the priority of the run's workers: scheduled runs with a deadline first, requested runs last."""
    if run.is_requested:
        return REQUESTED_PRIORITY
    return SCHEDULED_PRIORITY if run.deadline_at is None else DEADLINE_PRIORITY


def get_urgency(run: Run) -> tuple[int, datetime]:
    """Return the order of runs, the most urgent first: by priority, then by deadline."""
    return get_priority(run), run.deadline_at or NO_DEADLINE


def manage_run(
    run: Run, control: redis.Redis, now: datetime, submit: Submit, hosts: HostSelection | None = None
) -> Run:
    """Advance one run: start it, close it, or count its workers and request more.

    Without `hosts`, any host of the role may run the workers: a person runs the task here.
    """
    if run.state == Run.State.QUEUED:
        began = {"state": Run.State.RUNNING, "started_at": run.started_at or now}
        Run.objects.filter(pk=run.pk, state=Run.State.QUEUED).update(**began)
        run.refresh_from_db()
    left = note_progress(run, control)
    if left == 0:
        _close(run, control, now)
    elif run.state == Run.State.RUNNING:
        wanted = count_wanted_workers(run, left, now)
        Run.objects.filter(pk=run.pk, state=Run.State.RUNNING).update(workers_wanted=wanted)
        missing = wanted - count_present_workers(control, run.pk, now)
        _request_workers(run, missing, control, now, submit, hosts)
    run.refresh_from_db()
    return run


def _request_workers(
    run: Run, count: int, control: redis.Redis, now: datetime, submit: Submit, hosts: HostSelection | None
) -> None:
    """Request workers, or record with the run why no host may run them."""
    role, capabilities, obstacle = find_role(run.task.requirements), list_capabilities(run.task.requirements), ""
    try:
        for _ in range(count):
            destination = role if hosts is None else hosts.choose(role, capabilities)
            worker = f"{run.pk}-{secrets.token_hex(6)}"
            note_worker(control, run.pk, worker, now.timestamp() + SUBMISSION_SECONDS)
            submit(run.pk, worker, destination, get_priority(run))
    except BadInput as error:
        obstacle = str(error)
    if obstacle != run.progress.get("obstacle", ""):
        Run.objects.filter(pk=run.pk).update(progress={**run.progress, "obstacle": obstacle})


def count_wanted_workers(run: Run, left: int | None, now: datetime) -> int:
    """Return the number of workers (`workers_for`); a single-instance task gets one."""
    most = 1 if run.single_instance else run.task.parallel
    seconds_left = None if run.deadline_at is None else (run.deadline_at - now).total_seconds()
    return compute_worker_count(left, list_chunk_seconds(run), seconds_left, most)


def list_chunk_seconds(run: Run) -> list[float]:
    """Return the durations of the newest chunks of the task, in this run and, before, in earlier ones."""
    done = Chunk.objects.filter(run__task_id=run.task_id, state=Chunk.State.DONE, seconds__isnull=False)
    newest = done.order_by("-run_id", "-pk").values_list("seconds", flat=True)[:MEASURED_CHUNKS]
    return [seconds for seconds in newest if seconds is not None]


def count_present_workers(control: redis.Redis, number: int, now: datetime) -> int:
    """Return workers that are at the run or were requested recently."""
    key, now_seconds = keys.JOB_WORKERS.build(number), now.timestamp()
    control.zremrangebyscore(key, "-inf", now_seconds)
    # The time is from a clock that was ahead: no request is valid for longer than a start takes.
    control.zremrangebyscore(key, f"({now_seconds + SUBMISSION_SECONDS}", "+inf")
    return int(control.zcard(key))


def note_progress(run: Run, control: redis.Redis) -> int | None:
    """Store the run's progress; return the number of chunks left, None while unknown."""
    counts = run.chunks.aggregate(
        rows=Sum("rows", default=0), ended=Count("pk", filter=Q(state__in=(Chunk.State.DONE, Chunk.State.FAILED)))
    )
    live = read_live_progress(control, run.pk)
    shares = sum(lease.get("share") or 0.0 for lease in live.values())
    total = run.chunks_total
    progress = {
        "rows": counts["rows"] + sum(int(lease.get("rows") or 0) for lease in live.values()),
        "share": min(1.0, (counts["ended"] + shares) / total) if total else None,
        "stages": {
            "done": sum(lease.get("stages_done", 0) for lease in live.values()),
            "total": sum(lease.get("stages", 0) for lease in live.values()),
        },
        "chunks": counts["ended"],
        "working": sorted(live),
    }
    run.progress = {**run.progress, **progress}
    Run.objects.filter(pk=run.pk).update(progress=run.progress)
    return None if total is None else total - counts["ended"]


def read_live_progress(control: redis.Redis, number: int) -> dict[str, dict[str, Any]]:
    """Return chunk → {"rows", "share" (null: unknown), "stages", "stages_done", "worker", "at"}."""
    progress = expect_bytes(control).hgetall(keys.JOB.build(number))
    return {chunk.decode(): orjson.loads(document) for chunk, document in progress.items()}


def _close(run: Run, control: redis.Redis, now: datetime) -> None:
    """Close the run when every chunk has ended, successfully or not."""
    failed = run.chunks.filter(state=Chunk.State.FAILED).order_by("place")
    first = failed.first()
    skipped = [skip for chunk in run.chunks.exclude(skipped=[]) for skip in chunk.skipped]
    progress = {**run.progress, "share": 1.0, "skipped": skipped, "working": []}
    Run.objects.filter(pk=run.pk).update(progress=progress)
    if first is None:
        runs.end(run, Run.State.DONE, now)
    else:
        error = f"{failed.count()} of {run.chunks_total} chunks failed; {first.identifier}: {first.error}"
        runs.end(run, Run.State.FAILED, now, error)
    runs.forget_live(control, run.pk)


def note_worker(control: redis.Redis, number: int, worker: str, until: float) -> None:
    """Note that a worker is at the run, or was requested, until then.

    The key expires: nothing else removes the workers of a cancelled run that never started.
    """
    key = keys.JOB_WORKERS.build(number)
    control.zadd(key, {worker: until})
    control.expire(key, LIVE_SECONDS)


def find_role(requirements: list[str]) -> str:
    """Return the role whose workers meet all requirements."""
    return next((ROLE_OF[requirement] for requirement in requirements if requirement in ROLE_OF), DEFAULT_ROLE)


def list_capabilities(requirements: list[str]) -> list[str]:
    """Return the capabilities among the requirements."""
    return [requirement for requirement in requirements if requirement not in ROLE_OF]


def can_run_here(requirements: list[str], role: str) -> bool:
    """Return whether this process, a worker of the role, meets the requirements of another run."""
    return find_role(requirements) == role and set(list_capabilities(requirements)) <= set(read_capabilities())
