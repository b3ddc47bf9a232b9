"""The contents of a node's segments, measured in one round trip.

Lightweight, since every agent imports it: no Arrow.
"""

from collections.abc import Sequence
from typing import Any

import redis

from queues import keys
from queues.lua.script import load_scripts

# The scripts that move blocks on a node, by name, and the counters that they maintain: `queues/lua/segment`.
#
# KEYS are `keys.list_queue_keys(queue)`, ARGV[1] is the consumer group. Scripts may run on a full node (`allow-oom`): a
# node that could not acknowledge could never become empty again. Those that receive from another node may not.

GROUP = "workers"
COUNTERS = (
    "inserted_events",
    "inserted_blocks",
    "inserted_bytes",
    "removed_events",
    "removed_blocks",
    "removed_bytes",
    "dead_events",
    # The part that was transferred between nodes: neither published nor handled.
    "received_events",
    "sent_events",
    # Found damaged (blocks and dead letters), and removed without a checksum (blocks of earlier versions).
    "damaged_blocks",
    "unchecked_blocks",
)
SCRIPTS = load_scripts("segment")


LENGTHS = ("length_blocks", "pending_blocks", "retry_blocks", "dead_letters", "leaving_blocks", "leaving_letters")
Gauge = dict[str, Any]  # numbers, and the texts `dead_error` and `damage`


def read_gauges(node: redis.Redis, queues: Sequence[str]) -> dict[str, Gauge]:
    """Return {queue: counters, lengths, ages, and texts} of each queue's segment on the node.

    `oldest_seconds`: the age of the oldest entry by the node's clock, None if the segment is empty, and negative if the
    clock was set back since (`queues.nodes.measures`). `dead_error`: of the newest dead letter. `damage`: the block or
    dead letter that was found damaged last, `damaged_at` (s since 1970 by the node's clock; None: none was). Each
    segment is measured in one script, so that its figures belong to one instant. Raises redis-py's errors.
    """
    script = node.register_script(SCRIPTS["measure"])
    with node.pipeline(transaction=False) as pipeline:
        for queue in queues:
            script(keys=keys.list_queue_keys(queue), args=[GROUP, *COUNTERS], client=pipeline)
        return {queue: _gauge(values) for queue, values in zip(queues, pipeline.execute(), strict=True)}


def _gauge(values: list[int | bytes]) -> Gauge:
    *counts, age_ms, error, damage, damaged_at_ms = values
    gauge: Gauge = dict(zip((*COUNTERS, *LENGTHS), map(int, counts), strict=True))
    gauge["oldest_seconds"] = int(age_ms) / 1000 if age_ms != b"" else None
    gauge["dead_error"] = error.decode(errors="replace") if isinstance(error, bytes) else ""
    gauge["damage"] = damage.decode(errors="replace") if isinstance(damage, bytes) else ""
    gauge["damaged_at"] = int(damaged_at_ms) / 1000 if damaged_at_ms != b"" else None
    return gauge
