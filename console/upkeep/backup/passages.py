"""Counts of events that left containers or arrived from others, and the progress of the pipeline.

They must be equal before and after copying, or the parts of the copy are inconsistent. This detects what no lease and
no pause can stop: a frozen worker or transfer that continues; a step of the pipeline's dispatcher that started before
the pause; complex events that are finally published.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import redis

from common.redis_types import Fields
from queues import keys
from queues.models import Node, Queue
from queues.segments.gauge import read_gauges

# Arriving events change none of them.
COUNTS = ("received_events", "sent_events", "dead_letters", "leaving_blocks")
# What the pipeline has read according to its checkpoint may be removed at any time.
OF_JOBS = ("removed_blocks", "dead_events")
Passages = Mapping[str, tuple[object, ...]]


def count_all(control: redis.Redis, connect: Callable[[str], redis.Redis]) -> Passages:
    """Return the counts of all containers, and of the pipeline. Raises `redis.RedisError`."""
    return {**count_containers(connect), "the pipeline": count_pipeline(control)}


def count_pipeline(control: redis.Redis) -> tuple[object, ...]:
    """Return for each application how often it has dispatched, its results, and what waits to be published.

    Published complex events are on a node, and no longer on the control server. Raises `redis.RedisError`.
    """
    cursors, rooms, outboxes = (
        sorted(cast(Iterator[bytes], control.scan_iter(pattern, 1_000)))
        for pattern in (keys.PIPELINE_CURSOR.pattern, keys.PIPELINE_ROOM.pattern, keys.PIPELINE_OUTBOX.pattern)
    )
    dispatched = [(name, control.hget(name, "tick")) for name in cursors]
    waiting = [(name, control.hlen(name)) for name in outboxes]
    published = [
        (name, *pair)
        for name in rooms
        for pair in sorted(cast(Fields, control.hgetall(name)).items())
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
        for queue, gauge in read_gauges(connect(node.url), list(kinds)).items()
    }


def find_differences(before: Passages, after: Passages) -> list[str]:
    """Return those whose counts have changed."""
    return [name for name, counts in after.items() if counts != before.get(name, counts)]
