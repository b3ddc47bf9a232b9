"""A plant at rest, and the proof that it was.

No queue hands out events, no claimed work is in progress, and no block moves between nodes. The parts copied one after
the other are then consistent, so that nothing is lost or done twice after a restore. New events still arrive and wait.
Whether the plant was at rest is checked again at the end (`Rest.check`).

Counts of events that left containers or arrived from others, and the progress of the pipeline, must be equal before and
after copying. This detects what no lease and no pause can stop: a frozen worker or transfer that continues; a step of
the pipeline's dispatcher that started before the pause; complex events that are finally published.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import redis
from django.contrib.auth.models import User
from django.db import DatabaseError, InterfaceError, connections
from django.utils import timezone

from common.errors import BadInput, WeirError
from common.stored_document import BadDocument, decode_document
from console.upkeep.backup import files
from queues import keys, pausing
from queues.control.replies import expect_bytes
from queues.models import Node, Queue
from queues.segments.gauge import read_gauges
from workers.coordination.leases import Lease, create_backup_lease, list_transfer_leases
from workers.documents.pipeline import PipelineReport
from workers.models import Override
from workers.pool.orders import read_host_reports
from workers.steering import overrides

# Arriving events change none of them.
COUNTS = ("received_events", "sent_events", "dead_letters", "leaving_blocks", "leaving_letters")
# What the pipeline has read according to its checkpoint may be removed at any time.
OF_JOBS = ("removed_blocks", "dead_events")
Passages = Mapping[str, tuple[object, ...]]
MAX_SECONDS = 120.0
ALIVE_SECONDS = 20.0
INTERVAL_SECONDS = 0.5
# The time between two checks without work: work that started before the pause (a claim, a step of the
# pipeline's dispatcher) is visible by then.
IDLE_SECONDS = 3.0
# If this process is killed, the plant continues after this time; while it lives it extends the pauses.
PAUSE = timedelta(minutes=5)
REASON = "a backup is made"
AGAIN = "Create the backup again."


def count_all(control: redis.Redis, connect: Callable[[str], redis.Redis]) -> Passages:
    """Return the counts of all containers, and of the pipeline. Raises `redis.RedisError`."""
    return {**count_containers(connect), "the pipeline": count_pipeline(control)}


def count_pipeline(control: redis.Redis) -> tuple[object, ...]:
    """Return for each application how often it has dispatched, its results, and what waits to be published.

    Published complex events are on a node, and no longer on the control server. Raises `redis.RedisError`.
    """
    cursors, rooms, outboxes = (
        sorted(expect_bytes(control).scan_iter(pattern, 1_000))
        for pattern in (keys.PIPELINE_CURSOR.pattern, keys.PIPELINE_ROOM.pattern, keys.PIPELINE_OUTBOX.pattern)
    )
    dispatched = [(name, control.hget(name, "tick")) for name in cursors]
    waiting = [(name, control.hlen(name)) for name in outboxes]
    published = [
        (name, *pair)
        for name in rooms
        for pair in sorted(expect_bytes(control).hgetall(name).items())
        if pair[0].startswith(b"published:")
    ]
    return (*dispatched, *published, *waiting)


def count_containers(connect: Callable[[str], redis.Redis]) -> Passages:
    """Return {"queue on node": its counts}. Raises `redis.RedisError`."""
    kinds = dict(Queue.objects.order_by("name").values_list("name", "kind"))
    return {
        f"{queue} on {node.name}": tuple(
            gauge[name] for name in (*COUNTS, *(OF_JOBS if kinds[queue] == "jobs" else ()))
        )
        for node in Node.objects.order_by("name")
        for queue, gauge in read_gauges(connect(node.get_primary_url()), list(kinds)).items()
    }


def find_differences(before: Passages, after: Passages) -> list[str]:
    """Return those whose counts have changed."""
    return [name for name, counts in after.items() if counts != before.get(name, counts)]


log = logging.getLogger("weir.backup")


class QuiesceFailed(WeirError):  # noqa: N818
    """The plant did not come to rest."""


@dataclass(frozen=True)
class Rest:
    """A plant at rest, and the pauses that were set for it."""

    control: redis.Redis
    data: Path
    lease: Lease
    pauses: list[Override]

    def check(self) -> None:
        """Raise `QuiesceFailed` if it is not at rest any more: the copy is then inconsistent."""
        if not self.lease.renew():
            raise QuiesceFailed(f"The lease of the backup was lost. {AGAIN}")
        if awake := _list_unpaused(self.control):
            raise QuiesceFailed(f"Consumption of {awake[0]} continued during the copy. {AGAIN}")
        if busy := list(_describe_pipeline_work(self.control, self.data)):
            raise QuiesceFailed(f"The pipeline ran during the copy: {busy[0]}. {AGAIN}")


@contextmanager
def quiesce(
    control: redis.Redis,
    data: Path,
    by: User,
    longest_seconds: float = MAX_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Rest]:
    """Keep the plant at rest during the block.

    Raises `QuiesceFailed` that says what is still in progress, after ending the pauses.
    """
    lease = create_backup_lease(control)
    with lease as fence:
        if fence is None:
            raise QuiesceFailed("Another backup is in progress. Try again when it is done.")
        now = timezone.now()
        for override in overrides.list_active(now).filter(name=pausing.CONSUMPTION, reason=REASON):
            overrides.end(override, by=by, now=now, control=control)  # of a backup that was killed: no other is running
        made: list[Override] = []
        with lease.keep_renewed(lambda: _prolong_apart(made, control)):
            try:
                for name in _list_unpaused(control):
                    now = timezone.now()
                    made.append(
                        overrides.set_override(
                            queue=name,
                            name=pausing.CONSUMPTION,
                            value=overrides.PAUSED,
                            owner=by,
                            reason=REASON,
                            now=now,
                            expires_at=now + PAUSE,
                            control=control,
                        )
                    )
                _wait(control, data, longest_seconds, sleep, monotonic)
                yield Rest(control, data, lease, made)
            finally:
                for pause in made:
                    overrides.end(pause, by=by, now=timezone.now(), control=control)


def _wait(
    control: redis.Redis,
    data: Path,
    longest_seconds: float,
    sleep: Callable[[float], object],
    monotonic: Callable[[], float],
) -> None:
    deadline = monotonic() + longest_seconds
    idle_since: float | None = None
    while True:
        now = monotonic()
        if busy := list_active_work(control, data):
            idle_since = None
            if now > deadline:
                raise QuiesceFailed(
                    f"The plant did not become idle within {longest_seconds:g} s: {busy[0]}. "
                    "Try again when the load is lower, or with a larger --longest."
                )
            sleep(INTERVAL_SECONDS)
            continue
        idle_since = now if idle_since is None else idle_since
        left_seconds = idle_since + IDLE_SECONDS - now
        if left_seconds <= 0:
            return
        sleep(left_seconds)


def _list_unpaused(control: redis.Redis) -> list[str]:
    names = list(Queue.objects.order_by("name").values_list("name", flat=True))
    already = pausing.load_pauses(control, names, pausing.CONSUMPTION)
    return [name for name in names if name not in already]


def _prolong_apart(pauses: list[Override], control: redis.Redis) -> None:
    """Extend the pauses in a separate thread.

    If it fails it is tried again soon, and a pause that ended is detected (`Rest.check`).
    """
    try:
        prolong(list(pauses), timezone.now(), control)
    except (DatabaseError, InterfaceError, redis.RedisError, BadInput) as error:
        log.warning("Pauses were not extended: %s", error)
    finally:
        connections.close_all()  # of this thread


def prolong(pauses: list[Override], now: datetime, control: redis.Redis) -> None:
    """Extend pauses that end soon to their full time again; one that a person has ended stays ended.

    Raises DatabaseError, RedisError, BadInput.
    """
    soon = overrides.list_active(now).filter(pk__in=[pause.pk for pause in pauses], expires_at__lt=now + PAUSE / 2)
    for pause in soon:
        overrides.extend(pause, now=now, expires_at=now + PAUSE, control=control)


def list_active_work(control: redis.Redis, data: Path) -> list[str]:
    """Return what is still in progress, in words."""
    transfers = [f"blocks may be moving between nodes ({name})" for name in list_transfer_leases(control)]
    return [*_describe_active_workers(control), *transfers, *_describe_pipeline_work(control, data)]


def _describe_active_workers(control: redis.Redis) -> Iterator[str]:
    """Return active workers.

    A worker without a sign of life for a while is dead: its blocks are given to another one. The signs have the time of
    the worker's host, whose clock may be behind.
    """
    seconds, _ = control.time()
    ahead = [report.ahead_seconds or 0.0 for report in read_host_reports(control).values()]
    since = seconds - ALIVE_SECONDS - max(0.0, -min(ahead, default=0.0))
    for name in sorted(control.scan_iter(keys.RUNNING.pattern)):
        if count := control.zcount(name, since, "+inf"):
            queue, node = name.decode().split(":")[-2:]
            yield f"{count} running worker{'' if count == 1 else 's'} of {queue} on {node}"


def _describe_pipeline_work(control: redis.Redis, data: Path) -> Iterator[str]:
    """Return the pipeline's work.

    While the pipeline does not run, nothing moves: its last batch is repeated with the same effect.
    """
    if not _is_pipeline_running(control):
        return
    for name in sorted(control.scan_iter(keys.PIPELINE_ROOM.pattern)):
        if count := int(control.hget(name, "in_flight_events") or 0):
            application = name.decode().rpartition(":")[2]
            yield f"{count} event{'' if count == 1 else 's'} in the pipeline application {application}"
    for query in files.list_unsettled(data):
        yield f"the pipeline's query {query} has not committed its batch"


def _is_pipeline_running(control: redis.Redis) -> bool:
    """Return whether the pipeline runs, by its report's own time.

    The key is read each second, which says nothing about its writer.
    """
    stored = expect_bytes(control).get(keys.PIPELINE)
    with suppress(BadDocument):
        seconds, _ = control.time()
        return stored is not None and decode_document(PipelineReport, stored, "pipeline").at > seconds - ALIVE_SECONDS
    return False
