"""What has left containers or come to them from others, by the nodes' own counts: equal before and after the
copying, or what was copied one after the other does not belong together.

It finds what no lease and no pause can stop: a worker or a transfer that was frozen, and goes on.
"""

from collections.abc import Callable, Mapping

import redis

from queues.models import Node, Queue
from queues.segments.gauge import read_gauges

# Events that arrive change none of them.
COUNTS = ("received_events", "sent_events", "dead_letters", "leaving_blocks")
# What the pipeline has read by its checkpoint may be removed at any time.
OF_JOBS = ("removed_blocks", "dead_events")
Passages = Mapping[str, tuple[object, ...]]


def by_container(connect: Callable[[str], redis.Redis]) -> Passages:
    """{"queue on node": its counts}. Raises redis.RedisError."""
    kinds = dict(Queue.objects.order_by("name").values_list("name", "kind"))
    return {
        f"{queue} on {node.name}": tuple(
            gauge[name] for name in (*COUNTS, *(OF_JOBS if kinds[queue] == "jobs" else ()))
        )
        for node in Node.objects.order_by("name")
        for queue, gauge in read_gauges(connect(node.url), list(kinds)).items()
    }


def differing(before: Passages, after: Passages) -> list[str]:
    """The containers whose counts are not what they were."""
    return [name for name, counts in after.items() if counts != before.get(name, counts)]
