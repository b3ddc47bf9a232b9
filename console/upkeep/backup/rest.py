"""A plant that rests: no queue hands out events, and nothing that was handed out is still worked on.

What is copied one after the other then belongs together, so that nothing is lost or done twice where it is
restored. Events go on arriving; they wait.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import redis
from django.contrib.auth.models import User
from django.utils import timezone

from console.upkeep.backup import files
from queues import keys, pausing
from queues.errors import WeirError
from queues.models import Queue
from workers.models import Override
from workers.steering import overrides

LONGEST_SECONDS = 120.0
ALIVE_SECONDS = 20.0
INTERVAL_SECONDS = 0.5
REASON = "a backup is made"


class Unrest(WeirError):  # noqa: N818
    """The plant did not come to rest."""


@contextmanager
def resting(
    control: redis.Redis,
    data: Path,
    by: User,
    longest_seconds: float = LONGEST_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[list[Override]]:
    """The pauses, in force as long as the block. Raises Unrest, saying what is still worked on; the pauses
    have ended then.
    """
    made = [_pause(name, by, control) for name in _unpaused(control)]
    try:
        deadline = monotonic() + longest_seconds
        while busy := worked_on(control, data):
            if monotonic() > deadline:
                raise Unrest(
                    f"The plant did not come to rest within {longest_seconds:g} s: {busy[0]}. "
                    "Try again when it has less to do, or with a larger --longest."
                )
            sleep(INTERVAL_SECONDS)
        yield made
    finally:
        for each in made:
            overrides.end(each, by=by, now=timezone.now(), control=control)


def _unpaused(control: redis.Redis) -> list[str]:
    names = list(Queue.objects.order_by("name").values_list("name", flat=True))
    already = pausing.paused(control, names, pausing.CONSUMPTION)
    return [name for name in names if name not in already]


def _pause(queue: str, by: User, control: redis.Redis) -> Override:
    now = timezone.now()
    return overrides.set_override(
        queue=queue,
        name=pausing.CONSUMPTION,
        value=overrides.PAUSED,
        owner=by,
        reason=REASON,
        now=now,
        # Should this process be killed, the plant goes on by itself.
        expires_at=now + timedelta(hours=2),
        control=control,
    )


def worked_on(control: redis.Redis, data: Path) -> list[str]:
    """What is still at work, in words."""
    return [*_workers(control), *_pipeline(control, data)]


def _workers(control: redis.Redis) -> Iterator[str]:
    """A worker that has given no sign for a while is dead: what it held is given to another one."""
    since = time.time() - ALIVE_SECONDS
    for name in sorted(control.scan_iter(keys.RUNNING.pattern)):
        if count := control.zcount(name, since, "+inf"):
            queue, node = name.decode().split(":")[-2:]
            yield f"{count} workers of {queue} on {node} are at work"


def _pipeline(control: redis.Redis, data: Path) -> Iterator[str]:
    for name in sorted(control.scan_iter(keys.PIPELINE_ROOM.pattern)):
        if count := int(control.hget(name, "in_flight_events") or 0):
            yield f"{count} events are in the pipeline application {name.decode().rpartition(':')[2]}"
    # Of a pipeline that does not run the last batch stays as it is; it is worked again, to the same effect.
    status = control.get(keys.PIPELINE)
    if status is not None and control.object("idletime", keys.PIPELINE) < ALIVE_SECONDS:
        for query in files.unsettled(data):
            yield f"the pipeline's query {query} has not committed its batch"
