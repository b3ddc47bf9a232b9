"""What has left containers or come to them from others, by the nodes' own counts, and how far the pipeline
is: equal before and after the copying, or what was copied one after the other does not belong together.

It finds what no lease and no pause can stop: a worker or a transfer that was frozen, and goes on; a step of
the pipeline's dispatcher that began before the pause; complex events that are published at last.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import redis

from queues import keys
from queues.models import Node, Queue
from queues.redis_types import Fields
from queues.segments.gauge import read_gauges

# Events that arrive change none of them.
COUNTS = ("received_events", "sent_events", "dead_letters", "leaving_blocks")
# What the pipeline has read by its checkpoint may be removed at any time.
OF_JOBS = ("removed_blocks", "dead_events")
Passages = Mapping[str, tuple[object, ...]]


def count_all(control: redis.Redis, connect: Callable[[str], redis.Redis]) -> Passages:
    """Of all containers, and of the pipeline. Raises redis.RedisError."""
    return {**count_containers(connect), "the pipeline": count_pipeline(control)}


def count_pipeline(control: redis.Redis) -> tuple[object, ...]:
    """Of each application how often it has dispatched, what has its result, and what waits to be published:
    complex events that go out are on a node, and no more on the control server. Raises redis.RedisError.
    """
    cursors, rooms, outboxes = (
        sorted(cast(Iterator[bytes], control.scan_iter(pattern, 1_000)))
        for pattern in (
            keys.PIPELINE_CURSOR.pattern,
            keys.PIPELINE_ROOM.pattern,
            keys.PIPELINE_OUTBOX.pattern,
        )
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
    """{"queue on node": its counts}. Raises redis.RedisError."""
    kinds = dict(Queue.objects.order_by("name").values_list("name", "kind"))
    return {
        f"{queue} on {node.name}": tuple(
            gauge[name] for name in (*COUNTS, *(OF_JOBS if kinds[queue] == "jobs" else ()))
        )
        for node in Node.objects.order_by("name")
        for queue, gauge in read_gauges(connect(node.url), list(kinds)).items()
    }


def find_differences(before: Passages, after: Passages) -> list[str]:
    """Those whose counts are not what they were."""
    return [name for name, counts in after.items() if counts != before.get(name, counts)]
